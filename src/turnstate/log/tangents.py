"""Tangents: side conversations that lead back to the main one, with nothing copied and nothing lost.

    main     U A U A ─────────────────────── U A      continues where it was
                    └─ tangent  U A U A               kept, and can be reopened

A tangent is a branch. It sees the main conversation as it was when the tangent began. Leaving it selects the
branch on which it began and writes there what is brought back, in one change: nothing, the last exchange, or
a summary of all exchanges.

A rewind or a restore in a tangent creates another branch of it. So the innermost tangent of a branch is found
by following the parents, and the tangent's exit names the branch on which it was left.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, Struct

from .. import ids
from ..context.digest import digest
from ..context.digest_text import text
from ..entry import LEFT, Answer, Checkpoint, Cut, Entry, Revert, Tangent
from ..errors import InputError, NotFound
from ..ids import CallId, MessageId
from ..message import Message
from ..stores.values import MESSAGE, BranchRow, Fork, Position, Span
from ..tokens import counter
from ..value import Extra, refuse
from .fold import open_calls
from .operations import (
    FEW,
    MANY,
    Effect,
    Here,
    Operation,
    Placed,
    Slice,
    Steps,
    Walk,
    back_to,
    branches,
    end_of,
    entry,
    is_clear,
    last_round,
    messages,
    newest,
    of_kind,
    tip,
)
from .path import END, between, spans

TANGENT = "tangent"
"""The kind of entries that begin and end tangents, and the operation of their branches."""

RETURNED = "[Back from a tangent. What was found there:]\n{summary}"
SUMMARY_TOKENS = 500
LONGEST_OPENING = 200
"""Maximum characters of a tangent's first words in the entry that ends it: one line of a list."""

Bring = Literal["tail", "summary"]

Branches = Mapping[int, BranchRow]


class KeptTangent(Struct, frozen=True, kw_only=True):
    """A tangent that was left and can be reopened: when it began, and the user's first words in it."""

    name: str
    started: int
    opening: str


def innermost(known: Branches, branch: int) -> BranchRow | None:
    """Return the innermost tangent that a branch belongs to, if any."""
    row = known.get(branch)
    while row is not None and row.operation != TANGENT:
        row = known.get(row.parent) if row.parent is not None else None
    return row


def around(known: Branches, branch: int) -> list[BranchRow]:
    """Return the tangents that contain a branch, the innermost first."""
    found = list[BranchRow]()
    while (tangent := innermost(known, branch)) is not None and tangent.former is not None:
        found.append(tangent)
        branch = tangent.former
    return found


def begin(at: str | None = None, *, files: Checkpoint | None = None) -> Operation:
    """Begin a tangent at the head, or after an earlier message of the path; return its name.

    At the head, nothing is read; else the message's round is. `files` is a checkpoint of the files at its
    beginning.
    """

    def steps(here: Here) -> Steps[Effect]:
        place = here.head
        if at is not None:
            yield from _on_path(here, at)
            place = yield from end_of(here, at)
        name = str(ids.message_id())
        fork = Fork(parent=place.branch, seq=place.seq, name=name, operation=TANGENT)
        started = Tangent(name=name, started=max(1, here.now))
        entries = (started, files) if files else (started,)
        return Effect(result=name, entries=entries, fork=fork, after=place)

    return steps


def _on_path(here: Here, id: str) -> Steps[None]:
    """Raise `NotFound` unless a message is on the path to the head."""
    one = yield from entry(here, id)
    path = spans((yield from branches()).values(), here.head)
    if one.message is None or not any(one.branch == span.branch for span in between(path, one.seq, one.seq)):
        raise NotFound(f"session {here.id}: there is no message {id:.80} on this path")


def leave(bring: Bring | None = None, summary: str | None = None) -> Operation:
    """Leave the tangent and bring something back; return its name, or None outside of a tangent.

    Reads the tangent's first words, and for the tail its last round and the question that opened it, for a
    digest the whole tangent.
    """
    if bring not in (None, "tail", "summary"):
        refuse("bring", bring, "None, 'tail' or 'summary'")
    if summary is not None and bring != "summary":
        raise InputError("a summary is given, so pass bring='summary'")

    def steps(here: Here) -> Steps[Effect]:
        known = yield from branches()
        tangent = innermost(known, here.head.branch)
        if tangent is None or tangent.former is None:
            return Effect()
        return (yield from left(here, known, tangent, bring, summary))

    return steps


def left(
    here: Here, known: Branches, tangent: BranchRow, bring: Bring | None = None, summary: str | None = None
) -> Steps[Effect]:
    """Return the change that leaves the tangent of the head; an empty tangent leaves no trace."""
    path = spans(known.values(), here.head)
    own = between(path, tangent.fork_seq + 1, END)
    former = known[tangent.former or 1]
    back = yield from tip(former)
    if not (yield from newest(own, MESSAGE)):
        return Effect(result=tangent.name, select=former.id, after=back)
    exit = Tangent(name=tangent.name, branch=here.head.branch, opening=(yield from _opening(own)))
    brought: Sequence[Entry] = ()
    if bring == "tail":
        brought = yield from _tail(path, tangent.fork_seq, spans(known.values(), back))
    elif bring == "summary":
        words = summary if summary is not None else _digested((yield from said(own)))
        brought = [Message.user(RETURNED.format(summary=words))] if words.strip() else []
    return Effect(result=tangent.name, entries=(exit, *brought), select=former.id, after=back)


