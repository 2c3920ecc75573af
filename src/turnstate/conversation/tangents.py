"""Tangents: side conversations that lead back to the main one, with nothing copied and nothing lost.

    main     U A U A ─────────────────────── U A      continues where it was
                    └─ tangent  U A U A               kept, and can be reopened

A tangent sees the main conversation as it was when the tangent began. Leaving it shows the main conversation
as before; its last exchange, or a summary of all its exchanges, can be carried over.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import UNSET, Struct

from .. import ids
from ..context.digest import digest, text
from ..entry import LEFT, Answer, Entry, Tangent
from ..errors import NotFound
from ..ids import CallId, MessageId
from ..log.fold import open_calls
from ..log.undo import LastRound, Undoable, UndoSearch
from ..message import Message
from ..tokens import counter
from ..value import Extra
from .history import MAX_TRANSCRIPT_LEN, HistoryEntry, RequestMetadata, UserMessage
from .settings import ConversationHead
from .timeline import Timeline


def tail(timeline: Timeline, back_to: Timeline) -> list[Message | Answer]:
    """Return the last exchange as new, self-contained messages that name their origins.

    If it answers tool results, their calls and the question that opened the turn are included. Messages
    that are already pending in `back_to` are left out.
    """
    if all(message.role != "assistant" for message in timeline.said):
        return []
    last, there = timeline.history[-1], {message.id for message in back_to.pending}
    messages = [*_beyond(last.user.messages, there), last.assistant]
    answered = {result.tool_call_id for message in messages for result in message.tool_results}
    if not answered.issubset(call.id for call in back_to.open_calls) and len(timeline.history) > 1:
        calls = timeline.history[-2].assistant
        messages = [*_beyond(_question(timeline), there), calls, *_answers(last, calls), last.assistant]
    given = {one.id for one in timeline.decisions if isinstance(one, Answer)}
    return list(_copied(messages, given))


def _beyond(messages: Iterable[Message], there: Container[MessageId]) -> list[Message]:
    return [message for message in messages if message.id not in there]


def _question(timeline: Timeline) -> list[Message]:
    """Return the messages that opened the turn of the last exchange."""
    for entry in reversed(timeline.history[:-1]):
        words = [message for message in entry.user.messages if message.role == "user"]
        if words:
            return words
    return []


def _answers(last: HistoryEntry, calls: Message) -> list[Message]:
    """Return the user's side with only the results of these calls."""
    known = {call.id for call in calls.tool_calls}
    found = list[Message]()
    for message in last.user.messages:
        results = [one for one in enumerate(message.tool_results) if one[1].tool_call_id in known]
        if message.role == "user" or results:
            found.append(message.with_results(results) if results else message)
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
    """The main conversation while a tangent is open."""

    main_history: list[HistoryEntry]
    main_next_message: UserMessage | None
    main_transcript: list[str]
    main_latest_summary: tuple[str, RequestMetadata] | None
    tangent_start_time: int


class KeptTangent(Struct, frozen=True, kw_only=True):
    """A tangent that was left and can be reopened."""

    name: str
    started: int
    exchanges: int
    opening: str


