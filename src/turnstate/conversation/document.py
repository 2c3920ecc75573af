"""A conversation as one JSON document, and back.

The fields of the state stand under their names, those that are not set left out. Messages stand in
``history`` and ``next_message``; what they do not say (decisions, notes, older messages, tangents) stands
under ``turnstate``: every strand as a list of entries, where a message that the document shows elsewhere
is its id alone. A document without that part is one that somebody else wrote in our words: its fields
are all there is. What is stored of the valid range is never trusted; it follows from the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from .. import codec, strict_json
from ..codec import decode_entry, kind_of
from ..context.cut import carried
from ..entry import Cut, Entry, Note, Revert, Tangent, Usage
from ..errors import InvalidPayload, NewerFormat, TurnstateError
from ..message import Message
from . import settings
from .environment import Os
from .history import HistoryEntry, UserMessage
from .line_tracker import tracker_to_json
from .state import ConversationState
from .timeline import Timeline

__all__ = ["VERSION", "fields", "from_json", "to_json"]

VERSION = 1

REQUIRED = ("conversation_id", "history", "valid_history_range", "transcript", "tools")


def fields(state: ConversationState) -> dict[str, Any]:
    """Give every field of a conversation that is kept, as plain JSON; what is not set is left out."""
    state.record_settings()
    summary = state.latest_summary
    shown = {
        "conversation_id": state.conversation_id,
        "next_message": _user(state.next_message) if state.next_message else None,
        "history": [_entry(entry) for entry in state.history],
        "valid_history_range": list(state.valid_history_range),
        "transcript": state.transcript,
        "context_message_length": state.context_message_length,
        "latest_summary": [summary[0], msgspec.to_builtins(summary[1])] if summary else None,
        "tangent_state": _tangent(state),
        **settings.fields_of(state),
        "file_line_tracker": {path: tracker_to_json(one) for path, one in state.file_line_tracker.items()},
    }
    return {name: value for name, value in shown.items() if value is not None}


def to_json(state: ConversationState) -> dict[str, Any]:
    """Write a conversation whole, tangents that were left included."""
    document = fields(state)
    shown = {message.id for message in _shown(state)}
    strands = [_strand(strand, state.strands, shown) for strand in state.strands]
    head = state.strands.index(state.head)
    return {**document, "turnstate": {"version": VERSION, "head": head, "strands": strands}}


def from_json(document: Any, *, os: Os | None = None) -> ConversationState:
    """Read a conversation; what is unreadable is refused with the path to it."""
    strict_json.check(document)
    if not isinstance(document, dict):
        raise InvalidPayload(f"a conversation is an object, not {type(document).__name__}", path="$")
    for name in REQUIRED:
        if name not in document:
            raise InvalidPayload(f"a conversation needs the field {name}", path=f"$.{name}")
    id = document["conversation_id"]
    if not isinstance(id, str) or not id:
        raise InvalidPayload("the id of a conversation is text", path="$.conversation_id")
    state = ConversationState(id, os=os)
    settings.restore(state, document)
    entries = _entries(document)
    part = document.get("turnstate")
    if part is None:
        *summary, lines = _told(document)
        state.head.extend([*summary, *entries, lines])
    else:
        _restore_strands(state, part, {one.id: one for one in entries if isinstance(one, Message)})
    return state


def _shown(state: ConversationState) -> Iterator[Message]:
    for entry in state.history:
        yield from entry.user.messages
        yield entry.assistant
    yield from state.head.pending


def _user(message: UserMessage) -> list[Any]:
    return [codec.to_builtins(one) for one in message.messages]


def _entry(entry: HistoryEntry) -> dict[str, Any]:
    plain = {"user": _user(entry.user), "assistant": codec.to_builtins(entry.assistant)}
    usage = entry.request_metadata
    return plain | ({"request_metadata": msgspec.to_builtins(usage)} if usage else {})


def _tangent(state: ConversationState) -> dict[str, Any] | None:
    """Say that a tangent is under way; the main conversation is the strand that it names."""
    if state.head.parent is None:
        return None
    return {
        "main_strand": state.strands.index(state.head.parent),
        "tangent_start_time": state.head.started,
    }


def _strand(strand: Timeline, strands: list[Timeline], shown: set[Any]) -> dict[str, Any]:
    """Write what a strand adds; one that begins in the middle of a log begins with what it recalls of it."""
    recalled = [] if strand.forked_at else strand.recalled
    entries: list[Entry] = [*recalled, *(_renumbered(entry, strand) for entry in strand.entries.own)]
    plain: dict[str, Any] = {"entries": [_kept(entry, shown) for entry in entries]}
    if strand.parent is not None:
        at = strand.forked_at + len(strand.recalled) if strand.forked_at else 0
        plain |= {"parent": strands.index(strand.parent), "at": at, "name": strand.name}
    if strand.restores is not None:
        shared = strand.shared + len(strand.recalled)
        plain |= {"restores": strands.index(strand.restores), "shared": shared}
    if strand.leavings:
        known = len(strand.recalled)
        plain["left"] = [[place + known, strands.index(one)] for place, one in strand.leavings.items()]
    return plain


def _renumbered(entry: Entry, strand: Timeline) -> Entry:
    """Give an entry with the numbers that others have when the document's first is the first there is."""
    match entry:
        case Revert(at=at, former=former):
            return msgspec.structs.replace(entry, at=_number(at, strand), former=_number(former, strand))
        case Tangent(undone=undone) if undone:
            return msgspec.structs.replace(entry, undone=_number(undone, strand))
        case _:
            return entry


