"""A store that lives as long as its process: for tests, tools, and conversations that are not kept."""

from .store import MemoryStore, connect

__all__ = ["MemoryStore", "connect"]
