"""A store that lives as long as its process: for tests, tools, and conversations nobody keeps."""

from .store import MemoryStore, connect

__all__ = ["MemoryStore", "connect"]
