"""Entries: everything that a log can hold, as a closed union. `codec` writes and reads their bytes.

A message is an entry. A prompt and a bootstrap are sent before the messages; the newest on the path
counts, as it does for the model, and for the settings of a conversation: tools, sticky files. Decisions
change the view of what came before them. Usage is what a provider reported; a note is for people; a tangent
began or was left; data is kept for programs; files were saved in a checkpoint, or restored. A newer version
may write a kind that this one does not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from . import ids, strict_json
from .ids import CallId, MessageId, utc
from .message import Message, ToolCallResult
from .value import Value, settle

__all__ = [
    "ABANDONED",
    "CANCELLED",
    "CAP",
    "INTERRUPTED",
    "LEFT",
    "PENDING",
    "RAN",
    "START",
    "UNCERTAIN",
    "UNDONE",
    "Answer",
    "Bootstrap",
    "Checkpoint",
    "Cut",
    "Data",
    "Decision",
    "Entry",
    "FileLines",
    "Mask",
    "ModelChange",
    "Note",
    "Prompt",
    "Restore",
    "Revert",
    "Settings",
    "Started",
    "Summary",
    "Tangent",
    "Usage",
    "effective",
]

CAP = "cap"
"""The operation of a cut that keeps a conversation within the number of exchanges that it shows."""

# The table of texts that are shown as the result of a call that has none, by the reason.
PENDING = "[Still running.]"
ABANDONED = "[No result: the conversation went on without it.]"
CANCELLED = "Tool use was cancelled by the user"
INTERRUPTED = "[No result: the process ended while the tool was running.]"
UNCERTAIN = (
    "[No result: the process ended after the tool was started. It may have run; check before you repeat it.]"
)
LEFT = "The tangent was left before the tool answered"
RAN = "[The tool ran before this moment was kept; its output is not in this history.]"
UNDONE = "[No result: the conversation went back to a moment when this tool had not finished.]"

# Decisions: what changes the view of a log, written down so that it can be replayed and undone.


class Mask(Value, frozen=True, kw_only=True, tag="mask", tag_field="kind"):
    """Tool messages whose output is shown as a line from now on, and the tokens that it saves.

    ``limit`` is the limit that the mask was made for; it holds until the limit is much larger. ``scale`` is
    what the shares of long outputs were taken of. A mask without ``ids`` records the scale alone, so that a
    budget that moves a little does not shorten outputs that were sent, or show more of them.

    With ``each``, the outputs are not hidden: each is shown in that many tokens at most. ``ids`` are then
    all tool messages of one group, and the mask holds for exactly these messages.
    """

    ids: tuple[MessageId, ...]
    saved: int
    each: int = 0
    limit: int = 0
    scale: int = 0


class Cut(Value, frozen=True, kw_only=True, tag="cut", tag_field="kind"):
    """The whole view after a cut: what is kept, what is masked, what replaces the rest.

    ``kept_from`` is the first message that is kept with all that follows; ``pinned`` are earlier
    messages that stay; ``masked`` are tool messages whose output is shown as a line; ``summary``
    is the text in place of what left (empty if there is no room for any), ``digest`` what
    the next cut folds into its own. ``covers`` names the first and the last message that left.

    ``cap`` is the number of tokens that its summary may take, a model's included; 0 if it is not limited.

    ``limit``, ``policy`` and ``counter`` say what it was made under, and ``scale`` what the shares of long
    outputs were taken of. ``beside`` are earlier decisions that may still serve windows under other limits:
    cuts, without a ``beside`` of their own, and what was decided on top of them. So the newest cut is all
    that has to be read. ``archived_to`` is the last message of the path that a parcel for the memory
    engine holds.

    A cut that was ``asked`` for (what was wanted, and what it came to) holds under every budget and policy,
    until it is reverted. The user asks for most of them; a conversation asks for one itself when it has more
    exchanges than it shows. Where it keeps nothing, ``kept_from`` is None: all that follows is kept.
    ``shares`` are the masks with ``each`` that hold for what is kept.
    """

    id: str
    kept_from: MessageId | None
    pinned: tuple[MessageId, ...] = ()
    masked: tuple[MessageId, ...] = ()
    summary: str
    digest: dict[str, Any] = msgspec.field(default_factory=dict)
    covers: tuple[MessageId, MessageId]
    limit: int
    policy: str
    counter: str
    cap: int = 0
    asked: dict[str, Any] = msgspec.field(default_factory=dict)
    shares: tuple[Mask, ...] = ()
    scale: int = 0
    archived_to: MessageId | None = None
    beside: tuple[Cut | Mask | Summary, ...] = ()

    @property
    def imported(self) -> bool:
        """Whether the summary came from elsewhere: the messages that it covers are in no log."""
        return not self.covers[1] and self.asked.get("operation") != "clear"


class Summary(Value, frozen=True, kw_only=True, tag="summary", tag_field="kind"):
    """A model's text in place of the digest of one cut.

    ``facts`` is what code knows of the same messages and adds to the model's words; None if it was
    not computed yet, in which case the window computes it from the cut's digest.
    """

    cut: str
    text: str
    facts: str | None = None
    source: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The whole text that the window shows: the model's words, then the facts."""
        return f"{self.text}\n{self.facts}" if self.facts else self.text


