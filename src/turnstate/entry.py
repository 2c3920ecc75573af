"""Entries: everything that a log can hold, as a closed union. `codec` encodes and decodes them.

A message is an entry. A prompt and a bootstrap are sent before the messages; the newest on the path applies.
The same holds for the model and for the settings of a conversation, such as tools and sticky files.
Decisions change the view of the entries before them. The other entries record what a provider reported
(usage), lines for people (notes), values for programs (data), the start and end of tangents, and files that
were saved (checkpoints) or restored. A newer version may write a kind that this one does not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

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
    "EarlyEnd",
    "Entry",
    "FileLines",
    "Mask",
    "ModelChange",
    "Note",
    "Prompt",
    "Restore",
    "Revert",
    "SettingsChange",
    "Started",
    "Summary",
    "Tangent",
    "Usage",
    "effective",
]

CAP = "cap"
"""The operation of a cut that keeps a conversation within its maximum number of exchanges."""

# Texts shown in place of a missing tool result, by reason.
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

# Decisions change the view of a log. They are recorded so that they can be replayed and undone.


class Mask(Value, frozen=True, kw_only=True, tag="mask", tag_field="kind"):
    """Tool messages whose output is shown as one line from now on, and the tokens that this saves.

    ``limit`` is the limit that the mask was made for; the mask applies until the limit is much larger.
    ``scale`` is the number of tokens that the shares of long outputs are fractions of. A mask without ``ids``
    records only the scale, so that a small change of the budget neither shortens nor extends outputs that
    were already sent.

    With ``each``, the outputs are not hidden: each is shown in at most ``each`` tokens. ``ids`` are then all
    tool messages of one group, and the mask applies to exactly these messages.
    """

    ids: tuple[MessageId, ...]
    saved: int
    each: int = 0
    limit: int = 0
    scale: int = 0


class Cut(Value, frozen=True, kw_only=True, tag="cut", tag_field="kind"):
    """The whole view after a cut: what is kept, what is masked, and what replaces the rest.

    ``kept_from`` is the first message that is kept, together with everything after it. ``pinned`` are
    earlier messages that stay. ``masked`` are tool messages whose output is shown as one line. ``summary`` is
    the text that replaces the removed messages; it is empty if there is no room for any. The next cut folds
    ``digest`` into its own. ``covers`` names the first and the last message that were removed.

    ``cap`` limits the tokens of the summary, including one that a model writes; 0 means no limit.

    ``limit``, ``policy`` and ``counter`` record the conditions that the cut was made under; ``scale`` is the
    number of tokens that the shares of long outputs are fractions of. ``beside`` are earlier decisions that
    may still serve windows under other limits: cuts, without a ``beside`` of their own, and the decisions on
    top of them. So only the newest cut has to be read. ``archived_to`` is the last message of the path that
    is in a parcel for the memory engine.

    A cut with ``asked`` (the request and its outcome) was made on request and applies under every budget and
    policy until it is reverted. Users request most of them; a conversation requests one itself when it
    exceeds its number of exchanges. If such a cut keeps nothing, ``kept_from`` is None, and everything after
    the cut is kept. ``shares`` are the masks with ``each`` that apply to the kept messages.
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
        """True if the summary came from elsewhere: the messages that it covers are in no log."""
        return not self.covers[1] and self.asked.get("operation") != "clear"


class Summary(Value, frozen=True, kw_only=True, tag="summary", tag_field="kind"):
    """A model's summary, which replaces the digest of one cut.

    ``facts`` are facts about the same messages that code appends to the model's text. None means that they
    are not computed yet; the window then computes them from the cut's digest.
    """

    cut: str
    text: str
    facts: str | None = None
    source: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The whole text that the window shows: the model's text, then the facts."""
        return f"{self.text}\n{self.facts}" if self.facts else self.text


class Answer(Value, frozen=True, kw_only=True, tag="answer", tag_field="kind"):
    """A result that the core supplied for a call; the first real result of that call then counts as late.

    An answer with an ``id`` is shown at its own place in the log, as the tool message with that id. An answer
    without one records the text that a window shows before the message of a user who did not wait.
    """

    call: CallId
    text: str
    is_error: bool = True
    id: MessageId | None = None
    timestamp: str = ids.UNKNOWN_TIME

    def __post_init__(self) -> None:
        _ = self.message  # raises InvalidMessage if it cannot be a message

    @classmethod
    def give(cls, call: CallId, text: str, *, is_error: bool = True) -> Answer:
        """Create an answer with a new id and the current time."""
        return cls(call=call, text=text, is_error=is_error, id=ids.message_id(), timestamp=ids.now())

    @property
    def message(self) -> Message | None:
        """The tool message that shows the answer; None if it has no place of its own in the log."""
        if self.id is None:
            return None
        result = ToolCallResult(tool_call_id=self.call, result=self.text, is_error=self.is_error)
        return Message.tool([result], id=self.id, timestamp=self.timestamp)


class Revert(Value, frozen=True, kw_only=True, tag="revert", tag_field="kind"):
    """The reversal of a cut that the user requested, with all decisions on top of it.

    ``at`` is the number of the cut's entry. ``former`` is the number of the cut that applies again, or 0 if
    there is none, so that opening a session need not search for it.
    """

    cut: str
    at: int
    former: int


Decision = Cut | Mask | Summary | Answer | Revert


