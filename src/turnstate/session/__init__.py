"""Sessions: conversations that survive the process, on any store."""

from ..log.entries import LogEntry
from ..stores.values import Receipt
from .erasure import Erasure
from .info import Branch, SearchResult, SessionInfo, SessionPage
from .manager import SessionManager
from .named_values import State, StateValue
from .pending import Pending
from .session import Session
from .turn import Turn
from .user_memory import Recall

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