class Answer(Value, frozen=True, kw_only=True, tag="answer", tag_field="kind"):
    """A result that the core gave for a call; the first real result of that call is a late one.

    An answer with an ``id`` is shown at its own place in the log, as the tool message of that id. An
    answer without one records what a window shows before the words of a user who did not wait.
    """

    call: CallId
    text: str
    is_error: bool = True
    id: MessageId | None = None
    timestamp: str = ids.UNKNOWN_TIME

    def __post_init__(self) -> None:
        _ = self.message  # raises InvalidMessage if no message can be made of it

    @classmethod
    def give(cls, call: CallId, text: str, *, is_error: bool = True) -> Answer:
        """Answer a call here and now."""
        return cls(call=call, text=text, is_error=is_error, id=ids.message_id(), timestamp=ids.now())

    @property
    def message(self) -> Message | None:
        """The tool message that the answer is shown as; None if it is not shown at its own place."""
        if self.id is None:
            return None
        result = ToolCallResult(tool_call_id=self.call, result=self.text, is_error=self.is_error)
        return Message.tool([result], id=self.id, timestamp=self.timestamp)


class Revert(Value, frozen=True, kw_only=True, tag="revert", tag_field="kind"):
    """A cut that the user asked for is reverted, with all decisions that were made on top of it.

    ``at`` is the number of its entry and ``former`` that of the cut which holds again, 0 where none does:
    so opening a session need not look for it.
    """

    cut: str
    at: int
    former: int


Decision = Cut | Mask | Summary | Answer | Revert


def effective(decisions: Iterable[Decision]) -> list[Decision]:
    """Return the decisions that hold: none that was reverted, nor what was decided on top of it."""
    holding = list[Decision]()
    for decision in decisions:
        if not isinstance(decision, Revert):
            holding.append(decision)
            continue
        cuts = (place for place, one in enumerate(holding) if isinstance(one, Cut) and one.id == decision.cut)
        start = next(cuts, 0)  # where it is not among them, it is older than they are
        holding[start:] = [one for one in holding[start:] if isinstance(one, Answer)]
    return holding


class Prompt(Value, frozen=True, tag="prompt", tag_field="kind"):
    """The system prompt from here on."""

    text: str


class Bootstrap(Value, frozen=True, tag="bootstrap", tag_field="kind"):
    """What is known of the user, from here on."""

    text: str


class ModelChange(Value, frozen=True, tag="model", tag_field="kind"):
    """The model from here on, and the counter in which messages are counted from here on.

    An empty id means that the conversation has no model any more.
    """

    id: str
    counter: str


SUMMARY = "summary"
"""The purpose, among the details of a usage, of a request for a summary."""


class Usage(Value, frozen=True, kw_only=True, tag="usage", tag_field="kind"):
    """What a provider reported of a request, and what else is known of it.

    ``counted`` are the tokens that we had counted for it under ``limit``; ``calibration`` is what all reports
    so far have taught, by the model that was asked. So the newest usage is all that has to be read, and a
    replay makes each window under the limit that it had.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    model: str = ""
    details: dict[str, Any] = msgspec.field(default_factory=dict)
    counted: int = 0
    limit: int = 0
    calibration: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def cached_share(self) -> float:
        """The part of the input that the provider read from its cache."""
        return self.cached / self.input if self.input else 0.0

    @property
    def is_of_reply(self) -> bool:
        """Whether the reply before it answered the request; if not, it was one for a summary."""
        return self.details.get("purpose") != SUMMARY

    @property
    def paused(self) -> bool:
        """Whether the provider stopped in the middle of a turn, to go on when it gets its reply back."""
        return self.details.get("stop_reason") == "pause_turn"


class Started(Value, frozen=True, tag="started", tag_field="kind"):
    """Calls that are about to run: after a crash, no one knows whether they did."""

    calls: tuple[CallId, ...]


class Note(Value, frozen=True, tag="note", tag_field="kind"):
    """A line for people; no model reads it. ``lines`` are all the lines before, if they came from outside."""

    text: str
    lines: tuple[str, ...] | None = None


class Settings(Value, frozen=True, tag="settings", tag_field="kind"):
    """Everything of a conversation's state that no message says, from here on."""

    fields: dict[str, Any]


class Data(Value, frozen=True, kw_only=True, tag="data", tag_field="kind"):
    """A value that a program keeps under a name, from here on, or its deletion; no model reads it."""

    namespace: str
    key: str
    value: Any = None
    deleted: bool = False

    def __post_init__(self) -> None:
        settle(self, "namespace", "key")
        force_setattr(self, "value", strict_json.plain(self.value, at="value"))


class FileLines(Value, frozen=True, tag="lines", tag_field="kind"):
    """What the line tracker knows of one file, from here on; nothing, where it knows it no more."""

    path: str
    record: dict[str, Any] | None


class Tangent(Value, frozen=True, kw_only=True, tag="tangent", tag_field="kind"):
    """A tangent began here (``started``, in milliseconds), or was left, and the conversation goes on here.

    Its messages are on the branch of that name, or on a ``branch`` that a rewind in it made.
    ``undone`` is the number of an earlier entry that says that it was left: it was taken up again.
    """

    name: str
    started: int = 0
    branch: int = 0
    undone: int = 0


START = "0"
"""The label of the checkpoint at the start; those before it on a path are gone, or on another machine."""


class Checkpoint(Value, frozen=True, kw_only=True, tag="checkpoint", tag_field="kind"):
    """The files of this moment were kept: ``commit`` names them, ``label`` is what people call the moment.

    ``tool`` is the tool that had changed them, and ``call`` the call of it; a turn has none. ``ran`` are
    the calls that had been run by then, whether their results were in the log or not. What changed since
    the checkpoint before is counted. The one at the start names the ``work_tree`` for people to read.
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
    work_tree: str = ""

    @property
    def time(self) -> datetime:
        """When the files were saved."""
        return utc(self.at)


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
    | ModelChange
    | Decision
    | Usage
    | Started
    | Note
    | Settings
    | Data
    | FileLines
    | Tangent
    | Checkpoint
    | Restore
)
