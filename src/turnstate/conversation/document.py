"""A conversation as one JSON document, and back.

The fields of the state keep their names; unset fields are left out. Messages are in ``history`` and
``next_message``. The rest (decisions, notes, older messages, tangents) is under ``turnstate``: each timeline
is a list of entries, in which a message that appears elsewhere in the document is only its id. A document
without that part was written by another program and has nothing but its fields. The stored valid range is
never trusted; it is derived from the rest. During a tangent, ``tangent_state`` has the main conversation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from .. import codec, ids, strict_json
from ..codec import decode_entry, kind_of
from ..context.cut import carried
from ..entry import Cut, Entry, Note, Revert, Tangent, Usage
from ..errors import InvalidPayload, NewerFormat, TurnstateError
from ..message import Message
from . import settings
from .environment import Os
from .history import CheckpointState, HistoryEntry, UserMessage
from .line_tracker import tracker_to_json
from .state import ConversationState
from .timeline import Timeline

VERSION = 1

MAIN = "main_"
"""The prefix of the main conversation's fields in the state of a tangent."""

REQUIRED = ("conversation_id", "history", "valid_history_range", "transcript", "tools")


def fields(state: ConversationState) -> dict[str, Any]:
    """Return all persistent fields of a conversation as plain JSON, without unset ones."""
    state.record_settings()
    summary, checkpoints = state.latest_summary, state.checkpoint_manager
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
        "checkpoint_manager": msgspec.to_builtins(checkpoints) if checkpoints else None,
        "file_line_tracker": {path: tracker_to_json(one) for path, one in state.file_line_tracker.items()},
    }
    return {name: value for name, value in shown.items() if value is not None}


def to_json(state: ConversationState) -> dict[str, Any]:
    """Return a complete conversation as JSON, including the tangents that were left."""
    document = fields(state)
    shown = {message.id for message in _shown(state)}
    timelines = [_timeline(timeline, state.timelines, shown) for timeline in state.timelines]
    head = state.timelines.index(state.head)
    return {**document, "turnstate": {"version": VERSION, "head": head, "timelines": timelines}}


def from_json(document: Any, *, os: Os | None = None) -> ConversationState:
    """Read a conversation; raise `InvalidPayload` with the path to the part that cannot be read."""
    strict_json.check(document)
    if not isinstance(document, dict):
        raise InvalidPayload(f"a conversation must be an object, not {type(document).__name__}", path="$")
    for name in REQUIRED:
        if name not in document:
            raise InvalidPayload(f"a conversation needs the field {name}", path=f"$.{name}")
    id = document["conversation_id"]
    if not isinstance(id, str) or not id:
        raise InvalidPayload("the id of a conversation must be text", path="$.conversation_id")
    state = ConversationState(id, os=os)
    settings.restore(state, document)
    entries, part = _entries(document), document.get("turnstate")
    tangent = _tangent_fields(document.get("tangent_state"), has_timelines=part is not None)
    main = _entries(tangent, "$.tangent_state", MAIN) if tangent else []
    checkpoints = _checkpoints(document.get("checkpoint_manager"))
    if part is not None:
        known = {one.id: one for one in (*main, *entries) if isinstance(one, Message)}
        _restore_timelines(state, part, known)
    elif tangent is None:
        state.record_settings()
        state.head.extend([*_summary(document), *entries, *checkpoints, _lines(document)])
    else:
        _restore_tangent(state, document, [*entries, *checkpoints], tangent, main)
    state.cap()
    return state


def _shown(state: ConversationState) -> Iterator[Message]:
    main = state.tangent_state
    for entry in (*state.history, *(main.main_history if main else ())):
        yield from entry.user.messages
        yield entry.assistant
    yield from state.head.pending
    if main and main.main_next_message:
        yield from main.main_next_message.messages


def _user(message: UserMessage) -> list[Any]:
    return [codec.to_builtins(one) for one in message.messages]


