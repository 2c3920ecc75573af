"""The built-in engine: remembers turns and facts in SQLite or PostgreSQL, and finds them by question."""

from .engine import BuiltinEngine, connect

__all__ = ["BuiltinEngine", "connect"]
