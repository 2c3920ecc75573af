"""What is loaded of a path: the part that windows are made of, growing with the log.

Rows are folded in the order of the log: messages, the newest prompt and bootstrap, the decisions
since the last cut. It begins at the newest cut, so that opening a long session reads little, or at
the root, where a cut cannot be used. A row that is damaged is set aside here and reported; what
stands around it is served.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ..context.head import Head
from ..context.manager import StateManager
from ..context.policy import Budget
from ..context.reduction import Limits
from ..context.rounds import is_shown_as
from ..context.tally import Tally
from ..entry import Answer, Bootstrap, Cut, Decision, Entry, Prompt, Summary, effective
from ..ids import CallId
from ..log.records import COUNTED_WHOLE
from ..message import Message, ToolCallRequest, ToolCallResult
from ..stores.values import Position, Row, Span
from ..tokens.exact import INLINE
from ..toolspec import ToolSpec

__all__ = ["Growth", "Loaded"]

_MANY_BYTES = 4_000_000
"""Of messages that are loaded: a cut may have to read them all."""


class Loaded:
    """Messages and decisions of a path, from some entry on to its head."""

    def __init__(self, path: Sequence[Span], *, first: int) -> None:
        self.path = list(path)
        self.first = first
        self.head = Position(path[0].branch if path else 0, first - 1)
        self.at_head = ""  # id of the entry there, as far as it is known
        self.written_over = False
        self.prompt: str | None = None
        self.bootstrap: str | None = None
        self.messages = list[Message]()
        self.places = dict[str, int]()
        self.decisions = list[Decision]()
        self.damaged = list[Row]()
        self.calls = dict[CallId, ToolCallRequest]()
        self.results = dict[CallId, ToolCallResult]()
        self.batch: tuple[ToolCallRequest, ...] = ()
        self._counts = list[tuple[int, int]]()
        self._bytes = 0
        self._cut_at = dict[str, int]()  # how many messages there were when a cut was made
        self._tally: Tally | None = None
        self._tallied = 0

    @property
    def whole(self) -> bool:
        """Whether it begins at the root."""
        return self.first <= 1

    @property
    def cut(self) -> Cut | None:
        """The newest cut that holds."""
        return next((one for one in reversed(effective(self.decisions)) if isinstance(one, Cut)), None)

    def kept_place(self, cut: Cut) -> int:
        """Give the place of the first message that a cut kept; 0 where it is the first that is loaded."""
        if cut.kept_from is not None:
            known = self.places.get(cut.kept_from)
            late = (at for at, one in enumerate(self.messages) if is_shown_as(one, cut.kept_from))
            return known if known is not None else next(late, 0)
        last = self.places.get(cut.covers[1])
        if cut.asked.get("operation") == "clear" or (last is None and self.whole):
            return self._cut_at.get(cut.id, 0)
        return last + 1 if last is not None else 0

    def summary_of(self, cut: Cut | None) -> str:
        """Give the text that stands for what a cut covers: a model's where there is one, else the digest."""
        if cut is None:
            return ""
        summary = self.model_summary(cut)
        return summary.shown if summary else cut.summary

    def model_summary(self, cut: Cut) -> Summary | None:
        """Return the newest summary that a model wrote for a cut."""
        written = (one for one in reversed(self.decisions) if isinstance(one, Summary))
        return next((one for one in written if one.cut == cut.id), None)

    def add(self, row: Row, entry: Entry | None) -> None:
        """Fold the next row in, given its entry; none where it is damaged."""
        self.head, self.at_head = Position(row.branch, row.seq), row.id
        self.recall(row, entry)

    def recall(self, row: Row, entry: Entry | None) -> None:
        """Fold a row in that stands before the part that is loaded."""
        if entry is None:
            self.damaged.append(row)
        else:
            self._fold(entry, row.tokens, len(row.body))

    def grow(self, entries: Sequence[tuple[Entry, int, int]], head: Position, at_head: str = "") -> None:
        """Fold entries in that were just written, each with its tokens and bytes."""
        self.head, self.at_head = head, at_head
        for entry, tokens, size in entries:
            self._fold(entry, tokens, size)

    def tokens_of(self, id: str) -> int:
        """Give the stored count of a message."""
        return self._counts[self.places[id]][0]

    def message_head(self, tools: Sequence[ToolSpec], context: str | None, memory: str | None) -> Head:
        """Give what stands before the messages."""
        return Head(
            system=self.prompt,
            bootstrap=self.bootstrap,
            context=context,
            memory=memory,
            tools=tuple(tools),
        )

    def growth(self, manager: StateManager, budget: Budget) -> Growth:
        """Take the tally out, with what it lacks: it may grow in a thread while more is folded in here.

        `keep` puts it back. Without that, the next one is built anew.
        """
        limits, tally = manager.limits(budget), self._tally
        if tally is not None and tally.limits != limits:
            tally = None
        first = self._tallied if tally is not None else 0
        self._tally = None
        return Growth(manager, budget, tally, self.messages[first:], self._counts[first:], self._bytes)

    def keep(self, tally: Tally) -> None:
        """Put a tally back that has grown."""
        self._tally, self._tallied = tally, tally.length

    def _fold(self, entry: Entry, tokens: int, size: int) -> None:
        match entry:
            case Message():
                self._fold_message(entry, tokens, size)
            case Prompt(text=text):
                self.prompt = text
            case Bootstrap(text=text):
                self.bootstrap = text
            case Answer():  # it is no result: the first real one is taken, however late
                self.decisions.append(entry)
                if shown := entry.message:
                    self._show(shown, tokens, size)
            case _ if isinstance(entry, Decision):
                self.decisions.append(entry)
                if isinstance(entry, Cut):
                    self._cut_at[entry.id] = len(self.messages)

    def _fold_message(self, message: Message, tokens: int, size: int) -> None:
        self._show(message, tokens, size)
        if message.tool_calls:
            self.batch = message.tool_calls
            self.calls.update((call.id, call) for call in message.tool_calls)
            for call in message.tool_calls:  # an id that is used again names the newer call
                self.results.pop(call.id, None)
        for result in message.tool_results:
            self.results.setdefault(result.tool_call_id, result)

    def _show(self, message: Message, tokens: int, size: int) -> None:
        self.places[message.id] = len(self.messages)
        self.messages.append(message)
        self._counts.append((tokens, size))
        self._bytes += size


class Growth(Struct, frozen=True):
    """A tally, if there is one, and the messages that it lacks, with their stored counts and sizes."""

    manager: StateManager
    budget: Budget
    tally: Tally | None
    messages: list[Message]
    counts: list[tuple[int, int]]
    loaded_bytes: int

    @property
    def is_large(self) -> bool:
        """Whether a window takes long enough to make that a loop should go on meanwhile."""
        return sum(size for _, size in self.counts) > INLINE or self.loaded_bytes > _MANY_BYTES

    def grown(self) -> Tally:
        """Return the tally with all messages in it."""
        limits, rows = self.manager.limits(self.budget), zip(self.messages, self.counts, strict=True)
        if self.tally is None:
            counts = [(one, tokens) for one, (tokens, size) in rows if _is_sure(one, size, limits)]
            return self.manager.tally(self.messages, self.budget, stored=True, counts=counts)
        for message, (tokens, size) in rows:
            if _is_sure(message, size, limits):
                self.tally.foresee(message, tokens)
            self.tally.add(message)
        return self.tally


def _is_sure(message: Message, size: int, limits: Limits) -> bool:
    """Tell whether the stored count holds: it was counted whole, and is too short to be reduced."""
    return message.role != "tool" or size <= min(COUNTED_WHOLE, limits.soft)