def _number(number: int, strand: Timeline) -> int:
    if number >= strand.first:
        return number - strand.first + 1 + len(strand.recalled)
    cuts = (place for place, one in enumerate(strand.recalled, start=1) if isinstance(one, Cut))
    return next(cuts, 0) if number else 0


def _kept(entry: Entry, shown: set[Any]) -> Any:
    if isinstance(entry, Message) and entry.id in shown:
        return entry.id
    body = codec.to_builtins(entry) if isinstance(entry, Message) else msgspec.to_builtins(entry)
    return [kind_of(entry), body]


class _Strand(msgspec.Struct, frozen=True):
    entries: list[str | tuple[str, dict[str, Any]]]
    parent: int | None = None
    at: int = 0
    name: str = ""
    restores: int | None = None
    shared: int = 0
    left: list[tuple[int, int]] = []


class _Part(msgspec.Struct, frozen=True):
    version: int
    head: int
    strands: list[_Strand]


def _restore_strands(state: ConversationState, document: Any, known: dict[Any, Message]) -> None:
    at = "$.turnstate"
    version = document.get("version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise NewerFormat(f"the conversation has version {version}; update Turnstate to read it")
    try:
        part = msgspec.convert(document, _Part)
    except msgspec.ValidationError as error:
        raise InvalidPayload(f"not the strands of a conversation: {error}", path=at) from None
    strands = list[Timeline]()
    for number, plain in enumerate(part.strands):
        here = f"{at}.strands[{number}]"
        strand = _begun(plain, strands, here)
        said = {message.id for message in strand.messages}
        for place, one in enumerate(plain.entries):
            entry = _read(one, known, f"{here}.entries[{place}]")
            if isinstance(entry, Message) and entry.id in said:
                raise InvalidPayload(f"two messages have the id {entry.id}", path=f"{here}.entries[{place}]")
            said |= {entry.id} if isinstance(entry, Message) else set()
            strand.add(entry)
        _take_place(strand, plain, strands, here)
        strands.append(strand)
    for number, plain in enumerate(part.strands):
        for place, tangent in plain.left:
            if not 0 <= tangent < len(strands):
                raise InvalidPayload("no strand has that number", path=f"{at}.strands[{number}].left")
            strands[number].leavings[place] = strands[tangent]
    if not 0 <= part.head < len(strands):
        raise InvalidPayload("no strand has that number", path=f"{at}.head")
    state.strands, state.head = strands, strands[part.head]


def _begun(plain: _Strand, strands: list[Timeline], at: str) -> Timeline:
    if plain.parent is None:
        return Timeline()
    if not 0 <= plain.parent < len(strands):
        raise InvalidPayload("a strand comes behind its parent", path=f"{at}.parent")
    parent = strands[plain.parent]
    if not 0 <= plain.at <= len(parent.entries):
        raise InvalidPayload("its parent has no such entry", path=f"{at}.at")
    return parent.fork(name=plain.name, at=plain.at)


def _take_place(strand: Timeline, plain: _Strand, strands: list[Timeline], at: str) -> None:
    """Let a strand that a restore began stand for the one that it went back in."""
    if plain.restores is None:
        return
    if not 0 <= plain.restores < len(strands):
        raise InvalidPayload("a strand comes behind the one that it restores", path=f"{at}.restores")
    left = strands[plain.restores]
    if not 0 <= plain.shared <= min(len(left.entries), len(strand.entries)):
        raise InvalidPayload("the two do not share so much", path=f"{at}.shared")
    strand.restores, strand.shared = left, plain.shared


def _read(plain: str | tuple[str, dict[str, Any]], known: dict[Any, Message], at: str) -> Entry:
    if isinstance(plain, str):
        if plain not in known:
            raise InvalidPayload(f"the document has no message {plain:.80}", path=at)
        return known[plain]
    try:
        return decode_entry(plain[0], msgspec.json.encode(plain[1]))
    except NewerFormat:
        raise
    except TurnstateError as error:
        raise InvalidPayload(str(error), path=at) from None


def _entries(document: dict[str, Any]) -> list[Entry]:
    """Give what history and next message hold, in order."""
    history = document["history"]
    if not isinstance(history, list):
        raise InvalidPayload(f"expected a list, got {type(history).__name__}", path="$.history")
    found = list[Entry]()
    for place, plain in enumerate(history):
        at = f"$.history[{place}]"
        if not isinstance(plain, dict):
            raise InvalidPayload(f"expected an object, got {type(plain).__name__}", path=at)
        found += _messages(plain.get("user"), f"{at}.user", "user", "tool")
        found += _messages([plain.get("assistant")], f"{at}.assistant", "assistant")
        if (usage := plain.get("request_metadata")) is not None:
            found.append(_usage(usage, f"{at}.request_metadata"))
    if (waiting := document.get("next_message")) is not None:
        found += _messages(waiting, "$.next_message", "user", "tool")
    _check_ids(found)
    return found


def _check_ids(entries: list[Entry]) -> None:
    known = set[str]()
    for message in (one for one in entries if isinstance(one, Message)):
        if message.id in known:
            raise InvalidPayload(f"two messages have the id {message.id:.80}", path="$.history")
        known.add(message.id)


def _messages(document: Any, at: str, *roles: str) -> list[Message]:
    if not isinstance(document, list):
        raise InvalidPayload(f"expected a list of messages, got {type(document).__name__}", path=at)
    found = list[Message]()
    for place, plain in enumerate(document):
        try:
            found.append(codec.from_builtins(plain))
        except TurnstateError as error:
            raise InvalidPayload(str(error), path=f"{at}[{place}]") from None
        if (role := found[-1].role) not in roles:
            raise InvalidPayload(f"a message of the {role} cannot stand here", path=f"{at}[{place}]")
    return found


def _usage(document: Any, at: str) -> Usage:
    try:
        return msgspec.convert(document, Usage)
    except msgspec.ValidationError as error:
        raise InvalidPayload(f"not what is known of a request: {error}", path=at) from None


def _told(document: dict[str, Any]) -> Iterator[Entry]:
    """Give what the other fields say, for a document that holds no entries: the summary, then the lines."""
    summary, lines = document.get("latest_summary"), document["transcript"]
    if summary is not None:
        if not (isinstance(summary, list) and len(summary) == 2 and isinstance(summary[0], str)):
            raise InvalidPayload("a summary is a text and what is known of it", path="$.latest_summary")
        known = _usage(summary[1], "$.latest_summary[1]")
        yield carried(summary[0], known.details | ({"model": known.model} if known.model else {}))
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise InvalidPayload("a transcript is a list of lines", path="$.transcript")
    yield Note("", tuple(lines))
