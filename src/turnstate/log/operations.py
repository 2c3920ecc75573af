"""Operations: everything that a person can do to a conversation, written once and without I/O.

An operation is a generator. It yields the reads that it needs and is sent their answers, and it returns an
`Effect`: the entries to write, and a branch to create or select. `session.operate` runs it on a store and
writes the effect as one change; `log.memory_log` runs it on a log in memory. So a session and a conversation
without one do the same, and what an operation reads does not depend on the length of the conversation.

Here are the reads and what all operations use, and the operations that write entries at the head. Tangents
are in `log.tangents`, and going back is in `log.undo`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from ..context.calls import KnownCalls, unknown_calls
from ..context.cut import cleared
from ..context.turns import note
from ..entry import CANCELLED, Answer, Cut, Entry, FileLines, ModelChange, Revert, SettingsChange
from ..errors import NotFound
from ..ids import MessageId
from ..message import Message
from ..stores.values import MESSAGE, BranchRow, Fork, Position, Span
from .fold import open_calls
from .path import CUTS, END, between, spans

T = TypeVar("T")

FEW, MANY = 8, 500
"""The rows of the first and of the largest page of a walk: a round of calls is short, a turn may be long."""

SHOWN = (MESSAGE, "answer")
"""The kinds of entries that are shown as messages."""


class Placed(NamedTuple):
    """An entry and its place in the log; ``entry`` is None if it is damaged."""

    branch: int
    seq: int
    id: str
    kind: str
    entry: Entry | None

    @property
    def place(self) -> Position:
        """The position of the entry."""
        return Position(self.branch, self.seq)

    @property
    def message(self) -> Message | None:
        """The message that shows the entry, if any."""
        return self.entry.message if isinstance(self.entry, Answer) else _message(self.entry)


def _message(entry: Entry | None) -> Message | None:
    return entry if isinstance(entry, Message) else None


class Branches(NamedTuple):
    """Read all branches, in the order of their creation: a list of `BranchRow`."""


class Slice(NamedTuple):
    """Read the first or the newest entries of a span, in order: a list of `Placed`."""

    span: Span
    limit: int | None
    newest: bool = False
    kinds: tuple[str, ...] | None = None


class Newest(NamedTuple):
    """Read the newest entry of each kind on a path: `Placed` by kind."""

    path: tuple[Span, ...]
    kinds: tuple[str, ...]


class Find(NamedTuple):
    """Read the entries with these ids, on any branch: a list of `Placed`."""

    ids: tuple[str, ...]


Read = Branches | Slice | Newest | Find
Steps = Generator[Read, Any, T]
"""Yields reads, is sent their answers, and returns a value."""


class Here(Struct, frozen=True):
    """Where an operation begins: the conversation, its head, and the time in milliseconds."""

    id: str
    head: Position
    now: int = 0


class Effect(Struct, frozen=True):
    """What an operation changes, as a whole or not at all, and what it returns.

    The entries are written at the head, or on the branch that is created or selected, which ends at
    ``after``. ``again`` means that this is only the first change: run the operation again after it.
    """

    result: Any = None
    entries: tuple[Entry, ...] = ()
    fork: Fork | None = None
    select: int | None = None
    after: Position | None = None
    again: bool = False

    @property
    def is_nothing(self) -> bool:
        """True if there is nothing to write."""
        return not self.entries and self.fork is None and self.select is None


Operation = Callable[[Here], Steps[Effect]]


def branches() -> Steps[dict[int, BranchRow]]:
    """Return all branches by their number."""
    found: list[BranchRow] = yield Branches()
    return {branch.id: branch for branch in found}


def path_to(head: Position) -> Steps[list[Span]]:
    """Return the spans that lead to a head, newest first; the first branch needs no read."""
    if head.branch == 1:
        return [Span(1, 1, head.seq)] if head.seq else []
    return spans((yield from branches()).values(), head)


def newest(path: Iterable[Span], *kinds: str) -> Steps[Mapping[str, Placed]]:
    """Return the newest entry of each kind on a path."""
    found: dict[str, Placed] = yield Newest(tuple(path), kinds)
    return found


def tip(branch: BranchRow) -> Steps[Position]:
    """Return the position of the last entry of a branch, or of the entry that it forked after."""
    last: list[Placed] = yield Slice(Span(branch.id, branch.fork_seq + 1, END), 1, newest=True)
    return Position(branch.id, last[0].seq if last else branch.fork_seq)


def at(path: Sequence[Span], number: int) -> Steps[Placed | None]:
    """Return the entry of a path with a number."""
    for span in between(path, number, number):
        found: list[Placed] = yield Slice(span, 1)
        return found[0] if found else None
    return None


def entry(here: Here, id: str) -> Steps[Placed]:
    """Return the entry with an id, on any branch; raise `NotFound` if there is none."""
    found: list[Placed] = yield Find((id,))
    if not found:
        raise NotFound(f"session {here.id} has no entry {id:.80}")
    return found[0]


class Walk:
    """A walk along a path, from its newest entry back, in pages that grow."""

    def __init__(
        self, path: Iterable[Span], *, kinds: tuple[str, ...] | None = None, page: int = FEW
    ) -> None:
        """Begin at the newest entry; pass a larger page if many entries are wanted for sure."""
        self._left, self._kinds, self._page = list(path), kinds, min(page, MANY)

    def page(self) -> Steps[list[Placed]]:
        """Return the next entries, the newest first; none at the root."""
        while self._left:
            span = self._left[0]
            found: list[Placed] = yield Slice(span, self._page, newest=True, kinds=self._kinds)
            if len(found) < self._page:
                self._left.pop(0)
            else:
                self._left[0] = span._replace(last=found[0].seq - 1)
            self._page = min(2 * self._page, MANY)
            if found:
                return found[::-1]
        return []


def back_to(
    path: Iterable[Span], is_enough: Callable[[Placed], bool], *, kinds: tuple[str, ...] | None = None
) -> Steps[list[Placed]]:
    """Return the newest entries of a path in order, back to the one that is enough or to the root.

    With `kinds`, only entries of these kinds are read; messages are never among them.
    """
    walk, found = Walk(path, kinds=kinds), list[Placed]()
    while page := (yield from walk.page()):
        for one in page:
            found.append(one)
            if is_enough(one):
                return found[::-1]
    return found[::-1]


def of_kind(path: Iterable[Span], kind: str) -> Steps[list[Placed]]:
    """Return all entries of a kind on a path, in order."""
    return (yield from back_to(path, lambda _: False, kinds=(kind,)))


def messages(found: Iterable[Placed]) -> list[Message]:
    """Return the messages among entries."""
    return [message for one in found if (message := one.message)]


# Rounds: where a path may end, and which calls await results there.


class LastRound:
    """Where a path may end: after any message, but not between calls and their answers.

    Pass the entries to `add` from the last one back, until the round is complete: a run of assistant messages
    and the answers after it.
    """

    def __init__(self) -> None:
        self._first: Placed | None = None
        self._calls, self._answered = set[str](), set[str]()
        self._asked = False

    def is_before(self, one: Placed) -> bool:
        """Add an earlier entry; return True if it belongs to an earlier round."""
        message = one.message
        if message is None:
            return False
        if message.role == "user" or (message.role == "tool" and self._asked):
            return True
        self._asked = self._asked or message.role == "assistant"
        self._answered.update(result.tool_call_id for result in message.tool_results)
        if message.tool_calls:
            self._calls.update(call.id for call in message.tool_calls)
            self._first = one
        return False

    @property
    def open_from(self) -> Placed | None:
        """The first entry of the round that calls tools, if any call has no answer."""
        return None if self._calls <= self._answered else self._first


def end_of(here: Here, id: str, *, exact: bool = False) -> Steps[Position]:
    """Return the place after a message; inside a round of calls and answers, the place before the round.

    With `exact`, it is the place after the message in any case. Reads the round.
    """
    one = yield from entry(here, id)
    if exact:
        return one.place
    last = LastRound()
    yield from back_to((yield from path_to(one.place)), last.is_before)
    begun = last.open_from
    return Position(begun.branch, begun.seq - 1) if begun else one.place


def last_round(path: Iterable[Span]) -> Steps[list[Message]]:
    """Return the messages of the last round of a path; reads nothing else but the entry before it."""
    return messages((yield from back_to(path, LastRound().is_before)))


def known_calls(path: Sequence[Span], asked: Sequence[Message]) -> Steps[KnownCalls]:
    """Return the calls that messages refer to, with their results; reads back to the oldest of the calls."""
    known = KnownCalls()

    def is_enough(one: Placed) -> bool:
        message = one.message
        if message is None or isinstance(one.entry, Answer):
            return False
        known.recall(message)
        return bool(message.tool_calls) and not unknown_calls(known, asked)

    yield from back_to(path, is_enough)
    return known


# Operations that write at the head.


def write(*entries: Entry) -> Operation:
    """Write entries; reads nothing."""

    def steps(_: Here) -> Steps[Effect]:
        yield from ()
        return Effect(entries=entries)

    return steps


def set_model(change: ModelChange) -> Operation:
    """Change the model, unless it is in force; reads the newest model."""

    def steps(here: Here) -> Steps[Effect]:
        known = (yield from newest((yield from path_to(here.head)), "model")).get("model")
        if known and known.entry == change:
            return Effect()
        return Effect(entries=(change,))

    return steps


def settings(here: Here) -> Steps[tuple[SettingsChange | None, ModelChange | None]]:
    """Return the newest settings and the newest model."""
    found = yield from newest((yield from path_to(here.head)), "settings", "model")
    known = {kind: one.entry for kind, one in found.items()}
    fields, model = known.get("settings"), known.get("model")
    return (
        fields if isinstance(fields, SettingsChange) else None,
        model if isinstance(model, ModelChange) else None,
    )


def change_settings(
    change: Callable[[SettingsChange | None, ModelChange | None], Sequence[Entry]],
) -> Operation:
    """Write what `change` makes of the newest settings and model, which is all that is read."""

    def steps(here: Here) -> Steps[Effect]:
        return Effect(entries=tuple(change(*(yield from settings(here)))))

    return steps


def record_lines(records: Mapping[str, dict[str, Any] | None]) -> Operation:
    """Write what is known about files; reads nothing: the tracker knows which records are new."""
    return write(*(FileLines(path, record) for path, record in records.items()))


def clear() -> Operation:
    """Hide history, summary and next message behind a cut; the log keeps all of it, and undo shows it again.

    Reads the cut in force, the last round, and the first and last words.
    """

    def steps(here: Here) -> Steps[Effect]:
        path = yield from path_to(here.head)
        marks = yield from newest(path, MESSAGE, "answer", *CUTS)
        standing = yield from cut_in_force(path, marks)
        said = max((marks[kind].seq for kind in SHOWN if kind in marks), default=0)
        if said == 0 if standing is None else is_clear(standing.entry) and said < standing.seq:
            return Effect(result=False)
        newest_round = yield from last_round(path)
        given = [Answer.give(call.id, CANCELLED) for call in open_calls(newest_round)]
        first = yield from _first_words(path)
        last = yield from _last_words(path)
        shown = [*newest_round, *(answer.message for answer in given if answer.message)]
        if late := _late_note(shown):
            last = late.id
        cut = cleared(first or MessageId(""), last or MessageId(""), here.head.seq + len(given))
        return Effect(result=True, entries=(*given, cut))

    return steps


def _first_words(path: Sequence[Span]) -> Steps[MessageId | None]:
    """Return the id of the first message of a user or an assistant."""
    limit = FEW
    for span in reversed(path):
        while span.first <= span.last:
            found: list[Placed] = yield Slice(span, limit)
            for message in messages(found):
                if message.role in ("user", "assistant"):
                    return message.id
            if len(found) < limit:
                break
            span, limit = span._replace(first=found[-1].seq + 1), min(2 * limit, MANY)  # noqa: PLW2901
    return None


def _last_words(path: Sequence[Span]) -> Steps[MessageId | None]:
    """Return the id of the last message of a user or an assistant."""

    def is_said(one: Placed) -> bool:
        return (message := one.message) is not None and message.role in ("user", "assistant")

    said = messages((yield from back_to(path, is_said)))
    return said[0].id if said and said[0].role in ("user", "assistant") else None


def _late_note(said: Sequence[Message]) -> Message | None:
    """Return the note that shows a late result if the last message brought one."""
    if not said or said[-1].role != "tool":
        return None
    awaited = {call.id for call in open_calls(said[:-1])}
    results = enumerate(said[-1].tool_results)
    late = [note(said[-1], one, number) for number, one in results if one.tool_call_id not in awaited]
    return late[-1] if late else None


def is_clear(entry: Entry | None) -> bool:
    """Return True if an entry is the cut of a clearing."""
    return isinstance(entry, Cut) and entry.asked.get("operation") == "clear"


def cut_in_force(path: Sequence[Span], marks: Mapping[str, Placed] | None = None) -> Steps[Placed | None]:
    """Return the newest cut of a path that was not reverted; passing `marks` saves a read."""
    known = (yield from newest(path, *CUTS)) if marks is None else marks
    mark = max((known[kind] for kind in CUTS if kind in known), key=lambda one: one.seq, default=None)
    if mark is not None and isinstance(mark.entry, Revert):  # a revert names the cut that holds again
        return (yield from at(path, mark.entry.former)) if mark.entry.former else None
    return mark
