"""Tangents: aside from the main conversation and back, without copying it and without losing what was said.

    main     U A U A ─────────────────────── U A      goes on where it was
                    └─ tangent  U A U A               kept, and can be taken up again

A tangent sees the main conversation as it was where it began. Leaving it shows the main conversation
exactly as before; on the way out one may bring the last exchange along, or a summary of all of them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import UNSET, Struct

from .. import ids
from ..context.calls import open_calls
from ..context.digest import digest, text
from ..entry import LEFT, Answer, Entry, Tangent
from ..errors import InputError, NotFound
from ..ids import CallId, MessageId
from ..log.fold import LastRound
from ..message import Message
from ..tokens import counter
from ..value import Extra
from .environment import Os
from .history import HistoryEntry, UserMessage
from .timeline import Timeline

__all__ = ["ConversationCheckpoint", "KeptTangent", "Tangents", "tail"]

# The tail of a tangent: its last exchange, to be said again where the tangent leads back to.


def tail(strand: Timeline, back_to: Timeline) -> list[Message | Answer]:
    """Give the last exchange in a form that stands by itself, as new messages that name their origins.

    Where it answers tool results, their calls come along, and the question that opened the turn; but not
    what waits where it goes back to: that is there already.
    """
    if not strand.history.own:
        return []
    last, there = strand.history[-1], {message.id for message in back_to.pending}
    messages = [*_beyond(last.user.messages, there), last.assistant]
    answered = {result.tool_call_id for message in messages for result in message.tool_results}
    if not answered.issubset(call.id for call in back_to.open_calls) and len(strand.history) > 1:
        calls = strand.history[-2].assistant
        messages = [*_beyond(_question(strand), there), calls, *_answers(last, calls), last.assistant]
    given = {one.id for one in strand.decisions if isinstance(one, Answer)}
    return list(_copied(messages, given))


def _beyond(messages: Iterable[Message], there: Container[MessageId]) -> list[Message]:
    return [message for message in messages if message.id not in there]


def _question(strand: Timeline) -> list[Message]:
    """Give the words that opened the turn of the last exchange."""
    for entry in reversed(strand.history[:-1]):
        words = [message for message in entry.user.messages if message.role == "user"]
        if words:
            return words
    return []


def _answers(last: HistoryEntry, calls: Message) -> list[Message]:
    """Give the user's side with the results of these calls alone."""
    known = {call.id for call in calls.tool_calls}
    found = list[Message]()
    for message in last.user.messages:
        results = tuple(result for result in message.tool_results if result.tool_call_id in known)
        if message.role == "user" or results:
            found.append(message.replace(tool_results=results) if results else message)
    return found


def _copied(messages: list[Message], given: Container[MessageId | None]) -> Iterator[Message | Answer]:
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


RETURNED = "[Back from a tangent. What was found there:]\n{summary}"
SUMMARY_TOKENS = 500


class ConversationCheckpoint(Struct, frozen=True, kw_only=True):
    """The main conversation while a tangent is under way."""

    main_history: list[HistoryEntry]
    main_next_message: UserMessage | None
    main_transcript: list[str]
    main_latest_summary: str | None
    tangent_start_time: int


class KeptTangent(Struct, frozen=True, kw_only=True):
    """A tangent that can be taken up again."""

    name: str
    started: int
    exchanges: int
    opening: str