def said(own: Iterable[Span]) -> Steps[list[Message]]:
    """Return all messages of a part of a path."""
    return messages((yield from back_to(own, lambda _: False)))


def _opening(own: Iterable[Span]) -> Steps[str]:
    """Return the user's first words in a tangent, in one line."""
    limit = FEW
    for span in reversed(list(own)):
        while span.first <= span.last:
            found: list[Placed] = yield Slice(span, limit)
            for message in messages(found):
                if message.role == "user":
                    return " ".join(message.text[: 2 * LONGEST_OPENING].split())[:LONGEST_OPENING]
            if len(found) < limit:
                break
            span, limit = span._replace(first=found[-1].seq + 1), min(2 * limit, MANY)  # noqa: PLW2901
    return ""


def _digested(messages: list[Message]) -> str:
    return text(digest(messages), SUMMARY_TOKENS, counter("o200k_base"), "{summary}")


# The tail: the last exchange, as new messages that can stand alone.


class _Exchange:
    """The newest exchange of a path, read from its end back: what came before it is in `calls`.

    An exchange ends with the assistant's message, and a clearing hides the user's side before it.
    """

    def __init__(self) -> None:
        self.last: Message | None = None
        self.number = 0  # of the last message
        self.user = list[Message]()
        self.calls: Message | None = None  # the assistant's message before it, which may have asked for tools
        self.given = set[MessageId]()  # messages that show answers of the core
        self._reverted = set[str]()

    def _is_clearing(self, entry: Entry | None) -> bool:
        return isinstance(entry, Cut) and is_clear(entry) and entry.id not in self._reverted

    def is_enough(self, one: Placed) -> bool:
        """Add an earlier entry; return True at the end of the exchange before."""
        if isinstance(one.entry, Revert):
            self._reverted.add(one.entry.cut)
        message = one.message
        if message is None:
            return self.last is not None and self._is_clearing(one.entry)
        if isinstance(one.entry, Answer):
            self.given.add(message.id)
        if message.role == "assistant":
            if self.last is not None:
                self.calls = message
                return True
            self.last, self.number = message, one.seq
        elif self.last is not None and message.role != "system":
            self.user.insert(0, message)
        return False


def _tail(path: Sequence[Span], begun: int, back: Sequence[Span]) -> Steps[list[Message | Answer]]:
    """Return the last exchange of a tangent as new, self-contained messages that name their origins.

    If it answers tool results, their calls and the question that opened the turn are included. Messages that
    are already pending where the tangent leads back to are left out.
    """
    exchange = _Exchange()
    read = yield from back_to(path, exchange.is_enough)
    last = exchange.last
    if last is None or exchange.number <= begun:
        return []
    pending = yield from back_to(back, _is_reply)
    there = {message.id for message in messages(pending) if message.role != "assistant"}
    found = [*_beyond(exchange.user, there), last]
    answered = {result.tool_call_id for message in found for result in message.tool_results}
    awaited = {call.id for call in open_calls((yield from last_round(back)))}
    if not answered <= awaited and exchange.calls is not None:
        question = yield from _question(between(path, 1, read[0].seq - 1))
        answers = _answers(exchange.user, exchange.calls)
        found = [*_beyond(question, there), exchange.calls, *answers, last]
    return list(_copied(found, exchange.given))


def _is_reply(one: Placed) -> bool:
    return (message := one.message) is not None and message.role == "assistant"


def _question(path: Iterable[Span]) -> Steps[list[Message]]:
    """Return the user's messages that opened the turn which goes on at the end of a path."""
    words, walk = list[Message](), Walk(path)
    while page := (yield from walk.page()):
        for message in messages(page):
            if message.role == "user":
                words.insert(0, message)
            elif message.role == "assistant" and words:
                return words
    return words


def _beyond(messages: Iterable[Message], there: Container[MessageId]) -> list[Message]:
    return [message for message in messages if message.id not in there]


def _answers(user: Iterable[Message], calls: Message) -> list[Message]:
    """Return the user's side with only the results of these calls."""
    known = {call.id for call in calls.tool_calls}
    found = list[Message]()
    for message in user:
        results = [one for one in enumerate(message.tool_results) if one[1].tool_call_id in known]
        if message.role == "user" or results:
            found.append(message.with_results(results) if results else message)
    return found


