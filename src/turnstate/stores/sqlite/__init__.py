"""The embedded default: sessions in one SQLite file, durable at every acknowledgement."""

from .store import SqliteStore, connect
from .verification import rescue

__all__ = ["SqliteStore", "connect", "rescue"]
