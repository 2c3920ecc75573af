"""Entries: everything that a log can hold, as a closed union, and their bytes.

A message is an entry as it stands. A prompt and a bootstrap are what the core says before the
messages; the newest on the path counts, as it does of the settings that go with a conversation: tools,
model, sticky files. Decisions change the view of what came before them. Usage is what a provider
reported; a note is for people; a tangent began or was left; the files of a moment were kept, or brought
back. A kind that this version does not know was written by a newer one.
"""

from __future__ import annotations

from typing import Any

import msgspec

from . import codec
from .decision import Answer, Cut, Decision, Mask, Revert, Summary
from .errors import InvalidPayload, NewerFormat, TurnstateError
from .ids import CallId
from .message import Message
from .value import Value

__all__ = [
    "Bootstrap",
    "Checkpoint",
    "Entry",
    "FileLines",
    "Note",
    "Prompt",
    "Restore",
    "Settings",
    "Tangent",
    "Usage",
    "decode",
    "encode",
    "kind_of",
]


class Prompt(Value, frozen=True, tag="prompt", tag_field="kind"):
    """The system prompt from here on."""

    text: str


class Bootstrap(Value, frozen=True, tag="bootstrap", tag_field="kind"):
    """What is known of the user, from here on."""

    text: str


class Usage(Value, frozen=True, kw_only=True, tag="usage", tag_field="kind"):
    """What a provider reported of a request, and what else is known of it."""

    input: int = 0
    output: int = 0
    cached: int = 0
    model: str = ""
    details: dict[str, Any] = msgspec.field(default_factory=dict)


class Note(Value, frozen=True, tag="note", tag_field="kind"):
    """A line for people; no model reads it. ``lines`` are all the lines before, if they came from outside."""

    text: str
    lines: tuple[str, ...] | None = None


class Settings(Value, frozen=True, tag="settings", tag_field="kind"):
    """Everything of a conversation's state that no message says, from here on."""

    fields: dict[str, Any]


class FileLines(Value, frozen=True, tag="lines", tag_field="kind"):
    """What the line tracker knows of one file, from here on; nothing, where it knows it no more."""

    path: str
    record: dict[str, Any] | None


class Tangent(Value, frozen=True, kw_only=True, tag="tangent", tag_field="kind"):
    """A tangent began here (``started``, in milliseconds), or was left, and the conversation goes on here.

    What was said in it stands on the branch of that name, or on a ``branch`` that a rewind in it made.
    ``undone`` is the number of an earlier entry that says that it was left: it was taken up again.
    """

    name: str
    started: int = 0
    branch: int = 0
    undone: int = 0


class Checkpoint(Value, frozen=True, kw_only=True, tag="checkpoint", tag_field="kind"):
    """The files of this moment were kept: ``commit`` names them, ``label`` is what people call the moment.

    ``tool`` is the tool that had changed them, and ``call`` the call of it; a turn has none. ``ran`` are
    the calls that had been run by then, whether their results were in the log or not. What changed since
    the checkpoint before is counted.
    """

    label: str
    commit: str
    description: str = ""
    at: int = 0
    tool: str | None = None
    call: CallId | None = None
    ran: tuple[CallId, ...] = ()
    added: int = 0
    modified: int = 0
    deleted: int = 0


class Restore(Value, frozen=True, kw_only=True, tag="restore", tag_field="kind"):
    """A checkpoint was restored: its files, its conversation, or both.

    ``undo`` is the name of this restore, and of the files before it. ``undone`` is the number of an
    earlier restore of files alone, which this one took back.
    """

    label: str
    commit: str
    undo: str = ""
    files: bool = True
    conversation: bool = True
    undone: int = 0


Entry = (
    Message
    | Prompt
    | Bootstrap
    | Decision
    | Usage
    | Note
    | Settings
    | FileLines
    | Tangent
    | Checkpoint
    | Restore
)

_KINDS: dict[str, type[Any]] = {
    "prompt": Prompt,
    "bootstrap": Bootstrap,
    "cut": Cut,
    "compaction": Cut,
    "mask": Mask,
    "summary": Summary,
    "answer": Answer,
    "revert": Revert,
    "usage": Usage,
    "note": Note,
    "settings": Settings,
    "lines": FileLines,
    "tangent": Tangent,
    "checkpoint": Checkpoint,
    "restore": Restore,
}
_NAMES = {kind: name for name, kind in _KINDS.items()} | {Message: "message", Cut: "cut"}
_DECODERS = {name: msgspec.json.Decoder(kind) for name, kind in _KINDS.items()}
_encoder = msgspec.json.Encoder()


def kind_of(entry: Entry) -> str:
    """Name the kind of an entry; a cut that the user asked for goes by a name of its own."""
    return "compaction" if isinstance(entry, Cut) and entry.asked else _NAMES[type(entry)]


def encode(entry: Entry) -> bytes:
    """Write an entry as UTF-8 JSON."""
    return codec.encode(entry) if isinstance(entry, Message) else _encoder.encode(entry)


def decode(kind: str, data: bytes) -> Entry:
    """Read an entry; bytes that are none raise a typed error."""
    if kind == "message":
        return codec.decode(data)
    if kind not in _DECODERS:
        raise NewerFormat(
            f"an entry of the kind {kind!r:.40} was written by a newer Turnstate; update this one"
        )
    try:
        entry: Entry = _DECODERS[kind].decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, TurnstateError) as error:
        raise InvalidPayload(f"a damaged {kind}: {error}") from None
    return entry
