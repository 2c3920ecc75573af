"""The embedded default: sessions in one SQLite file, durable at every acknowledgement."""

from .store import SqliteStore, connect
from .verify import rescue

__all__ = ["SqliteStore", "connect", "rescue"]
