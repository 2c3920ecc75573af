"""The embedded default: sessions in one SQLite file, durable at every acknowledgement."""

from .store import SqliteStore, connect

__all__ = ["SqliteStore", "connect"]
