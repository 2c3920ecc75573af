"""Test doubles: a clock that a test moves, and a model that returns the replies that a test wrote for it.

Neither uses the network, randomness or real time.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from ..errors import TurnstateError
from ..message import Message
from ..models import Finished, ModelEvent, ModelRequest, PartMade, ReasoningDelta, TextDelta, ToolCallMade
from ..part import ReasoningPart, TextPart
from ..value import Value

_START = 1_750_000_000_000  # a day in June 2025


class FixedClock:
    """A clock in milliseconds since 1970, as sessions expect it, that moves only when a test moves it."""

    def __init__(self, now: int = _START) -> None:
        self._now = now

    def __call__(self) -> int:
        """Return the time."""
        return self._now

    def advance(self, ms: int) -> int:
        """Move the clock and return the time; a negative number sets it back."""
        self._now += ms
        return self._now

    def set(self, ms: int) -> None:
        """Set the time."""
        self._now = ms


_PIECE = re.compile(r"\s*\S+|\s+")


class Waitable(Protocol):
    """Something to wait for, such as an `asyncio.Event`."""

    async def wait(self) -> Any:
        """Return when the model may continue."""
        ...


Step: TypeAlias = ModelEvent | str | BaseException | Waitable
Reply: TypeAlias = "str | Message | BaseException | Sequence[Step] | Callable[[ModelRequest], Reply]"


class ScriptedModel:
    """Returns one reply per request, in order, and records the requests.

    Every reply waits for ``hold``, if it is given.
    """

    def __init__(self, *replies: Reply, name: str = "scripted", hold: Waitable | None = None) -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self._replies = list(replies)
        self._hold = hold

    @property
    def left(self) -> int:
        """The number of replies that have not been requested yet."""
        return max(0, len(self._replies) - len(self.requests))

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the events of the next reply."""
        self.requests.append(request)
        number = len(self.requests)
        if number > len(self._replies):
            raise TurnstateError(
                f"{self.name} has no reply for request {number}; write one more into its script"
            )
        return self._played(self._replies[number - 1], request)

    async def _played(self, reply: Reply, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        if self._hold is not None:
            await self._hold.wait()
        for step in _steps(reply, request):
            match step:
                case str():
                    yield TextDelta(step)
                case BaseException():
                    raise step
                case Value():  # an event; checking for a protocol first would take longer than all the rest
                    yield step
                case _:
                    await step.wait()


def _steps(reply: Reply, request: ModelRequest) -> Iterator[Step]:
    """Yield the steps of a reply."""
    if callable(reply):
        yield from _steps(reply(request), request)
    elif isinstance(reply, str):
        yield from _PIECE.findall(reply)
        yield Finished()
    elif isinstance(reply, Message):
        yield from _spoken(reply)
        yield Finished("tool_calls" if reply.tool_calls else "stop")
    elif isinstance(reply, BaseException):
        yield reply
    else:
        yield from reply


def _spoken(message: Message) -> Iterator[Step]:
    """Yield the events with which a model sends a message."""
    for part in message.parts:
        match part:
            case TextPart(text=text):
                yield from _PIECE.findall(text)
            case ReasoningPart(text=text, signature=signature):
                yield ReasoningDelta(text, signature)
            case _:
                yield PartMade(part)
    for call in message.tool_calls:
        yield ToolCallMade(call)
