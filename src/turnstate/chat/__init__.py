"""The chat in a terminal: an agent in the current folder, on a session that survives everything."""

from .chat import Chat, ChosenModel

__all__ = ["Chat", "ChosenModel"]
