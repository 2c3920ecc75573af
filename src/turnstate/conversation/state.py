"""The state of a conversation: history, next message, what may be sent, tangents, tools and files.

It is synchronous and does no I/O: every change is an entry that is folded in immediately and written by
``await session.commit(state)``. Most fields are views of the entries; the rest (tools, model, sticky
files, line tracker) is recorded as entries when it changes. Without a session, the state lives in memory
and in JSON. ``tool_manager``, ``agents`` and ``checkpoints`` are never stored: attach them after a restore.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import catalog, ids
from ..catalog import ModelInfo
from ..context.cut import PendingCut, Strategy, cleared, compacted, compaction
from ..context.live_window import LiveWindow
from ..context.manager import StateManager
from ..context.policy import Budget, Policy
from ..context.preface import Preface
from ..context.summary import with_facts
from ..context.summary_text import filled
from ..context.turns import note
from ..context.window import Window
from ..entry import (
    CANCELLED,
    Answer,
    Cut,
    Decision,
    Note,
    Prompt,
    Revert,
    Summary,
)
from ..errors import InputError, InvalidMessage
from ..ids import MessageId
from ..log.fold import open_calls
from ..log.undo import UndoSearch
from ..message import Message, ToolCallResult
from ..part import Part
from ..sticky import Gathered
from ..toolspec import ToolSpec
from ..value import refuse
from .environment import Agents, Checkpoints, Os, System, ToolSource
from .history import MAX_TRANSCRIPT_LEN, CheckpointState, HistoryEntry, RequestMetadata, UserMessage
from .settings import is_stored
from .tangents import Tangents
from .tools import BUILTIN, ToolOrigin, repaired, specs

DEFAULT_BUDGET = Budget(200_000, output=4_096, capped=False)
"""The budget of a conversation without a model."""


class ConversationState(Tangents):
    """One conversation, as an agent's command line sees it."""

    def __init__(
        self,
        conversation_id: str | None = None,
        *,
        agents: Agents | None = None,
        tool_config: Mapping[str, ToolSpec] | None = None,
        tool_manager: ToolSource | None = None,
        model_id: str | None = None,
        os: Os | None = None,
        mcp_enabled: bool = True,
        policy: Policy | None = None,
    ) -> None:
        if not isinstance(policy, Policy | None):
            refuse("ConversationState(policy)", policy, "None or a value of type Policy")
        super().__init__(os or System(), policy or Policy())
        self.conversation_id = conversation_id if conversation_id is not None else str(ids.message_id())
        self._tool_config = list(tool_config.values()) if tool_config else []
        if self._tool_config:
            self.tools[BUILTIN] = list(self._tool_config)
        self.model_info = catalog.named(model_id) if model_id else None
        self.mcp_enabled = mcp_enabled
        self.tool_manager: ToolSource | None = None
        self.checkpoints: Checkpoints | None = None  # attached by whoever opens them
        self._live: tuple[tuple[object, ...], LiveWindow] | None = None  # with its cache key
        self.attach(agents=agents, tool_manager=tool_manager)

    def attach(self, *, agents: Agents | None = None, tool_manager: ToolSource | None = None) -> None:
        """Use these agents and this tool manager from now on; attach them again after a restore."""
        self.agents, self.tool_manager = agents, tool_manager
        self._use_agents_files()
        if agents is not None and agents.prompt is not None and agents.prompt != self.head.fold.prompt:
            self.add(Prompt(agents.prompt))
        if tool_manager is not None:
            found = {ToolOrigin.of(key): list(some) for key, some in tool_manager.schemas().items()}
            names = {spec.name for some in found.values() for spec in some}
            configured = [spec for spec in self._tool_config if spec.name not in names]
            if configured:
                found[BUILTIN] = [*found.get(BUILTIN, []), *configured]
            self.tools = found

    # Views.

    @property
    def history(self) -> list[HistoryEntry]:
        """The newest exchanges, at most 10,000; older ones are in the log."""
        return self.head.live_history

    @property
    def next_message(self) -> UserMessage | None:
        """The messages that wait to be sent: the user's message, or tool results."""
        return UserMessage(self.head.pending) if self.head.pending else None

    @property
    def valid_history_range(self) -> tuple[int, int]:
        """The range of the history that may be sent: from the first exchange that no cut covers."""
        timeline, cut = self.head, self.head.cut
        start, end = timeline.live_from, len(timeline.history)
        if cut is not None:
            start = max(start, self.head.first_kept(cut))
        return start - timeline.live_from, end - timeline.live_from

    @property
    def transcript(self) -> list[str]:
        """The transcript for people to read: the newest 10,000 lines."""
        return self.head.lines[-MAX_TRANSCRIPT_LEN:]

    @property
    def latest_summary(self) -> tuple[str, RequestMetadata] | None:
        """The summary of the compaction in force, and the metadata of the request for it."""
        return self.head.latest_summary

    @property
    def context_message_length(self) -> int | None:
        """The length in characters of the sticky files as last sent; None if something changed since."""
        return self.context_manager.context_message_length if self.context_manager else None

    @property
    def checkpoint_manager(self) -> CheckpointState | None:
        """The checkpoints of the files on this path, as the log has them; None if there are none."""
        found = tuple(one for _, one in self.head.checkpoints_since_start)
        return CheckpointState(work_tree=found[0].work_tree, checkpoints=found) if found else None

    @property
    def messages(self) -> list[Message]:
        """All messages on the path, including those that no window shows."""
        return list(self.head.messages)

    # Adding messages.

    def set_next_user_message(self, content: str | Iterable[Part]) -> Message:
        """Add a user message; open calls get a visible cancellation."""
        message = Message.user(content)
        self._cancel_open_calls()
        self.add(message)
        return message

    def add_tool_results(self, results: Sequence[ToolCallResult]) -> Message | None:
        """Answer calls, however late; return the message that was added, or None if nothing is new.

        A late result is shown as text. Raise `InvalidMessage` for a result of an unknown call, or a second
        result that differs from the first.
        """
        taken = self.head.fresh(Message.tool(results))
        if taken is not None:
            self.add(taken)
        return taken

    def push_assistant_message(
        self, message: Message, request_metadata: RequestMetadata | None = None
    ) -> HistoryEntry:
        """Close an exchange with the assistant's answer."""
        if message.role != "assistant":
            raise InvalidMessage(f"message {message.id}: the assistant's message was expected")
        if not self.head.pending:
            raise InvalidMessage("there is no user message or tool result to answer; add one first")
        self.add(message)
        if request_metadata is not None:
            self.add(request_metadata)
        return self.head.history[-1]

    def append_transcript(self, text: str) -> None:
        """Add a line to the transcript, such as an error or a notice."""
        self.add(Note(text))

    def set_system(self, text: str) -> None:
        """Set the system prompt from here on."""
        self.add(Prompt(text))

    def set_model(self, model_id: str) -> ModelInfo:
        """Use another model from now on; the limit of the sticky files follows it."""
        self.model_info = catalog.named(model_id)
        if self.context_manager:
            self.context_manager.for_window(self.model_info.context_window)
        return self.model_info

    # Windows.

    @property
    def budget(self) -> Budget:
        """The budget of this conversation's model, or a default one."""
        return Budget.of(self.model_info) if self.model_info else DEFAULT_BUDGET

    @property
    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """The definitions of all tools, as a window sends them."""
        return specs(self.tools)

    def sticky(self) -> Gathered:
        """Read the sticky files that changed; return what a window sends of them, and what it leaves out."""
        return self.context_manager.gather(self.manager.counter) if self.context_manager else Gathered()

    def window(self, budget: Budget | None = None) -> Window:
        """Return the next window; the decisions made for it are added as entries."""
        window = self.preview(budget)
        for decision in window.decisions:
            self.add(decision)
        return window

    def preview(self, budget: Budget | None = None, *, more: Sequence[Decision] = ()) -> Window:
        """Return the window that `window` would return, without adding anything."""
        gathered, tools = self.sticky(), self.tool_specs
        live = self._live_window(self.manager, budget or self.budget, tools)
        preface, decisions = self._preface(tools, gathered.text), [*self.head.decisions, *more]
        window = live.window(preface, decisions, dropped=gathered.left_out)
        if not more:
            live.sent(window)
        return window

    def _preface(self, tools: Sequence[ToolSpec], context: str | None = None) -> Preface:
        return Preface(
            system=self.head.fold.prompt,
            bootstrap=self.head.fold.bootstrap,
            context=context,
            tools=tuple(tools),
        )

    def _live_window(self, manager: StateManager, budget: Budget, tools: Sequence[ToolSpec]) -> LiveWindow:
        """Return the live window of this timeline with all its messages, under the current tool names."""
        timeline, names, stored = self.head, frozenset(spec.name for spec in tools), is_stored(self.head)
        wanted = (timeline, manager.counter.name, manager.policy, names, stored)
        if self._live is None or self._live[0] != wanted or self._live[1].length > len(timeline.messages):
            live = LiveWindow(manager.counter, manager.policy, stored=stored, whole=timeline.first == 1)
            self._live = (wanted, live)
        live = self._live[1].under(budget, timeline.decisions)
        live.grow(repaired(message, names) for message in timeline.messages[live.length :])
        return live

    # Compaction and undo.

    def clear(self) -> None:
        """Hide history, summary and next message; the log keeps all of it, and `undo` shows it again."""
        summary = self.head.summary
        if not (self.history or self.head.pending or (summary and summary[0])):
            return
        self._cancel_open_calls()
        spoken = [one.id for one in self.head.messages if one.role in ("user", "assistant")]
        if late := _late_note(self.head.messages):
            spoken.append(late.id)
        first, last = (spoken[0], spoken[-1]) if spoken else (MessageId(""), MessageId(""))
        self.add(cleared(first, last, len(self.head.entries)))

    def plan_compaction(
        self, strategy: Strategy | None = None, *, focus: str | None = None, budget: Budget | None = None
    ) -> PendingCut | None:
        """Return what a compaction would cover; None if there is nothing to compact."""
        shown = self._shown(budget or self.budget)
        return compaction(shown, self.policy, strategy, focus=focus)

    def compact(
        self, plan: PendingCut, summary: str | None = None, *, source: dict[str, Any] | None = None
    ) -> Cut:
        """Make a planned cut, with the given summary or with the digest.

        Raise `InputError` and change nothing if the summary says nothing or is longer than what it replaces,
        or if the plan was made for another view, such as before a clearing or on another timeline.
        """
        self._check_plan(plan)
        words = None
        if summary is not None:
            self._check_summary(plan, summary)
            words = Summary(cut=plan.cut.id, text=summary, source=source or {})
            words = with_facts(words, plan.cut, self.manager.counter, self.policy)
        after = self._shown(Budget(plan.cut.limit), [plan.cut, words] if words else [plan.cut])
        outcome, decisions = compacted(plan, words, after.tokens)
        for decision in decisions:
            self.add(decision)
        return outcome.cut

    def _check_plan(self, plan: PendingCut) -> None:
        """Raise `InputError` if what a plan covers is not what the conversation shows now."""
        shown = self._shown(Budget(plan.cut.limit))
        view, places = shown.view, [shown.tally.place(message.id) for message in plan.evicted]
        is_shown = all(one is not None and (one >= view.kept or one in view.pinned) for one in places)
        if not is_shown or plan.previous_summary != (view.summary or ""):
            raise InputError(
                f"conversation {self.conversation_id}: the plan was made before the conversation was cut, "
                "cleared or moved; nothing was compacted, plan it again"
            )

    def _check_summary(self, plan: PendingCut, summary: str) -> None:
        """Raise `InputError` if a text cannot serve as the summary of what a plan covers."""
        counter, prefix = self.manager.counter, f"conversation {self.conversation_id}: the summary"
        if not any(map(str.isalnum, summary)):
            raise InputError(f"{prefix} says nothing; pass None to use the digest")
        tokens = counter.count(filled(self.policy.summary_template, summary)).tokens
        replaced = self.manager.count(plan.evicted).tokens
        if tokens > replaced:
            raise InputError(
                f"{prefix} has {tokens:,} tokens, and what it replaces {replaced:,}; shorten it, or pass "
                "None to use the digest"
            )

    def _shown(self, budget: Budget, more: Sequence[Decision] = ()) -> Window:
        """Make the window that results from the recorded decisions and `more`, whether it fits or not."""
        tools = self.tool_specs
        live = self._live_window(self.manager, budget, tools)
        return live.shown(self._preface(tools), [*self.head.decisions, *more])

    def undo(self) -> str:
        """Undo the newest operation by the rule of `session.undo`, and return its name; files stay.

        Raise `NothingToUndo` if there is none, or if the operation or what undoing it shows is not loaded.
        """
        timeline = self.head
        search = UndoSearch(self.conversation_id, timeline.first - 1 + len(timeline.entries))
        found = timeline.newest_operation(search)
        if found is None:
            return self._undo_branch(search)
        if isinstance(found.entry, Cut):
            self._revert(found.entry, found.number, search)
        else:
            self._undo_exit(found, search)
        return found.name

    def _cancel_open_calls(self) -> None:
        for call in self.head.open_calls:
            self.add(Answer.give(call.id, CANCELLED))

    def _revert(self, cut: Cut, number: int, search: UndoSearch) -> None:
        """Revert the cut at entry `number`; the revert names the number of the cut in force again, if any."""
        timeline, former_number = self.head, 0
        if former := timeline.fold.cut_before(cut):
            numbers = (at for at, one in enumerate(timeline.entries, start=timeline.first) if one is former)
            former_number = next(numbers, timeline.recalled_at.get(former.id, 0))
        revert = Revert(cut=cut.id, at=number, former=former_number)
        if not self._is_loaded(timeline.after(revert)):
            raise search.not_loaded()
        self.add(revert)


def _late_note(messages: Sequence[Message]) -> Message | None:
    """Return the note that shows a late result if the last message brought one."""
    if not messages or messages[-1].role != "tool":
        return None
    awaited = {call.id for call in open_calls(messages[:-1])}
    results = enumerate(messages[-1].tool_results)
    late = [note(messages[-1], one, number) for number, one in results if one.tool_call_id not in awaited]
    return late[-1] if late else None