class Tangents:
    """A conversation with its tangents; ``head`` is where it goes on."""

    def __init__(self, os: Os) -> None:
        self.os = os
        self.head = Timeline()
        self.strands = [self.head]

    def enter_tangent_mode(self) -> None:
        """Go aside; in a tangent already, nothing happens (`begin_tangent` goes aside once more)."""
        if not self.is_in_tangent_mode():
            self.begin_tangent()

    def begin_tangent(self, *, at: str | None = None) -> str:
        """Go aside from here, or from behind an earlier message, however deep; give the tangent's name."""
        self.record_settings()
        place = self._place_after(at) if at is not None else None
        tangent = self.head.fork(name=str(ids.message_id()), at=place)
        tangent.add(Tangent(name=tangent.name, started=max(1, self.os.now())))
        self.strands.append(tangent)
        self._go_to(tangent)
        return tangent.name

    def is_in_tangent_mode(self) -> bool:
        """Tell whether a tangent is under way."""
        return self.head.parent is not None

    def get_tangent_duration_seconds(self) -> int | None:
        """Tell for how long the tangent has been under way; None outside of one."""
        if not self.is_in_tangent_mode():
            return None
        return max(0, self.os.now() - self.head.started) // 1000

    def exit_tangent_mode(self) -> None:
        """Go back to where the tangent began from, as it was; outside of a tangent, nothing happens."""
        if self.head.parent is not None:
            self._leave(self.head.parent)

    def exit_tangent_mode_with_tail(self) -> None:
        """Go back, and bring the last exchange of the tangent along."""
        if self.head.parent is not None:
            entries = tail(self.head, self.head.parent)
            self._leave(self.head.parent)
            for entry in entries:
                self.add(entry)

    def exit_tangent_mode_with_summary(self, summary: str | None = None) -> None:
        """Go back, and bring a summary along: a given one, or a digest of what the tangent said."""
        if self.head.parent is not None:
            said = list(self.head.messages.own)
            told = summary if summary is not None else _digested(said)
            self._leave(self.head.parent)
            if said and told.strip():
                self.add(Message.user(RETURNED.format(summary=told)))

    def kept_tangents(self) -> list[KeptTangent]:
        """List the tangents that were left, in the order of their beginnings.

        A restore or a rewind goes to another main conversation: those that were left in the one before are
        there again when it is undone.
        """
        return [_kept(one) for one in self._left()]

    def reopen_tangent(self, name: str) -> None:
        """Take up a tangent that was left; leaving it leads where it began from."""
        found = next((one for one in (*self._under_way(), *self._left()) if one.name == name), None)
        if found is None:
            raise NotFound(f"there is no tangent {name}; kept_tangents() lists what there is")
        self.record_settings()
        self._go_to(found)

    @property
    def tangent_state(self) -> ConversationCheckpoint | None:
        """The main conversation, while a tangent is under way."""
        if self.head.parent is None:
            return None
        main = self._under_way()[-1].parent or self.head
        found = main.summary
        return ConversationCheckpoint(
            main_history=main.live_history,
            main_next_message=UserMessage(main.pending) if main.pending else None,
            main_transcript=list(main.lines),
            main_latest_summary=found[0] if found and found[1].asked else None,
            tangent_start_time=self.head.started,
        )

    def restore_moment(self, at: int) -> None:
        """Show the conversation as it was when it had so many entries; what came after stays in the log."""
        self.record_settings()
        moment = self.head.restored(at)
        self.strands.append(moment)
        self._go_to(moment)

    def undo_restore(self) -> None:
        """Show what was there before the last restore, whatever tangents began since."""
        strand: Timeline | None = self.head
        while strand is not None and strand.restores is None:
            strand = strand.parent
        if strand is None or strand.restores is None:
            raise InputError("there is no restore to undo")
        self.record_settings()
        self._go_to(strand.restores)

    def adopt(self, other: Tangents) -> None:
        """Become what another loaded: the same conversation, as it is in the log now."""
        self.strands = other.strands
        self._go_to(other.head)

    def stand_at(self, head: Timeline, strands: list[Timeline]) -> None:
        """Take a step back that could not be written, and was never seen by anybody else."""
        self.strands = strands
        self._go_to(head)

    def add(self, entry: Entry) -> None:
        """Fold an entry in."""
        self.head.add(entry)

    def record_settings(self) -> None:
        """Write down what changed beside the messages."""

    def _switched(self) -> None:
        """Take over what belongs to the strand that is the head now."""

    def _go_to(self, strand: Timeline) -> None:
        self.head = strand
        self._switched()

    def _left(self) -> list[Timeline]:
        """Give the tangents that were left and lead back to where the conversation is, or to each other."""
        under_way = self._under_way()
        names, left = {one.name for one in under_way}, dict[str, Timeline]()
        bases = [*under_way, under_way[-1].parent if under_way else self.head]
        while bases:
            base = bases.pop()
            began = {one.name: one for one in self.strands if one.parent is base and one.name not in names}
            found = {name: (base.last_left(name) if base else None) or one for name, one in began.items()}
            left |= found
            bases += found.values()
        return [left[name] for name in sorted(left)]  # names are minted in the order of time

    def _leave(self, back_to: Timeline) -> None:
        tangent = self.head
        self.record_settings()
        self._go_to(back_to)
        needed = any(tangent in (one.parent, one.restores) for one in self.strands)
        if needed or tangent.restores or len(tangent.entries.own) > 1 or tangent.recorded:
            back_to.left(tangent)
        else:  # nothing was said in it
            self.strands.remove(tangent)

    def _under_way(self) -> list[Timeline]:
        """Give the tangents that lead to the head, the innermost first."""
        found, strand = list[Timeline](), self.head
        while strand.parent is not None:
            found.append(strand)
            strand = strand.parent
        return found

    def _place_after(self, id: str) -> int:
        """Count the entries up to a message; inside a group of calls and answers, up to the group."""
        entries = self.head.entries
        for back, entry in enumerate(reversed(entries)):
            if isinstance(entry, Message | Answer) and entry.id == id:
                return _path_end(entries, len(entries) - back)
        raise NotFound(f"there is no message {id} on this path")


def _path_end(entries: Sequence[Entry], end: int) -> int:
    group = LastRound[int]()
    for place in range(end - 1, -1, -1):
        entry = entries[place]
        message = entry.message if isinstance(entry, Answer) else entry
        if isinstance(message, Message) and not group.add(place, message):
            break
    return end if group.open_from is None else group.open_from


def _kept(strand: Timeline) -> KeptTangent:
    words = (message.text for message in strand.messages.own if message.role == "user")
    return KeptTangent(
        name=strand.name,
        started=strand.started,
        exchanges=len(strand.history.own),
        opening=next(words, ""),
    )


def _digested(messages: list[Message]) -> str:
    return text(digest(messages), SUMMARY_TOKENS, counter("o200k_base"), "{summary}")
