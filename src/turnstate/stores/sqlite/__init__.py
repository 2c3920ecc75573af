"""The default store: sessions in one SQLite file; every acknowledged write is durable."""

from .store import SqliteStore, connect, connect_to_read
from .verify import rescue

__all__ = ["SqliteStore", "connect", "connect_to_read", "rescue"]
