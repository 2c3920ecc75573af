"""The terminal chat: an agent in the current folder, on a session that survives a crash."""

from .chat import Chat, ChosenModel

__all__ = ["Chat", "ChosenModel"]
