"""Hooks: functions that see each step of an agent before and after it, and may change or stop it.

Each hook is optional. One that returns None changes nothing; one that raises `Stop` ends the run at that
point, with everything saved that had happened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from ..errors import TurnstateError
from ..message import Message, ToolCallRequest, ToolCallResult
from ..models import ModelRequest

__all__ = ["Hooks", "Stop"]


class Stop(TurnstateError):
    """A hook ends the run; its text says why."""


class Hooks(Struct, frozen=True, kw_only=True):
    """What to call at each step: with the request, the reply, a call and its result."""

    before_request: Callable[[ModelRequest], Awaitable[ModelRequest | None]] | None = None
    after_reply: Callable[[Message], Awaitable[Message | None]] | None = None
    """May return another reply, which is saved in its place."""
    before_tool: Callable[[ToolCallRequest], Awaitable[ToolCallResult | None]] | None = None
    """May return the result itself; the tool is then not run."""
    after_tool: Callable[[ToolCallRequest, ToolCallResult], Awaitable[ToolCallResult | None]] | None = None
    """May return another result, which is saved in its place."""
