"""Sessions: conversations that survive the process, on any store."""

from .manager import Erasure, SearchResult, SessionManager
from .session import Session
from .turn import Pending, Turn

__all__ = ["Erasure", "Pending", "SearchResult", "Session", "SessionManager", "Turn"]