def effective(decisions: Iterable[Decision]) -> list[Decision]:
    """Return the decisions that apply, without reverted cuts and the decisions on top of them."""
    holding = list[Decision]()
    for decision in decisions:
        if not isinstance(decision, Revert):
            holding.append(decision)
            continue
        cuts = (place for place, one in enumerate(holding) if isinstance(one, Cut) and one.id == decision.cut)
        start = next(cuts, 0)  # if the cut is not among them, it is older than all of them
        holding[start:] = [one for one in holding[start:] if isinstance(one, Answer)]
    return holding


class Prompt(Value, frozen=True, tag="prompt", tag_field="kind"):
    """The system prompt from here on."""

    text: str


class Bootstrap(Value, frozen=True, tag="bootstrap", tag_field="kind"):
    """What is known about the user, from here on."""

    text: str


class ModelChange(Value, frozen=True, tag="model", tag_field="kind"):
    """The model, and the counter for messages, from here on.

    An empty id means that the conversation no longer has a model.
    """

    id: str
    counter: str


EarlyEnd = Literal["length", "refusal"]
"""Why a reply ended before its time."""

SUMMARY = "summary"
"""The ``purpose`` in the details of a usage that marks a request for a summary."""


# What providers call the reason why a reply ended, and what they say if it ended before its time.
_REASONS = ("finish_reason", "stop_reason", "stopReason", "finishReason", "reason")
_LENGTH = frozenset(
    {"length", "max_tokens", "max_output_tokens", "MAX_TOKENS", "model_context_window_exceeded"}
)
_REFUSAL = frozenset({"refusal", "content_filter", "SAFETY", "PROHIBITED_CONTENT", "guardrail_intervened"})


class Usage(Value, frozen=True, kw_only=True, tag="usage", tag_field="kind"):
    """What a provider reported about a request, and what else is known about it.

    ``counted`` is the number of tokens that we counted for the request under ``limit``. ``calibration`` is
    what all reports so far have shown, by model. So only the newest usage has to be read, and a replay builds
    each window under the limit that it had.
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
        """The fraction of the input that the provider read from its cache."""
        return self.cached / self.input if self.input else 0.0

    @property
    def is_of_reply(self) -> bool:
        """True if the request produced the reply before it; False if it was a request for a summary."""
        return self.details.get("purpose") != SUMMARY

    @property
    def reasons(self) -> frozenset[str]:
        """What the provider said about why the reply ended, in its own words."""
        return frozenset(said for name in _REASONS if isinstance(said := self.details.get(name), str))

    @property
    def ended_early(self) -> EarlyEnd | None:
        """Why the reply ended before its time: at the token limit, or because the model refused."""
        if self.reasons & _LENGTH:
            return "length"
        return "refusal" if self.reasons & _REFUSAL else None

    @property
    def paused(self) -> bool:
        """True if the provider paused in the middle of a turn, to continue once it gets its reply back."""
        return self.details.get("stop_reason") == "pause_turn"


class Started(Value, frozen=True, tag="started", tag_field="kind"):
    """Calls that are about to run; after a crash, it is unknown whether they did."""

    calls: tuple[CallId, ...]


class Note(Value, frozen=True, tag="note", tag_field="kind"):
    """A line for people; no model reads it. ``lines`` are all earlier lines, if they came from outside."""

    text: str
    lines: tuple[str, ...] | None = None


class SettingsChange(Value, frozen=True, tag="settings", tag_field="kind"):
    """The state of a conversation that is not in its messages, from here on."""

    fields: dict[str, Any]


class Data(Value, frozen=True, kw_only=True, tag="data", tag_field="kind"):
    """A named value that a program sets or deletes, from here on; no model reads it."""

    namespace: str
    key: str
    value: Any = None
    deleted: bool = False

    def __post_init__(self) -> None:
        settle(self, "namespace", "key")
        force_setattr(self, "value", strict_json.plain(self.value, at="value"))


class FileLines(Value, frozen=True, tag="lines", tag_field="kind"):
    """What the line tracker knows about one file, from here on; None if it no longer tracks the file."""

    path: str
    record: dict[str, Any] | None


class Tangent(Value, frozen=True, kw_only=True, tag="tangent", tag_field="kind"):
    """The start of a tangent (``started``, in milliseconds), or its end, where the conversation continues.

    Its messages are on the branch of that name, or on a ``branch`` that a rewind in the tangent made. The end
    has the user's first words in it as its ``opening``, so that a list of tangents reads no messages.
    ``undone`` is the number of the entry that ended the tangent before: that was undone, and the tangent goes
    on after this entry. It is on the tangent's branch; older versions wrote it on the branch of the exit.
    """

    name: str
    started: int = 0
    branch: int = 0
    undone: int = 0
    opening: str = ""


START = "0"
"""The label of the first checkpoint; any before it on a path are gone, or on another machine."""


class Checkpoint(Value, frozen=True, kw_only=True, tag="checkpoint", tag_field="kind"):
    """The files as they were at this point: ``commit`` identifies them, ``label`` is the name for people.

    ``tool`` is the tool that changed them, and ``call`` the call of it; a checkpoint of a turn has neither.
    ``ran`` are the calls that had run by then, whether or not their results were in the log. ``added``,
    ``modified`` and ``deleted`` count the changes since the previous checkpoint. The first checkpoint names
    the ``work_tree``, for people to read.
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
        """The time at which the files were saved."""
        return utc(self.at)


class Restore(Value, frozen=True, kw_only=True, tag="restore", tag_field="kind"):
    """The restore of a checkpoint: its files, its conversation, or both.

    ``undo`` is the name of this restore and of the files before it. ``undone`` is the number of an earlier
    restore of files only, which this one undid.
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
    | SettingsChange
    | Data
    | FileLines
    | Tangent
    | Checkpoint
    | Restore
)
