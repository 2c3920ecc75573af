"""What is unfinished at the end of a path: a prompt that waits for its reply, or calls, or a paused reply."""

from __future__ import annotations

from collections.abc import Container, Reversible

from msgspec import Struct

from .. import formats
from ..entry import EarlyEnd
from ..ids import CallId
from ..message import Message, ToolCallRequest, ToolCallResult


class Pending(Struct, frozen=True, kw_only=True):
    """What is unfinished: a prompt that waits for its reply, or the calls of the last reply.

    When all calls are answered, a request with their results is due. ``started`` are the open calls that
    `Turn.started` recorded as about to run. ``paused`` means that the provider, while running its own tools,
    stopped in the middle (Anthropic's ``pause_turn``) and continues with the next request. ``cut_off`` is the
    last call of a reply that ended at the token limit: do not run it, its arguments may lack their end.
    """

    prompt: Message | None = None
    open: tuple[ToolCallRequest, ...] = ()
    answered: tuple[ToolCallResult, ...] = ()
    started: frozenset[CallId] = frozenset()
    paused: bool = False
    cut_off: CallId | None = None


def pending(
    messages: Reversible[Message],
    started: Container[CallId] = (),
    *,
    paused: bool = False,
    ended_early: EarlyEnd | None = None,
) -> Pending | None:
    """Return what is unfinished at the end of a path; None if the assistant has had the last word."""
    results, asked = dict[CallId, ToolCallResult](), list[ToolCallRequest]()
    spoken = False
    for message in reversed(messages):
        parts = formats.unfolded(message)
        given = {one.tool_call_id: one for part in parts for one in part.tool_results}
        if parts[0].role == "assistant":
            spoken = True
            asked[:0] = (call for part in parts for call in part.tool_calls if call.id not in given)
        elif spoken:
            break
        elif message.role == "user":
            return Pending(prompt=message)
        else:  # of several results of one call, the first wins
            results |= given
    if not asked:
        return Pending(paused=True) if paused else None
    unanswered = tuple(call for call in asked if call.id not in results)
    return Pending(
        open=unanswered,
        answered=tuple(results[call.id] for call in asked if call.id in results),
        started=frozenset(call.id for call in unanswered if call.id in started),
        cut_off=asked[-1].id if ended_early == "length" else None,
    )
