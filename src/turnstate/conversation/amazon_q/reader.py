"""Reads an Amazon Q document: its history as entries, the rest as settings, a tangent as a branch.

The main conversation is one branch; an open tangent is another, forked where the two begin to differ. If
Amazon Q has compacted the conversation, the summary comes first, since it keeps everything that follows. The
stored valid range is ignored: it is derived from the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import structs

from ... import ids, strict_json
from ...context.cut import carried
from ...context.policy import OutputLimits
from ...context.tally import Tally
from ...context.turns import synthetic
from ...entry import CANCELLED, Entry, Note, Tangent
from ...log.operations import Effect
from ...log.tangents import TANGENT
from ...message import Message
from ...stores.values import Fork
from ...tokens import counter
from ...value import Extra
from ..environment import Os
from ..state import ConversationState
from . import fields, schema, times
from . import fields as kept
from . import fields as metadata
from . import fields as snapshots
from . import messages as assistants
from . import messages as users
from .messages import Naming

# Exchanges as a window would send them: every call is answered by what follows it and by nothing else.


BROKEN = "broken"


Sides = list[tuple[Message, ...]]


def repaired(sides: Sequence[Sequence[Message]], answers: Sequence[Message]) -> tuple[Sides, list[Message]]:
    """Return the user's sides (also the one after the last answer) and the answers, with calls matched."""
    (*sound, waiting), unmatched = _sound(sides, answers)
    sound.append(waiting if sides[-1] else _cancelled(unmatched[-1]) if unmatched else ())
    kept = [
        tuple(verbatim) if any(map(_is_marked, verbatim)) else one
        for verbatim, one in zip(sides, sound, strict=True)
    ]
    return kept, unmatched


def _cancelled(last: Message) -> tuple[Message, ...]:
    """Return what the user says to the calls that a conversation ends with: no one will answer them there.

    Calls that were read from a document are still open in Amazon Q itself, so it gets them back as they were.
    """
    is_theirs = ids.is_derived(last.id) and (last.native is None or last.native.format == assistants.FORMAT)
    if is_theirs or not last.tool_calls:
        return ()
    answer = synthetic(last, list(last.tool_calls), CANCELLED)
    return (structs.replace(answer, extra=Extra({users.CANCELLED: True})),)


def marked(entries: Iterable[Entry]) -> list[Entry]:
    """Mark the messages of a document in which calls and results do not match."""
    listed = list(entries)
    sides: list[list[Message]] = [[]]
    answers: list[Message] = []
    for entry in listed:
        if isinstance(entry, Message) and entry.role == "assistant":
            answers.append(entry)
            sides.append([])
        elif isinstance(entry, Message):
            sides[-1].append(entry)
    sound, _ = _sound(sides, answers)
    broken = {
        verbatim[-1].id for verbatim, one in zip(sides, sound, strict=True) if verbatim and verbatim != [*one]
    }
    return [_mark(one) if isinstance(one, Message) and one.id in broken else one for one in listed]


def _sound(sides: Sequence[Sequence[Message]], answers: Sequence[Message]) -> tuple[Sides, list[Message]]:
    structure = Tally(counter("estimate"), OutputLimits.unlimited(), shared=True)  # nothing is counted
    for side, answer in zip(sides, answers, strict=False):
        structure.extend([*side, answer])
    structure.extend(sides[-1])
    found: list[list[Message]] = [[]]
    unmatched: list[Message] = []
    for message in structure.sent():
        if message.role == "assistant":
            unmatched.append(message)
            found.append([])
        else:
            found[-1].append(message)
    return list(map(tuple, found)), unmatched


def _mark(message: Message) -> Message:
    extra = message.extra if isinstance(message.extra, Extra) else {}
    return structs.replace(message, extra=Extra({**extra, BROKEN: True}))


def _is_marked(message: Message) -> bool:
    return isinstance(message.extra, Extra) and message.extra.get(BROKEN) is True


LARGEST = 256 * 1024 * 1024
"""Maximum bytes of a document, in which images are lists of numbers and checkpoints copy the history."""

ENTRIES = ("history", "next_message", "transcript", "latest_summary")
"""Fields that become entries; in the state of a tangent, they are the main conversation's."""

MAIN = "main_"
SUMMARIZED = "request"

_ELSEWHERE = (*ENTRIES, "conversation_id", "valid_history_range", "checkpoint_manager", "tangent_state")
_NULLABLE = ("next_message", "latest_summary", "checkpoint_manager")
_START = "tangent_start_time"


def load(data: bytes | str, *, os: Os | None = None) -> ConversationState:
    """Read a file, or a row of the database, as strict JSON."""
    return _read(strict_json.read(data, max_bytes=LARGEST, max_depth=strict_json.MAX_VALUE_DEPTH), os)


def read(document: Any, *, os: Os | None = None) -> ConversationState:
    """Read a conversation; raise `InvalidPayload` with the path to the part that cannot be read."""
    return _read(strict_json.plain(document), os)


