"""A conversation as one JSON document, and back.

The fields of the state keep their names; unset fields are left out. Messages are in ``history`` and
``next_message``. The rest (decisions, notes, older messages, tangents) is under ``turnstate``: the branches
of the log, each a list of entries, in which a message that appears elsewhere in the document is only its id.
A document without that part was written by another program and has nothing but its fields. The stored valid
range is never trusted; it is derived from the rest. During a tangent, ``tangent_state`` has the main
conversation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from .. import codec, ids, strict_json
from ..codec import decode_entry, kind_of
from ..context.cut import carried
from ..entry import Entry, Note, Tangent, Usage
from ..errors import InvalidPayload, NewerFormat, TurnstateError
from ..log.memory_log import MemoryLog
from ..log.operations import Effect
from ..log.tangents import TANGENT
from ..message import Message
from ..stores.values import BranchRow, Fork
from . import kept_settings as settings
from .environment import Os
from .history import CheckpointState, HistoryEntry, UserMessage
from .line_tracker import tracker_to_json
from .state import ConversationState
from .timelines import from_timelines

VERSION = 2

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
    document, log = fields(state), state.log
    shown = {message.id for message in _shown(state)}
    branches = [_branch(log, branch, shown) for branch in log.branches.values()]
    return {**document, "turnstate": {"version": VERSION, "head": log.head.branch, "branches": branches}}


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
    tangent = _tangent_fields(document.get("tangent_state"), has_log=part is not None)
    main = _entries(tangent, "$.tangent_state", MAIN) if tangent else []
    checkpoints = _checkpoints(document.get("checkpoint_manager"))
    if part is not None:
        known = {one.id: one for one in (*main, *entries) if isinstance(one, Message)}
        _restore_log(state, part, known)
    elif tangent is None:
        for entry in [*_summary(document), *entries, *checkpoints, _lines(document)]:
            state.add(entry)
    else:
        _restore_tangent(state, document, [*entries, *checkpoints], tangent, main)
    state.settle()
    return state


def _shown(state: ConversationState) -> Iterator[Message]:
    main = state.tangent_state
    for entry in (*state.history, *(main.main_history if main else ())):
        yield from entry.user.messages
        yield entry.assistant
    yield from state.shown.pending
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


def _branch(log: MemoryLog, branch: BranchRow, shown: set[Any]) -> dict[str, Any]:
    """Return a branch and the entries that it adds."""
    plain: dict[str, Any] = {
        "entries": [_kept(one.entry, shown) for one in log.entries[branch.id] if one.entry]
    }
    if branch.parent is not None:
        plain |= {"parent": branch.parent, "at": branch.fork_seq, "former": branch.former}
        plain |= {"operation": branch.operation, "created": branch.created}
        plain |= {"name": branch.name} if branch.name else {}
    return plain


def _kept(entry: Entry, shown: set[Any]) -> Any:
    if isinstance(entry, Message) and entry.id in shown:
        return entry.id
    body = codec.to_builtins(entry) if isinstance(entry, Message) else msgspec.to_builtins(entry)
    return [kind_of(entry), body]


class _BranchPart(msgspec.Struct, frozen=True):
    entries: list[str | tuple[str, dict[str, Any]]]
    parent: int | None = None
    at: int = 0
    former: int | None = None
    operation: str = ""
    created: int = 0
    name: str = ""


class _DocumentPart(msgspec.Struct, frozen=True):
    version: int
    head: int
    branches: list[_BranchPart]


def _restore_log(state: ConversationState, document: Any, known: dict[Any, Message]) -> None:
    at = "$.turnstate"
    version = document.get("version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise NewerFormat(f"the conversation has version {version}; update Turnstate to read it")
    if version == 1:
        document = from_timelines(document, at)
    try:
        part = msgspec.convert(document, _DocumentPart)
    except msgspec.ValidationError as error:
        raise InvalidPayload(f"not the log of a conversation: {error}", path=at) from None
    log = MemoryLog(state.conversation_id)
    for number, plain in enumerate(part.branches, start=1):
        here = f"{at}.branches[{number - 1}]"
        if number > 1:
            log.graft(_row(number, plain, log, here))
        log.head = log.tip(number)
        ids = {one.id for one in log.walk(log.path())}
        for place, one in enumerate(plain.entries):
            entry = _read(one, known, f"{here}.entries[{place}]")
            placed = log.add(entry)
            if isinstance(entry, Message):
                if placed.id in ids:
                    where = f"{here}.entries[{place}]"
                    raise InvalidPayload(f"two messages have the id {entry.id}", path=where)
                ids.add(placed.id)
    if part.head not in log.branches or not part.branches:
        raise InvalidPayload("no branch has that number", path=f"{at}.head")
    log.head = log.tip(part.head)
    state.use(log)


def _row(number: int, plain: _BranchPart, log: MemoryLog, at: str) -> BranchRow:
    """Return a branch; raise `InvalidPayload` if it does not follow from the branches before it."""
    if plain.parent is None:
        raise InvalidPayload("only the first branch has no parent", path=f"{at}.parent")
    for name, branch in (("parent", plain.parent), ("former", plain.former)):
        if branch is not None and branch not in log.branches:
            raise InvalidPayload(f"a branch must come after its {name}", path=f"{at}.{name}")
    if not 0 <= plain.at <= log.tip(plain.parent).seq:
        raise InvalidPayload("its parent has no such entry", path=f"{at}.at")
    return BranchRow(
        id=number,
        parent=plain.parent,
        fork_seq=plain.at,
        created=plain.created,
        name=plain.name,
        operation=plain.operation,
        former=plain.former,
    )


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


def _tangent_fields(document: Any, *, has_log: bool) -> dict[str, Any] | None:
    """Return the state of a tangent, if any; the main conversation may be in the log only."""
    if document is None:
        return None
    at = "$.tangent_state"
    if not isinstance(document, dict):
        raise InvalidPayload(f"expected an object, got {type(document).__name__}", path=at)
    if has_log and "main_history" not in document:
        return None
    for name in ("main_history", "main_transcript"):
        if name not in document:
            raise InvalidPayload(f"the state of a tangent needs the field {name}", path=f"{at}.{name}")
    if type(document.get("tangent_start_time")) is not int:
        raise InvalidPayload("expected milliseconds since 1970", path=f"{at}.tangent_start_time")
    return document


def _checkpoints(document: Any) -> list[Entry]:
    """Return the entries for checkpoints, for a document without a log."""
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
    at = "$.tangent_state"
    summary = (
        [] if document.get("latest_summary") == tangent.get("main_latest_summary") else _summary(document)
    )
    pairs = enumerate(zip(main, entries, strict=False))
    shared = next((place for place, (one, other) in pairs if one != other), min(len(main), len(entries)))
    for entry in [*_summary(tangent, at, MAIN), *main[:shared]]:
        state.add(entry)
    place, log = state.log.head, state.log
    for entry in [*main[shared:], _lines(tangent, at, MAIN)]:
        log.add(entry)
    name, started = str(ids.message_id()), max(1, tangent["tangent_start_time"])
    fork = Fork(parent=place.branch, seq=place.seq, name=name, operation=TANGENT)
    own = [Tangent(name=name, started=started), *summary, *entries[shared:], _lines(document)]
    log.apply(Effect(fork=fork, entries=tuple(own)), now=started)
    state.use(log)


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
    """Return the entry for the summary, if there is one, for a document without a log."""
    summary, here = document.get(f"{prefix}latest_summary"), f"{at}.{prefix}latest_summary"
    if summary is None:
        return []
    if not (isinstance(summary, list) and len(summary) == 2 and isinstance(summary[0], str)):
        raise InvalidPayload("a summary must be a text and its metadata", path=here)
    known = _usage(summary[1], f"{here}[1]")
    return [carried(summary[0], known.details | ({"model": known.model} if known.model else {}))]


def _lines(document: dict[str, Any], at: str = "$", prefix: str = "") -> Note:
    """Return the entry for the transcript, for a document without a log."""
    lines = document[f"{prefix}transcript"]
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise InvalidPayload("a transcript must be a list of lines", path=f"{at}.{prefix}transcript")
    return Note("", tuple(lines))
