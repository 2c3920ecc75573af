"""Hooks: functions that run before and after each step of an agent and may change or stop it.

Each hook is optional. A hook that returns None changes nothing; one that raises `Stop` ends the run at that
point, and everything that happened before is saved.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from ..errors import TurnstateError
from ..message import Message, ToolCallRequest, ToolCallResult
from ..models import ModelRequest


class Stop(TurnstateError):
    """A hook ends the run; its text says why."""


class Hooks(Struct, frozen=True, kw_only=True):
    """Functions to call at each step: before a request, after a reply, before and after a tool."""

    before_request: Callable[[ModelRequest], Awaitable[ModelRequest | None]] | None = None
    after_reply: Callable[[Message], Awaitable[Message | None]] | None = None
    """May return another reply, which is saved instead."""
    before_tool: Callable[[ToolCallRequest], Awaitable[ToolCallResult | None]] | None = None
    """May return a result; the tool is then not run."""
    after_tool: Callable[[ToolCallRequest, ToolCallResult], Awaitable[ToolCallResult | None]] | None = None
    """May return another result, which is saved instead."""
