"""Fitting: takes one provider's document and returns it valid and within a budget.

There is no session and no next request, so the window fills the budget. A document that is already valid
and within the budget is returned unchanged. Any other document becomes messages, then a window, then a
document again, with the same shape and the same fields. The output is validated and counted once more, since
a provider's format can add tokens that the window does not know of.

A program that has only a list fits it before every call, and most of it was there the last time. So a
`Fitted` holds what was parsed and counted, and the next call reuses that where the content is the same, if
the `Fitted` is passed as `previous`. The result does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import UNSET, Struct, UnsetType, structs, to_builtins

from .. import formats, strict_json, wire_text
from ..errors import ContextOverflow
from ..formats import mended, rendered
from ..formats.port import Format, Violation
from ..formats.replies.reply import plain
from ..message import Message
from ..part import Native
from ..tokens import Count, Counter, Estimator, ExactCounter, tools_cost
from ..tokens.cost import REPLY_START, Meter
from ..tokens.counter import Quality, weaker
from ..toolspec import ToolSpec
from ..value import check_kind
from .live_window import Making, output_limits
from .manager import StateManager
from .policy import Budget, OutputLimits, Policy
from .preface import OPENER, Preface
from .tally import Tally
from .turns import Repair
from .window import Window

__all__ = ["FILL", "Fitted", "fit", "fitted", "fitted_document"]

T = TypeVar("T")

FILL = 1.0
"""The share of the budget that a cut fills: all of it, since there is no next request to leave room for."""


_Counted = tuple[Message, int, Quality]


class _Reader:
    """Parses and counts versions of one document without parsing or counting unchanged messages again."""

    def __init__(self, format: Format) -> None:
        self.parse = format.parser().parse
        self._counts: tuple[Counter | None, dict[str, _Counted]] = (None, {})

    def count(self, messages: Sequence[Message], tools: Sequence[ToolSpec], counter: Counter) -> Count:
        """Count the tokens of messages if they were sent unchanged, as `StateManager.count` does."""
        meter, (former, known), counted = Meter(counter), self._counts, dict[str, _Counted]()
        if former != counter or not isinstance(counter, ExactCounter | Estimator):
            known = {}  # other counters, such as calibrated ones, may count differently by now
        tokens, quality = REPLY_START, meter.quality
        for message in messages:
            found = known.get(message.id)
            if found is None or found[0] is not message:
                meter.quality = "exact"
                found = (message, meter.message(message), meter.quality)
            counted[message.id] = found
            tokens, quality = tokens + found[1], weaker(quality, found[2])
        self._counts = (counter, counted)
        return Count(tokens, quality) + tools_cost(tools, counter)


class _Memory:
    """What was read and written so far. Any two are equal, so comparisons of `Fitted` ignore it."""

    def __init__(self, format: Format) -> None:
        self.format = format
        self.given, self.written = _Reader(format), _Reader(format)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Memory)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "…"


class Fitted(Struct, frozen=True, kw_only=True):
    """A document that fits, and what was done to make it fit.

    ``violations`` lists what the provider would have rejected, ``repairs`` what was done about it; ``hidden``
    and ``reduced`` name the calls whose output is not shown whole. Ids are those of the document, if it has
    any. ``window`` is None if nothing had to be done. ``memory`` speeds up the next call if this value is
    passed to it as `previous`.
    """

    payload: Any
    before: Count
    after: Count
    violations: tuple[Violation, ...] = ()
    repairs: tuple[Repair, ...] = ()
    hidden: tuple[str, ...] = ()
    reduced: tuple[str, ...] = ()
    window: Window | None = None
    memory: Any = None

    def to_json(self) -> dict[str, Any]:
        """Return what was done, and why, as plain JSON."""
        report = self.window.report if self.window else None
        return {
            "changed": self.window is not None,
            "tokens_before": self.before.tokens,
            "tokens_after": self.after.tokens,
            "quality": self.after.quality,
            "usage": report.usage if report else None,
            "events": list(report.events) if report else [],
            "evicted_messages": report.evicted if report else 0,
            "summary": self.window.view.summary if self.window else None,
            "hidden": list(self.hidden),
            "reduced": list(self.reduced),
            "violations": [to_builtins(violation) for violation in self.violations],
            "repairs": [to_builtins(repair) for repair in self.repairs],
        }


def fitted_document(
    payload: Any,
    format: Format,
    manager: StateManager,
    budget: Budget,
    *,
    previous: Fitted | None = None,
) -> Fitted:
    """Make a document fit, or raise `ContextOverflow` or `InvalidConversation` and change nothing."""
    memory = previous.memory if previous else None
    if not (isinstance(memory, _Memory) and memory.format is format):
        memory = _Memory(format)
    document = _Fitted(payload, format, memory.given)
    before = memory.given.count(document.messages, document.tools, manager.counter)
    if before.tokens <= budget.limit and not document.violations:
        return Fitted(payload=payload, before=before, after=before, memory=memory)
    reduces = before.tokens > budget.limit  # a document that fits needs repairs only
    added = 0
    while True:
        window = _window(document, manager, budget.limit, added, reduces=reduces)
        written = document.written(window.messages)
        after = memory.written.count(memory.written.parse(written), format.tools(written), manager.counter)
        if after.tokens <= budget.limit:
            break
        added += max(added, after.tokens - budget.limit)
    repairs = (*window.report.repairs, *document.filled_in(window), *document.defined(written))
    return Fitted(
        payload=written,
        before=before,
        after=after,
        violations=tuple(document.violations),
        repairs=tuple(Repair(document.name(repair.id), repair.text) for repair in repairs),
        hidden=document.calls_answered_by(window.report.hidden),
        reduced=document.calls_answered_by(window.report.reduced),
        window=window,
        memory=memory,
    )


def fit(
    messages: T,
    budget: Budget | int,
    *,
    format: str | None = None,
    counter: Counter | str = "o200k_base",
    policy: Policy | None = None,
    previous: Fitted | None = None,
) -> T:
    """Return a provider's messages in their original format, valid and within a budget of tokens.

    `messages` is the list that you would pass to the SDK, or the whole request; it is not modified. Its
    format is detected unless you name it. Raise `ContextOverflow` if even the newest exchange does not fit.
    `previous` is a result of `fitted`; what it has in common with `messages` is not parsed or counted again.
    """
    result: T = fitted(
        messages, budget, format=format, counter=counter, policy=policy, previous=previous
    ).payload
    return result


def fitted(
    messages: Any,
    budget: Budget | int,
    *,
    format: str | None = None,
    counter: Counter | str = "o200k_base",
    policy: Policy | None = None,
    previous: Fitted | None = None,
) -> Fitted:
    """Return the result of `fit` as `payload`, with a report; pass it to the next call as `previous`."""
    check_kind("fit(previous)", previous, Fitted, optional=True)
    limits = budget if isinstance(budget, Budget) else Budget(budget)
    is_json = strict_json.is_plain(messages)
    payload = messages if is_json else plain(messages)
    target = formats.detect(payload) if format is None else formats.get(format)
    manager = StateManager(counter, policy or Policy(low_water=FILL))
    result = fitted_document(payload, target, manager, limits, previous=previous)
    if result.window is None:
        return structs.replace(result, payload=messages)
    data = {} if is_json else dict(_bytes_in(messages))
    return structs.replace(result, payload=_with_bytes(result.payload, data)) if data else result


def _bytes_in(value: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the bytes objects in an SDK's input, each with the text that replaces it in a document."""
    if isinstance(value, bytes):
        yield plain(value), value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _bytes_in(item)


