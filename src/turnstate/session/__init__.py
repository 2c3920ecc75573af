"""Sessions: conversations that survive the process, on any store."""

from ..log.entries import LogEntry
from ..stores.values import Receipt
from .erasure import Erasure
from .info import Branch, SearchResult, SessionInfo, SessionPage
from .manager import SessionManager
from .memory import Recall
from .session import Session
from .state import State, StateValue
from .turn import Pending, Turn

__all__ = [
    "Branch",
    "Erasure",
    "LogEntry",
    "Pending",
    "Recall",
    "Receipt",
    "SearchResult",
    "Session",
    "SessionInfo",
    "SessionManager",
    "SessionPage",
    "State",
    "StateValue",
    "Turn",
]