def _entry(entry: HistoryEntry) -> dict[str, Any]:
    plain = {"user": _user(entry.user), "assistant": codec.to_builtins(entry.assistant)}
    usage = entry.request_metadata
    return plain | ({"request_metadata": msgspec.to_builtins(usage)} if usage else {})


def _tangent(state: ConversationState) -> dict[str, Any] | None:
    """Return the main conversation and the start of the tangent while a tangent is open."""
    main = state.tangent_state
    if main is None:
        return None
    summary = main.main_latest_summary
    return {
        "main_history": [_entry(entry) for entry in main.main_history],
        "main_next_message": _user(main.main_next_message) if main.main_next_message else None,
        "main_transcript": main.main_transcript,
        "main_latest_summary": [summary[0], msgspec.to_builtins(summary[1])] if summary else None,
        "tangent_start_time": main.tangent_start_time,
    }


def _timeline(timeline: Timeline, timelines: list[Timeline], shown: set[Any]) -> dict[str, Any]:
    """Return what a timeline adds; if it starts in the middle of a log, recalled entries come first."""
    recalled = [] if timeline.forked_at else timeline.recalled
    entries: list[Entry] = [
        *recalled,
        *(_renumbered(entry, timeline) for entry in timeline.entries[timeline.forked_at :]),
    ]
    plain: dict[str, Any] = {"entries": [_kept(entry, shown) for entry in entries]}
    if timeline.parent is not None:
        at = timeline.forked_at + len(timeline.recalled) if timeline.forked_at else 0
        plain |= {"parent": timelines.index(timeline.parent), "at": at, "name": timeline.name}
        plain |= {"begun": timeline.begun + len(timeline.recalled)} if timeline.begun and not at else {}
    if not timeline.shared and (created := max(0, timeline.created) + len(recalled)):
        plain["created"] = created  # undo goes no further back
    if timeline.former is not None and timeline.operation != "tangent":
        shared = timeline.shared + len(timeline.recalled) if timeline.shared else 0
        plain |= {"restores": timelines.index(timeline.former), "shared": shared}
        plain |= {"operation": timeline.operation} if timeline.operation != "restore" else {}
    if timeline.leavings:
        known = len(timeline.recalled)
        plain["left"] = [[place + known, timelines.index(one)] for place, one in timeline.leavings.items()]
    return plain


def _renumbered(entry: Entry, timeline: Timeline) -> Entry:
    """Return an entry with its references renumbered: in a document, the first entry is number 1."""
    match entry:
        case Revert(at=at, former=former):
            return msgspec.structs.replace(entry, at=_number(at, timeline), former=_number(former, timeline))
        case Tangent(undone=undone) if undone:
            return msgspec.structs.replace(entry, undone=_number(undone, timeline))
        case _:
            return entry


def _number(number: int, timeline: Timeline) -> int:
    if number >= timeline.first:
        return number - timeline.first + 1 + len(timeline.recalled)
    cuts = (place for place, one in enumerate(timeline.recalled, start=1) if isinstance(one, Cut))
    return next(cuts, 0) if number else 0


def _kept(entry: Entry, shown: set[Any]) -> Any:
    if isinstance(entry, Message) and entry.id in shown:
        return entry.id
    body = codec.to_builtins(entry) if isinstance(entry, Message) else msgspec.to_builtins(entry)
    return [kind_of(entry), body]


class _TimelinePart(msgspec.Struct, frozen=True):
    entries: list[str | tuple[str, dict[str, Any]]]
    parent: int | None = None
    at: int = 0
    begun: int = 0
    created: int = 0
    name: str = ""
    restores: int | None = None
    shared: int = 0
    operation: str = "restore"
    left: list[tuple[int, int]] = []


class _DocumentPart(msgspec.Struct, frozen=True):
    version: int
    head: int
    timelines: list[_TimelinePart]


