"""Faults of conversations, planted one at a time.

Each fault has an ordinary cause: a window trimmed in the middle of a batch, a tool that crashed, a user who
spoke first, a loop that wrote its messages in the wrong order. `plant` breaks only a batch that is still
sound, so that one fault does not undo another. Every message stays a valid value; only the conversation is
broken.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from enum import Enum
from itertools import islice, takewhile
from random import Random
from typing import Any, NamedTuple

from msgspec.structs import replace

from .. import ids
from ..ids import CallId
from ..message import Message, ToolCallRequest, ToolCallResult
from ..part import TextPart
from .samples import MessageStamp, stamp


class Batch(NamedTuple):
    """A completely answered batch: the position of its call, and the end of its results."""

    call: int
    end: int


def batches(messages: Sequence[Message], *, calls: int = 1) -> list[Batch]:
    """Return the sound batches of at least ``calls`` calls."""
    found = []
    for i, message in enumerate(messages):
        if len(message.tool_calls) < calls:
            continue
        answers = list(takewhile(lambda one: one.role == "tool", islice(messages, i + 1, None)))
        answered = sorted(result.tool_call_id for one in answers for result in one.tool_results)
        if answered == sorted(call.id for call in message.tool_calls):
            found.append(Batch(i, i + 1 + len(answers)))
    return found


def results(messages: Sequence[Message], batch: Batch) -> list[ToolCallResult]:
    """Return the results of a batch."""
    return [result for one in messages[batch.call + 1 : batch.end] for result in one.tool_results]


def without(messages: list[Message], batch: Batch, lost: Container[CallId]) -> list[Message]:
    """Return the messages without these results, and without tool messages that would be empty."""
    kept = []
    for message in messages[batch.call + 1 : batch.end]:
        rest = tuple(result for result in message.tool_results if result.tool_call_id not in lost)
        if rest:
            kept.append(message.replace(tool_results=rest))
    return [*messages[: batch.call + 1], *kept, *messages[batch.end :]]


def renamed(message: Message, old: CallId, new: CallId) -> Message:
    """Return a message in which a call, or its result, has another id."""

    def call(request: ToolCallRequest) -> ToolCallRequest:
        return replace(request, id=new) if request.id == old else request

    def answer(result: ToolCallResult) -> ToolCallResult:
        return replace(result, tool_call_id=new) if result.tool_call_id == old else result

    if message.tool_calls:
        return message.replace(tool_calls=tuple(map(call, message.tool_calls)))
    return message.replace(tool_results=tuple(map(answer, message.tool_results)))


class Fault(Enum):
    """The ways in which a conversation can be broken."""

    ASSISTANT_FIRST = "the question is trimmed away, the assistant speaks first"
    ORPHAN_AT_START = "the call is trimmed away, its results come first"
    PARTIAL_RESULTS = "some calls of a batch have no result"
    NO_RESULTS = "no call of a batch has a result"
    DANGLING_CALL = "the user speaks instead of the tools"
    LATE_RESULT = "a result comes after the user has spoken"
    DUPLICATE_RESULT = "a result comes twice, the same both times"
    CONFLICTING_RESULT = "a result comes twice, and differs"
    UNKNOWN_RESULT = "a result belongs to no call"
    RESULT_BEFORE_CALL = "a result comes before its call"
    REPEATED_CALL_ID = "two batches use one call id"
    CONSECUTIVE_ASSISTANTS = "the assistant speaks again while calls are open"
    REORDERED = "a batch and the message before it are out of order"
    BLANK_MESSAGE = "a message says nothing"


def plant(messages: Sequence[Message], fault: Fault, rng: Random) -> list[Message]:
    """Return the conversation with this fault, or unchanged if it has no place for the fault."""
    if fault in _OF_THE_WHOLE:
        return _OF_THE_WHOLE[fault](list(messages), rng)
    sound = batches(messages, calls=2 if fault in _OF_PARALLEL_CALLS else 1)
    return _OF_A_BATCH[fault](list(messages), rng.choice(sound), rng) if sound else list(messages)


def _assistant_first(messages: list[Message], _rng: Random) -> list[Message]:
    head = _head(messages)
    first = next((i for i, message in enumerate(messages) if message.role == "assistant"), head)
    return messages[:head] + messages[first:]


def _orphan_at_start(messages: list[Message], _rng: Random) -> list[Message]:
    sound = batches(messages)
    return messages[: _head(messages)] + messages[sound[0].call + 1 :] if sound else messages


def _unknown_result(messages: list[Message], rng: Random) -> list[Message]:
    unknown = ids.derived_call_id(len(messages), b"unknown", rng.randbytes(8))
    orphan = ToolCallResult(tool_call_id=unknown, result="whose answer is this?")
    sound = batches(messages)
    if sound and rng.random() < 0.5:
        return _answered_also(messages, rng.choice(sound), orphan, rng)
    at = _edge(messages, rng)
    return [*messages[:at], _tool(orphan, at, rng), *messages[at:]]


def _repeated_call_id(messages: list[Message], rng: Random) -> list[Message]:
    sound = batches(messages)
    if len(sound) < 2:
        return messages
    earlier, later = sorted(rng.sample(sound, 2))
    taken = rng.choice(messages[earlier.call].tool_calls).id
    own = rng.choice(messages[later.call].tool_calls).id
    span = [renamed(message, own, taken) for message in messages[later.call : later.end]]
    return [*messages[: later.call], *span, *messages[later.end :]]


def _blank_message(messages: list[Message], rng: Random) -> list[Message]:
    at = _edge(messages, rng)
    content: Any = rng.choice(("", " ", "\n\t ", "\u3000", (TextPart(text=""),)))
    speak = rng.choice((Message.user, Message.assistant))
    return [*messages[:at], speak(content, **_new(at, rng)), *messages[at:]]


def _partial_results(messages: list[Message], batch: Batch, rng: Random) -> list[Message]:
    calls = messages[batch.call].tool_calls
    lost = rng.sample(calls, rng.randrange(1, len(calls)))
    return without(messages, batch, {call.id for call in lost})


def _no_results(messages: list[Message], batch: Batch, _rng: Random) -> list[Message]:
    return messages[: batch.call + 1] + messages[batch.end :]


def _dangling_call(messages: list[Message], batch: Batch, rng: Random) -> list[Message]:
    messages, spoken = _with_user_after(messages, batch.end, rng)
    return messages[: batch.call + 1] + messages[spoken:]


def _late_result(messages: list[Message], batch: Batch, rng: Random) -> list[Message]:
    late = rng.choice(results(messages, batch))
    rest = without(messages, batch, {late.tool_call_id})
    rest, spoken = _with_user_after(rest, batch.call + 1, rng)
    return [*rest[: spoken + 1], _tool(late, spoken + 1, rng), *rest[spoken + 1 :]]


def _duplicate_result(messages: list[Message], batch: Batch, rng: Random) -> list[Message]:
    return _answered_also(messages, batch, rng.choice(results(messages, batch)), rng)


def _conflicting_result(messages: list[Message], batch: Batch, rng: Random) -> list[Message]:
    first = rng.choice(results(messages, batch))
    return _answered_also(messages, batch, replace(first, result={"again": first.result}), rng)


def _result_before_call(messages: list[Message], batch: Batch, rng: Random) -> list[Message]:
    early = rng.choice(results(messages, batch))
    rest = without(messages, batch, {early.tool_call_id})
    return [*rest[: batch.call], _tool(early, batch.call, rng), *rest[batch.call :]]


def _consecutive_assistants(messages: list[Message], batch: Batch, rng: Random) -> list[Message]:
    message = messages[batch.call]
    cut = rng.randrange(1, len(message.tool_calls))
    first = message.replace(tool_calls=message.tool_calls[:cut])
    second = Message.assistant(None, tool_calls=message.tool_calls[cut:], **_new(batch.call + 1, rng))
    return [*messages[: batch.call], first, second, *messages[batch.call + 1 :]]


def _reordered(messages: list[Message], batch: Batch, rng: Random) -> list[Message]:
    start, call = max(batch.call - 1, 0), messages[batch.call]
    span, answers = messages[start : batch.end], batch.end - batch.call - 1
    sound = {message.id for message in span[-answers:]}
    while sound == {message.id for message in span[span.index(call) + 1 :][:answers]}:
        rng.shuffle(span)
    return [*messages[:start], *span, *messages[batch.end :]]


_OF_THE_WHOLE: dict[Fault, Callable[[list[Message], Random], list[Message]]] = {
    Fault.ASSISTANT_FIRST: _assistant_first,
    Fault.ORPHAN_AT_START: _orphan_at_start,
    Fault.UNKNOWN_RESULT: _unknown_result,
    Fault.REPEATED_CALL_ID: _repeated_call_id,
    Fault.BLANK_MESSAGE: _blank_message,
}
_OF_A_BATCH: dict[Fault, Callable[[list[Message], Batch, Random], list[Message]]] = {
    Fault.PARTIAL_RESULTS: _partial_results,
    Fault.NO_RESULTS: _no_results,
    Fault.DANGLING_CALL: _dangling_call,
    Fault.LATE_RESULT: _late_result,
    Fault.DUPLICATE_RESULT: _duplicate_result,
    Fault.CONFLICTING_RESULT: _conflicting_result,
    Fault.RESULT_BEFORE_CALL: _result_before_call,
    Fault.CONSECUTIVE_ASSISTANTS: _consecutive_assistants,
    Fault.REORDERED: _reordered,
}
_OF_PARALLEL_CALLS = (Fault.PARTIAL_RESULTS, Fault.CONSECUTIVE_ASSISTANTS)


def _new(at: int, rng: Random) -> MessageStamp:
    return stamp(at, b"planted", rng.randbytes(8))


def _tool(result: ToolCallResult, at: int, rng: Random) -> Message:
    return Message.tool([result], **_new(at, rng))


def _head(messages: Sequence[Message]) -> int:
    """Count the leading system messages."""
    return next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))


def _edge(messages: Sequence[Message], rng: Random) -> int:
    """Pick a position between turns: before a user message other than the first, or at the end."""
    head = _head(messages)
    users = [i for i, message in enumerate(messages) if message.role == "user" and i > head]
    return rng.choice([*users, len(messages)])


def _with_user_after(messages: list[Message], start: int, rng: Random) -> tuple[list[Message], int]:
    """Return the position of the next user message; append one if there is none."""
    for i in range(start, len(messages)):
        if messages[i].role == "user":
            return messages, i
    return [*messages, Message.user("Never mind.", **_new(len(messages), rng))], len(messages)


def _answered_also(
    messages: list[Message], batch: Batch, result: ToolCallResult, rng: Random
) -> list[Message]:
    """Add a result to a batch, in its last tool message or in one more."""
    last = messages[batch.end - 1]
    if rng.random() < 0.5:
        added = [last.replace(tool_results=(*last.tool_results, result))]
    else:
        added = [last, _tool(result, batch.end, rng)]
    return [*messages[: batch.end - 1], *added, *messages[batch.end :]]
