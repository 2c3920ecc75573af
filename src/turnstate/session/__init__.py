"""Sessions: conversations that survive the process, on any store."""

from .manager import Erasure, SearchResult, SessionManager
from .session import Session

__all__ = ["Erasure", "SearchResult", "Session", "SessionManager"]