def _restore_timelines(state: ConversationState, document: Any, known: dict[Any, Message]) -> None:
    at = "$.turnstate"
    version = document.get("version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise NewerFormat(f"the conversation has version {version}; update Turnstate to read it")
    try:
        part = msgspec.convert(document, _DocumentPart)
    except msgspec.ValidationError as error:
        raise InvalidPayload(f"not the timelines of a conversation: {error}", path=at) from None
    timelines = list[Timeline]()
    for number, plain in enumerate(part.timelines):
        here = f"{at}.timelines[{number}]"
        timeline = _begun(plain, timelines, here)
        known_ids = {message.id for message in timeline.messages}
        for place, one in enumerate(plain.entries):
            entry = _read(one, known, f"{here}.entries[{place}]")
            if isinstance(entry, Message) and entry.id in known_ids:
                raise InvalidPayload(f"two messages have the id {entry.id}", path=f"{here}.entries[{place}]")
            known_ids |= {entry.id} if isinstance(entry, Message) else set()
            timeline.add(entry)
        _take_place(timeline, plain, timelines, here)
        timelines.append(timeline)
    for number, plain in enumerate(part.timelines):
        for place, tangent in plain.left:
            if not 0 <= tangent < len(timelines):
                raise InvalidPayload("no timeline has that number", path=f"{at}.timelines[{number}].left")
            timelines[number].leavings[place] = timelines[tangent]
    if not 0 <= part.head < len(timelines):
        raise InvalidPayload("no timeline has that number", path=f"{at}.head")
    state.timelines, state.head = timelines, timelines[part.head]


def _begun(plain: _TimelinePart, timelines: list[Timeline], at: str) -> Timeline:
    if plain.parent is None:
        return Timeline()
    if not 0 <= plain.parent < len(timelines):
        raise InvalidPayload("a timeline must come after its parent", path=f"{at}.parent")
    parent = timelines[plain.parent]
    if not 0 <= plain.at <= len(parent.entries):
        raise InvalidPayload("its parent has no such entry", path=f"{at}.at")
    return parent.fork(name=plain.name, at=plain.at)


def _take_place(timeline: Timeline, plain: _TimelinePart, timelines: list[Timeline], at: str) -> None:
    """Set where a timeline began; if a restore created it, link it to the timeline that it replaced."""
    if not (0 <= plain.begun <= len(timeline.entries) and 0 <= plain.created <= len(timeline.entries)):
        raise InvalidPayload("it has no such entry", path=f"{at}.{'begun' if plain.begun else 'created'}")
    timeline.begun = plain.begun or timeline.begun
    timeline.created = plain.created or timeline.created
    if plain.restores is None:
        return
    if not 0 <= plain.restores < len(timelines):
        raise InvalidPayload("a timeline must come after the one that it restores", path=f"{at}.restores")
    left = timelines[plain.restores]
    if not 0 <= plain.shared <= min(len(left.entries), len(timeline.entries)):
        raise InvalidPayload("the timelines share fewer entries than that", path=f"{at}.shared")
    timeline.operation, timeline.former, timeline.shared = plain.operation, left, plain.shared
    timeline.created = plain.created or plain.shared


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


def _tangent_fields(document: Any, *, has_timelines: bool) -> dict[str, Any] | None:
    """Return the state of a tangent, if any; the main conversation may be in the timelines only."""
    if document is None:
        return None
    at = "$.tangent_state"
    if not isinstance(document, dict):
        raise InvalidPayload(f"expected an object, got {type(document).__name__}", path=at)
    if has_timelines and "main_history" not in document:
        return None
    for name in ("main_history", "main_transcript"):
        if name not in document:
            raise InvalidPayload(f"the state of a tangent needs the field {name}", path=f"{at}.{name}")
    if type(document.get("tangent_start_time")) is not int:
        raise InvalidPayload("expected milliseconds since 1970", path=f"{at}.tangent_start_time")
    return document


def _checkpoints(document: Any) -> list[Entry]:
    """Return the entries for checkpoints, for a document without timelines."""
    if document is None:
        return []
    try:
        return [*msgspec.convert(document, CheckpointState).checkpoints]
    except msgspec.ValidationError as error:
        raise InvalidPayload(f"not checkpoints: {error}", path="$.checkpoint_manager") from None


def _restore_tangent(
    state: ConversationState,
    document: dict[str, Any],
    entries: list[Entry],
    tangent: dict[str, Any],
    main: list[Entry],
) -> None:
    """Build the main conversation and the tangent, which begins where the two differ."""
    state.record_settings()
    root, at = state.head, "$.tangent_state"
    root.extend(_summary(tangent, at, MAIN))
    summary = (
        [] if document.get("latest_summary") == tangent.get("main_latest_summary") else _summary(document)
    )
    pairs = enumerate(zip(main, entries, strict=False))
    shared = next((place for place, (one, other) in pairs if one != other), min(len(main), len(entries)))
    begun = len(root.entries) + shared
    root.extend([*main, _lines(tangent, at, MAIN)])
    aside = root.fork(name=str(ids.message_id()), at=begun)
    aside.add(Tangent(name=aside.name, started=max(1, tangent["tangent_start_time"])))
    aside.extend([*summary, *entries[shared:], _lines(document)])
    state.head = aside
    state.timelines.append(aside)


def _entries(document: dict[str, Any], base: str = "$", prefix: str = "") -> list[Entry]:
    """Return the entries in history and next message, in order."""
    history = document[f"{prefix}history"]
    if not isinstance(history, list):
        raise InvalidPayload(f"expected a list, got {type(history).__name__}", path=f"{base}.{prefix}history")
    found = list[Entry]()
    for place, plain in enumerate(history):
        at = f"{base}.{prefix}history[{place}]"
        if not isinstance(plain, dict):
            raise InvalidPayload(f"expected an object, got {type(plain).__name__}", path=at)
        found += _messages(plain.get("user"), f"{at}.user", "user", "tool")
        found += _messages([plain.get("assistant")], f"{at}.assistant", "assistant")
        if (usage := plain.get("request_metadata")) is not None:
            found.append(_usage(usage, f"{at}.request_metadata"))
    if (waiting := document.get(f"{prefix}next_message")) is not None:
        found += _messages(waiting, f"{base}.{prefix}next_message", "user", "tool")
    _check_ids(found, f"{base}.{prefix}history")
    return found


def _check_ids(entries: list[Entry], at: str) -> None:
    known = set[str]()
    for message in (one for one in entries if isinstance(one, Message)):
        if message.id in known:
            raise InvalidPayload(f"two messages have the id {message.id:.80}", path=at)
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
            raise InvalidPayload(f"a message of the role {role} is not allowed here", path=f"{at}[{place}]")
    return found


def _usage(document: Any, at: str) -> Usage:
    try:
        return msgspec.convert(document, Usage)
    except msgspec.ValidationError as error:
        raise InvalidPayload(f"not the metadata of a request: {error}", path=at) from None


def _summary(document: dict[str, Any], at: str = "$", prefix: str = "") -> list[Entry]:
    """Return the entry for the summary, if there is one, for a document without timelines."""
    summary, here = document.get(f"{prefix}latest_summary"), f"{at}.{prefix}latest_summary"
    if summary is None:
        return []
    if not (isinstance(summary, list) and len(summary) == 2 and isinstance(summary[0], str)):
        raise InvalidPayload("a summary must be a text and its metadata", path=here)
    known = _usage(summary[1], f"{here}[1]")
    return [carried(summary[0], known.details | ({"model": known.model} if known.model else {}))]


def _lines(document: dict[str, Any], at: str = "$", prefix: str = "") -> Note:
    """Return the entry for the transcript, for a document without timelines."""
    lines = document[f"{prefix}transcript"]
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise InvalidPayload("a transcript must be a list of lines", path=f"{at}.{prefix}transcript")
    return Note("", tuple(lines))