def _with_bytes(value: Any, data: Mapping[str, bytes]) -> Any:
    if isinstance(value, dict):
        return {key: _with_bytes(item, data) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_bytes(item, data) for item in value]
    return data.get(value, value) if isinstance(value, str) else value


class _Fitted:
    """A provider's document: its messages, its tools, and the shape to write it back in."""

    def __init__(self, payload: Any, format: Format, reader: _Reader) -> None:
        self.payload, self.format = payload, format
        self.messages = reader.parse(payload)
        self.tools = tuple(format.tools(payload))
        self.request = not format.validate(payload, request=True)
        self.violations = [] if self.request else format.validate(payload)
        calls = (call for message in self.messages for call in message.tool_calls)
        self._names: dict[str, str] = {call.id: call.provider_id or call.id for call in calls}

    def window(self, manager: StateManager, limit: int, *, reduces: bool) -> Window:
        """Make the window of the document; a summary already in it is folded into the new one."""
        limits = output_limits(limit, (), manager.policy) if reduces else OutputLimits.unlimited()
        tally = Tally.of(self.messages, manager.counter, limits, shared=True)
        return Making(tally, limit, manager.policy, Preface(tools=self.tools), ()).window()

    def written(self, messages: Sequence[Message]) -> Any:
        """Write messages as a document of the same shape, valid as a request if the original was."""
        kept = self._enveloped(messages)
        if isinstance(self.payload, list) and self.format.rendering(kept).list_key is None:
            kept = self._enveloped(map(_spoken, messages))
        return self._in_order(rendered(kept, self.format, request=self.request).document)

    def defined(self, written: Any) -> Iterator[Repair]:
        """Yield the tools that the document used without a definition and that the provider requires."""
        known = {tool.name for tool in self.tools}
        for tool in self.format.tools(written):
            if tool.name not in known:
                yield Repair(tool.name, "the least definition is added")

    def filled_in(self, window: Window) -> Iterator[Repair]:
        """Yield what was added in place of something missing, beyond what the window's report lists."""
        if OPENER in window.messages:
            yield Repair(OPENER.id, "the user's question is missing; a line takes its place")
        results = (one for message in self.messages for one in message.tool_results)
        answered: set[str] = {one.tool_call_id for one in results}
        answered |= {repair.id for repair in window.report.repairs}
        for message in window.messages:
            for one in message.tool_results:
                if one.tool_call_id not in answered:
                    yield Repair(one.tool_call_id, "a call that is still open is answered as still running")

    def name(self, id: str) -> str:
        """Return the document's own id of a call; any other id is returned as is."""
        return self._names.get(id, id)

    def calls_answered_by(self, ids: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the calls that these messages answer."""
        some = set(ids)
        answers = (message.tool_results for message in self.messages if message.id in some)
        return tuple(self.name(one.tool_call_id) for results in answers for one in results)

    def _enveloped(self, messages: Iterable[Message]) -> list[Message]:
        """Put the document's own fields on the first remaining message, and on no other."""
        kept = [_with_envelope(message, UNSET, self.format.name) for message in messages]
        if kept and self.messages and (native := self.messages[0].native):
            kept[0] = mended(_with_envelope(kept[0], native.envelope, self.format.name))[0]
        return kept

    def _in_order(self, written: Any) -> Any:
        """Restore the original order of the fields of an object."""
        if not (isinstance(written, dict) and isinstance(self.payload, dict)):
            return written
        return {key: written[key] for key in [*self.payload, *written] if key in written}


def _window(document: _Fitted, manager: StateManager, limit: int, added: int, *, reduces: bool) -> Window:
    """Make a window that leaves room for what the provider's format adds to it."""
    try:
        return document.window(manager, max(1, limit - added), reduces=reduces)
    except ContextOverflow as error:
        numbers = {"question": error.question, "last": error.last}
        raise ContextOverflow(error.text, limit=limit, preface=error.preface + added, **numbers) from None


def _with_envelope(message: Message, envelope: dict[str, Any] | UnsetType | None, format: str) -> Message:
    native = message.native or Native(format=format)
    if native.envelope is envelope:
        return message
    return structs.replace(message, native=structs.replace(native, envelope=envelope))


def _spoken(message: Message) -> Message:
    """Return a system message as a user message, for providers that keep `system` outside the list."""
    if message.role != "system":
        return message
    return Message.user(wire_text.notice(message.text), id=message.id, timestamp=message.timestamp)