def _read(document: Any, os: Os | None) -> ConversationState:
    schema.check(document)
    state = ConversationState(document["conversation_id"], os=os)
    tangent = document.get("tangent_state")
    main = document if tangent is None else _main(tangent)
    at = "$" if tangent is None else f"$.tangent_state.{MAIN}"
    fields.restore(state, document)
    started = _started(tangent, state.os) if tangent is not None else 0
    state.extra = _foreign(state, document, main["history"], started)
    state.record_settings()
    log = state.log
    settled = log.head.seq
    entries = marked(_entries(main, Naming(state.conversation_id), at))
    log.apply(Effect(entries=tuple(entries)))
    _retell(state, main["transcript"])
    if tangent is not None:
        _enter_tangent(state, settled, entries, document, started)
    state.settle()
    return state


def _main(tangent: dict[str, Any]) -> dict[str, Any]:
    return {name: tangent.get(MAIN + name) for name in ENTRIES}


def _started(tangent: dict[str, Any], os: Os) -> int:
    if _START not in tangent:
        return max(1, os.now())
    return times.start_milliseconds(tangent[_START], at=f"$.tangent_state.{_START}")


def _foreign(
    state: ConversationState, document: dict[str, Any], main: Sequence[Any], started: int
) -> dict[str, Any]:
    """Return what a state has no field for: fields that we would write differently, and checkpoints."""
    theirs = {name: value for name, value in document.items() if value is None or name not in _ELSEWHERE}
    ours = fields.written(state) | {name: None for name in _NULLABLE if document.get(name) is None}
    checkpoints = document.get("checkpoint_manager")
    found = {
        "fields": kept.differing(ours, theirs) or None,
        "tangent_state": _foreign_tangent(document.get("tangent_state"), started) or None,
        "checkpoint_manager": None if checkpoints is None else snapshots.folded(checkpoints, main),
    }
    found = {name: value for name, value in found.items() if value is not None}
    return {fields.KEPT: found} if found else {}


def _foreign_tangent(tangent: dict[str, Any] | None, started: int) -> dict[str, Any]:
    if tangent is None:
        return {}
    main = [MAIN + name for name in ENTRIES]
    theirs = {name: value for name, value in tangent.items() if value is None or name not in main}
    nothing = {name: None for name in main if tangent.get(name) is None}
    return kept.differing({_START: times.start_numbers(started), **nothing}, theirs)


def _enter_tangent(
    state: ConversationState, settled: int, entries: Sequence[Entry], document: dict[str, Any], started: int
) -> None:
    """Add the branch of the tangent, forked from the main one where the two differ."""
    id, log = document["conversation_id"], state.log
    shared = _shared(entries, marked(_entries(document, Naming(id), "$")))
    messages = sum(isinstance(entry, Message) for entry in entries[:shared])
    own = marked(_entries(document, Naming(id, aside_from=messages), "$"))[shared:]
    name = str(ids.derived_id(shared, id.encode()))
    fork = Fork(parent=log.head.branch, seq=settled + shared, name=name, operation=TANGENT)
    log.apply(Effect(fork=fork, entries=(Tangent(name=name, started=started), *own)), now=started)
    state.use(log)
    _retell(state, document["transcript"])


def _shared(one: Sequence[Entry], other: Sequence[Entry]) -> int:
    pairs = zip(one, other, strict=False)
    differing = (place for place, (mine, yours) in enumerate(pairs) if mine != yours)
    return next(differing, min(len(one), len(other)))


def _entries(document: dict[str, Any], naming: Naming, at: str) -> Iterator[Entry]:
    """Yield summary, history and next message as entries."""
    join = "" if at.endswith("_") else "."
    if (summary := document.get("latest_summary")) is not None:
        yield carried(summary[0], {SUMMARIZED: summary[1]})
    for place, entry in enumerate(document["history"]):
        here = f"{at}{join}history[{place}]"
        record = entry.get("request_metadata")
        sent, answered = _times(record)
        yield from users.read_user(entry["user"], naming, sent_at=sent, at=f"{here}.user")
        yield assistants.read_assistant(entry, naming, answered_at=answered)
        if record is not None:
            yield metadata.read(record)
    if (waiting := document.get("next_message")) is not None:
        here = f"{at}{join}next_message"
        yield from users.read_user(waiting, naming, sent_at=ids.UNKNOWN_TIME, at=here)


def _times(record: dict[str, Any] | None) -> tuple[str, str]:
    """Return when a request was sent and answered."""
    if record is None:
        return ids.UNKNOWN_TIME, ids.UNKNOWN_TIME
    begun, ended = record["request_start_timestamp_ms"], record["stream_end_timestamp_ms"]
    return times.of_milliseconds(begun), times.of_milliseconds(ended)


def _retell(state: ConversationState, lines: Sequence[str]) -> None:
    """Add the transcript of the document if it differs from the one that the messages produce."""
    if state.shown.lines != lines:
        state.log.add(Note("", tuple(lines)))
