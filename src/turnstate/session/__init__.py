"""Sessions: conversations that survive the process, on any store."""

from .manager import Erasure, Found, SessionManager
from .session import Session

__all__ = ["Erasure", "Found", "Session", "SessionManager"]