def _copied(messages: list[Message], given: Container[MessageId]) -> Iterator[Message | Answer]:
    """Copy messages under new ids, each with a note of its origin, and answer calls that have no result."""
    calls = {call.id: ids.call_id() for message in messages for call in message.tool_calls}
    left = set[CallId]()
    for place, message in enumerate([*messages, None]):
        if message is None or message.role != "tool":
            lacking = [call.id for call in open_calls(messages[:place]) if call.id not in left]
            yield from (Answer.give(calls[call], LEFT) for call in lacking)
            left.update(lacking)
        if message is None:
            return
        if message.id in given:
            yield from (
                Answer.give(calls.get(one.tool_call_id, one.tool_call_id), one.result, is_error=one.is_error)
                for one in message.tool_results
            )
        else:
            yield _copy(message, calls)


def _copy(message: Message, calls: Mapping[CallId, CallId]) -> Message:
    extra = dict(message.extra) if message.extra is not UNSET else {}
    return msgspec.structs.replace(
        message,
        id=ids.message_id(),
        tool_calls=tuple(msgspec.structs.replace(call, id=calls[call.id]) for call in message.tool_calls),
        tool_results=tuple(
            msgspec.structs.replace(result, tool_call_id=calls.get(result.tool_call_id, result.tool_call_id))
            for result in message.tool_results
        ),
        extra=Extra({**extra, "origin": message.id}),
    )


# Tangents that were left.


class _Left(Struct, frozen=True):
    """A tangent that was left: its branch, the branch on which it was left last, and its first words."""

    tangent: BranchRow
    branch: int
    opening: str


def kept() -> Operation:
    """Return the tangents that were left, in the order in which they began, and change nothing.

    Reads the branches and the entries that begin and end tangents, and no messages. A restore or a rewind
    goes to another main conversation; the tangents of the former one are listed again when it is undone.
    """

    def steps(here: Here) -> Steps[Effect]:
        known = yield from branches()
        found = yield from _left(known, here.head)
        return Effect(
            result=[
                KeptTangent(name=one.tangent.name, started=one.tangent.created, opening=one.opening)
                for one in found
            ]
        )

    return steps


def open_tangents() -> Operation:
    """Return the names of the tangents that contain the head, the innermost first; reads the branches."""

    def steps(here: Here) -> Steps[Effect]:
        return Effect(result=[one.name for one in around((yield from branches()), here.head.branch)])

    return steps


def reopen(name: str) -> Operation:
    """Go back into a tangent that was left; tangents that do not contain it are left first, one by one."""

    def steps(here: Here) -> Steps[Effect]:
        known = yield from branches()
        opened = around(known, here.head.branch)
        if opened and opened[0].name == name:
            return Effect()
        if all(one.name != name for one in opened):
            kept = yield from _left(known, here.head)
            target = next((one.branch for one in kept if one.tangent.name == name), None)
            if target is None:
                raise NotFound(
                    f"there is no tangent {name:.80}; those that exist are in the list of tangents"
                )
            if not opened or here.head.branch in {one.former for one in around(known, target)}:
                return Effect(select=target)
        away = yield from left(here, known, opened[0])
        return Effect(entries=away.entries, select=away.select, after=away.after, again=True)

    return steps


def _left(known: Branches, head: Position) -> Steps[list[_Left]]:
    """Return the tangents that lead back to the head's branch, to those around it, or to each other."""
    opened = around(known, head.branch)
    names = {one.name for one in opened}
    bases = [head.branch, *(one.former for one in opened if one.former is not None)]
    found = dict[str, _Left]()
    while bases:
        base = bases.pop()
        began = [
            one
            for one in known.values()
            if one.operation == TANGENT and one.former == base and one.name not in names
        ]
        exits = (yield from _exits(known, base)) if began else {}
        for tangent in began:
            exit = exits.get(tangent.name)
            branch = branch_left(known, tangent, exit) if exit else tangent.id
            opening = exit.opening if exit else ""
            bases.append(branch)
            if not opening:  # it was not left, but undone, or left by an older version
                own = between(
                    spans(known.values(), (yield from tip(known[branch]))), tangent.fork_seq + 1, END
                )
                if not exit and not (yield from newest(own, MESSAGE)):
                    continue  # those that began in it may still have messages
                opening = yield from _opening(own)
            found[tangent.name] = _Left(tangent, branch, opening)
    return [found[name] for name in sorted(found)]  # names sort by the time they were created


def branch_left(known: Branches, tangent: BranchRow, exit: Tangent) -> int:
    """Return the branch of a tangent on which it was left; one outside of the tangent does not count."""
    at = innermost(known, exit.branch)
    return exit.branch if at is not None and at.id == tangent.id else tangent.id


def _exits(known: Branches, base: int) -> Steps[dict[str, Tangent]]:
    """Return the newest exit of each tangent that was left to go back to a branch."""
    found, row = dict[str, Tangent](), known[base]
    for one in (yield from of_kind([Span(base, row.fork_seq + 1, END)], TANGENT)):
        if isinstance(one.entry, Tangent) and not (one.entry.started or one.entry.undone):
            found[one.entry.name] = one.entry
    return found
