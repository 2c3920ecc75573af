"""The default store: sessions in one SQLite file; every acknowledged write is durable."""

from .store import SqliteStore, connect
from .verify import rescue

__all__ = ["SqliteStore", "connect", "rescue"]