class Tangents(ConversationHead):
    """A conversation with its tangents."""

    def enter_tangent_mode(self) -> None:
        """Begin a tangent; do nothing inside one (`begin_tangent` nests)."""
        if not self.is_in_tangent_mode():
            self.begin_tangent()

    def begin_tangent(self, *, at: str | None = None) -> str:
        """Begin a tangent here, or after an earlier message, at any depth; return its name."""
        self.record_settings()
        place = self._place_after(at) if at is not None else None
        tangent = self.head.fork(name=str(ids.message_id()), at=place)
        self._check_loaded(tangent)
        tangent.add(Tangent(name=tangent.name, started=max(1, self.os.now())))
        self.timelines.append(tangent)
        self._go_to(tangent)
        return tangent.name

    def is_in_tangent_mode(self) -> bool:
        """Return True if a tangent is open."""
        return self.head.parent is not None

    def get_tangent_duration_seconds(self) -> int | None:
        """Return how many seconds the tangent has been open; None outside a tangent."""
        if not self.is_in_tangent_mode():
            return None
        return max(0, self.os.now() - self.head.started) // 1000

    def exit_tangent_mode(self) -> None:
        """Leave the tangent and go back to where it began; do nothing outside a tangent."""
        if self.head.parent is not None:
            self._leave(self.head.parent)

    def exit_tangent_mode_with_tail(self) -> None:
        """Leave the tangent and carry over its last exchange."""
        if self.head.parent is not None:
            entries = tail(self.head, self.head.parent)
            self._leave(self.head.parent)
            for entry in entries:
                self.add(entry)

    def exit_tangent_mode_with_summary(self, summary: str | None = None) -> None:
        """Leave the tangent and carry over a summary: the given one, or a digest of the tangent."""
        if self.head.parent is not None:
            messages = self.head.said
            text = summary if summary is not None else _digested(messages)
            self._leave(self.head.parent)
            if messages and text.strip():
                self.add(Message.user(RETURNED.format(summary=text)))

    def kept_tangents(self) -> list[KeptTangent]:
        """Return the tangents that were left, in the order in which they began.

        A restore or a rewind switches to another main conversation; the tangents of the previous one are
        listed again when it is undone.
        """
        return [_kept(one) for one in self._left()]

    def reopen_tangent(self, name: str) -> None:
        """Reopen a tangent that was left; leaving it leads back to where it began."""
        found = next((one for one in (*self._open_tangents(), *self._left()) if one.name == name), None)
        if found is None:
            raise NotFound(f"there is no tangent {name}; kept_tangents() lists those that exist")
        self._check_loaded(found)
        self.record_settings()
        around = _around(found)
        while self.head not in around and self.head.parent is not None:
            self._leave(self.head.parent)
        self._go_to(found)

    @property
    def tangent_state(self) -> ConversationCheckpoint | None:
        """The main conversation, while a tangent is open."""
        if self.head.parent is None:
            return None
        main = self._open_tangents()[-1].parent or self.head
        return ConversationCheckpoint(
            main_history=main.live_history,
            main_next_message=UserMessage(main.pending) if main.pending else None,
            main_transcript=main.lines[-MAX_TRANSCRIPT_LEN:],
            main_latest_summary=main.latest_summary,
            tangent_start_time=self.head.started,
        )

    def _undo_exit(self, exit: Undoable, search: UndoSearch) -> None:
        """Go back into a tangent that was left, and add an entry that says that leaving it was undone."""
        tangent = self.head.leavings[exit.number - self.head.first]
        if not self._is_loaded(tangent):
            raise search.not_loaded()
        self.add(Tangent(name=tangent.name, undone=exit.number))
        self._go_to(tangent)

    def _undo_branch(self, search: UndoSearch) -> str:
        """Go back to the timeline before the head, and return the operation that created the head."""
        undone = self.head
        if undone.created < 0 or (undone.operation and undone.former is None):
            raise search.not_loaded()
        if undone.former is None:
            raise search.nothing(undone.cut)
        if not self._is_loaded(undone.former):
            raise search.not_loaded()
        self.record_settings()
        self._go_to(undone.former)
        self._drop_if_empty(undone)
        return undone.operation

    def _left(self) -> list[Timeline]:
        """Return the tangents that were left and lead back to the current timelines, or to each other."""
        around = self._open_tangents()
        names, left = {one.name for one in around}, dict[str, Timeline]()
        bases = [*around, around[-1].parent if around else self.head]
        while bases:
            base = bases.pop()
            tangents = [one for one in self.timelines if one.operation == "tangent" and one.parent is base]
            began = {one.name: one for one in tangents if one.name not in names}
            found = {name: (base.last_left(name) if base else None) or one for name, one in began.items()}
            left |= found
            bases += found.values()
        return [left[name] for name in sorted(left)]  # names sort by the time they were created

    def _leave(self, back_to: Timeline) -> None:
        tangent = self.head
        self.record_settings()
        self._go_to(back_to)
        if not self._drop_if_empty(tangent):
            back_to.left(tangent)

    def _drop_if_empty(self, timeline: Timeline) -> bool:
        """Drop a tangent if nothing was said in it and no log holds it; return True if it was dropped."""
        needed = any(timeline in (one.parent, one.former) for one in self.timelines)
        is_new = timeline.operation == "tangent" and not timeline.recorded
        if needed or not is_new or len(timeline.entries) > timeline.forked_at + 1:
            return False
        self.timelines.remove(timeline)
        return True

    def _open_tangents(self) -> list[Timeline]:
        """Return the open tangents, the innermost first."""
        return _around(self.head)[:-1]

    def _place_after(self, id: str) -> int:
        """Count the entries up to a message; inside a group of calls and answers, those before the group."""
        entries = self.head.entries
        for back, entry in enumerate(reversed(entries)):
            if isinstance(entry, Message | Answer) and entry.id == id:
                return _path_end(entries, len(entries) - back)
        raise NotFound(f"there is no message {id} on this path")


def _around(timeline: Timeline) -> list[Timeline]:
    """Return a timeline and its parents, the innermost first."""
    found = [timeline]
    while found[-1].parent is not None:
        found.append(found[-1].parent)
    return found


def _path_end(entries: Sequence[Entry], end: int) -> int:
    group = LastRound[int]()
    for place in range(end - 1, -1, -1):
        entry = entries[place]
        message = entry.message if isinstance(entry, Answer) else entry
        if isinstance(message, Message) and not group.add(place, message):
            break
    return end if group.open_from is None else group.open_from


def _kept(timeline: Timeline) -> KeptTangent:
    said = timeline.said
    return KeptTangent(
        name=timeline.name,
        started=timeline.started,
        exchanges=sum(message.role == "assistant" for message in said),
        opening=next((message.text for message in said if message.role == "user"), ""),
    )


def _digested(messages: list[Message]) -> str:
    return text(digest(messages), SUMMARY_TOKENS, counter("o200k_base"), "{summary}")
