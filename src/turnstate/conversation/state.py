"""The state of a conversation, which one reads: history, next message, tools, tangents, files, transcript.

A state from a session is a *view* of one version of its log: ``await session.conversation()``. It does no
I/O and never changes; the session has the operations. What the view does not have raises `NotLoaded`, with
the call that returns it.

Without a session, a state has a log of its own in memory, and the methods that change it are synchronous:
they run the same operations. It is saved as JSON. ``tool_manager``, ``agents`` and ``checkpoints`` are never
stored: attach them after a restore.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import catalog, ids
from ..catalog import ModelInfo
from ..context.cut import (
    MAX_CONVERSATION_STATE_HISTORY_LEN,
    PendingCut,
    Strategy,
    capped,
    compacted,
    compaction,
)
from ..context.live_window import LiveWindow
from ..context.manager import StateManager
from ..context.policy import Budget, Policy
from ..context.preface import Preface
from ..context.summary import with_facts
from ..context.summary_text import filled
from ..context.view import floor_of
from ..context.window import Window
from ..entry import (
    CANCELLED,
    Answer,
    Cut,
    Decision,
    Entry,
    FileLines,
    ModelChange,
    Note,
    Prompt,
    SettingsChange,
    Summary,
)
from ..errors import InputError, InvalidMessage, NotLoaded
from ..log import operations, tangents
from ..log.memory_log import MemoryLog
from ..log.operations import Effect, Operation
from ..log.tangents import Bring, KeptTangent
from ..log.undo import undo
from ..message import Message, ToolCallResult
from ..part import Part
from ..sticky import ContextManager, Gathered
from ..stores.values import BranchRow, Span
from ..toolspec import ToolSpec
from ..value import refuse
from . import kept_settings as settings
from .environment import Agents, Checkpoints, Os, System, ToolSource
from .history import (
    MAX_TRANSCRIPT_LEN,
    CheckpointState,
    ConversationCheckpoint,
    HistoryEntry,
    RequestMetadata,
    UserMessage,
)
from .line_tracker import FileLineTracker, tracker_to_json
from .shown import ShownConversation
from .tools import BUILTIN, ToolOrigin, Tools, repaired, specs
from .view import Viewed, log_of

DEFAULT_BUDGET = Budget(200_000, output=4_096, capped=False)
"""The budget of a conversation without a model."""


_WHOLE = "await session.conversation(last=…)"
"""The call for a view with everything that a view can have."""

_SETTINGS = ("tools", "model", "model_info", "context_manager", "mcp_enabled", "extra", "file_line_tracker")
_SETTERS = {
    "model": "set_model(…)",
    "model_info": "set_model(…)",
    "file_line_tracker": "record_lines(…)",
}


class ConversationState:
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
        self._view: Viewed | None = None
        self.conversation_id = conversation_id if conversation_id is not None else str(ids.message_id())
        self.os: Os = os or System()
        self.policy = policy or Policy()
        self._log = MemoryLog(self.conversation_id)
        self._folded: ShownConversation | None = None  # of the head's branch
        self._live: tuple[tuple[object, ...], LiveWindow] | None = None  # with its cache key
        self.default_counter = "o200k_base"  # for a conversation without a model
        self._tool_config = list(tool_config.values()) if tool_config else []
        self.tools: Tools = {BUILTIN: list(self._tool_config)} if self._tool_config else {}
        self.model: str | None = None
        self.model_info = catalog.named(model_id) if model_id else None
        self.context_manager: ContextManager | None = None
        self._trackers: dict[str, FileLineTracker] | None = {}
        self.mcp_enabled = mcp_enabled
        self.extra: dict[str, Any] = {}
        self.checkpoints: Checkpoints | None = None  # attached by whoever opens them
        self.attach(agents=agents, tool_manager=tool_manager)

    @classmethod
    def viewing(
        cls, id: str, viewed: Viewed, *, os: Os | None = None, policy: Policy, counter: str
    ) -> ConversationState:
        """Return the view of a session."""
        state = cls(id, os=os, policy=policy)
        state.default_counter = counter
        shown = viewed.shown
        settings.restore(state, shown.settings.fields if shown.settings else settings.DEFAULTS)
        state.model_info = settings.model_under(shown.fold.model, state.model_info)
        state._trackers = viewed.lines
        state._view = viewed
        return state

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _SETTINGS and self.__dict__.get("_view") is not None:
            raise self._is_view(_SETTERS.get(name, f"change_settings({name}=…)"))
        super().__setattr__(name, value)

    def attach(self, *, agents: Agents | None = None, tool_manager: ToolSource | None = None) -> None:
        """Use these agents and this tool manager from now on; attach them again after a restore.

        In a view, they are only there to be read.
        """
        self.agents, self.tool_manager = agents, tool_manager
        found = self.__dict__  # in a view, too: what is attached is not part of the conversation
        if agents is not None:
            self._use_files_of(agents)
            if self._view is None and agents.prompt is not None and agents.prompt != self.shown.fold.prompt:
                self.add(Prompt(agents.prompt))
        if tool_manager is not None:
            tools = {ToolOrigin.of(key): list(some) for key, some in tool_manager.schemas().items()}
            names = {spec.name for some in tools.values() for spec in some}
            configured = [spec for spec in self._tool_config if spec.name not in names]
            if configured:
                tools[BUILTIN] = [*tools.get(BUILTIN, []), *configured]
            found["tools"] = tools

    def _use_files_of(self, agents: Agents) -> None:
        """Send the sticky files of the attached agents from now on; the user's sticky files stay."""
        manager = self.context_manager or ContextManager()
        manager.attach(self.os.workspace())
        manager.for_agent(agents.active, agents.context_paths)
        if self.model_info:
            manager.for_window(self.model_info.context_window)
        self.__dict__["context_manager"] = manager

    # What is shown: of the view, or of the log as it is now.

    @property
    def shown(self) -> ShownConversation:
        """The entries of the path, folded: all of them without a session, else the loaded part."""
        if self._view is not None:
            return self._view.shown
        log, folded = self._log, self._folded
        if folded is None:
            folded = self._folded = ShownConversation()
            folded.extend(log.walk(log.path()))
        elif len(folded.placed) < log.head.seq:
            folded.extend(log.read(Span(log.head.branch, len(folded.placed) + 1, log.head.seq)))
        return folded

    @property
    def open_tangents(self) -> Sequence[BranchRow]:
        """The tangents around the head, the innermost first."""
        if self._view is not None:
            return self._view.open
        return tangents.around(self._log.branches, self._log.head.branch)

    @property
    def main(self) -> ShownConversation | None:
        """The main conversation while a tangent is open."""
        if self._view is not None:
            return self._view.main
        if not self.open_tangents:
            return None
        main = ShownConversation()
        main.extend(self._log.walk(self._log.path(self._log.tip(self.open_tangents[-1].former or 1))))
        return main

    @property
    def log(self) -> MemoryLog:
        """The log of a conversation without a session; of a view, one of the part that it shows."""
        return self._log if self._view is None else log_of(self.conversation_id, self._view)

    @property
    def version(self) -> int:
        """The version of the session that a view shows; 0 without a session."""
        return self._view.version if self._view else 0

    @property
    def has_earlier(self) -> bool:
        """True if more was said before the loaded part: ``session.conversation(last=…)`` loads it."""
        return self.shown.first > 1

    @property
    def manager(self) -> StateManager:
        """The State Manager for this conversation's model and policy."""
        return StateManager(self.model_info.counter if self.model_info else self.default_counter, self.policy)

    @property
    def history(self) -> list[HistoryEntry]:
        """The newest exchanges, at most 10,000; older ones are in the log."""
        return self.shown.live_history

    @property
    def next_message(self) -> UserMessage | None:
        """The messages that wait to be sent: the user's message, or tool results."""
        return UserMessage(self.shown.pending) if self.shown.pending else None

    @property
    def valid_history_range(self) -> tuple[int, int]:
        """The range of the history that may be sent: from the first exchange that no cut covers."""
        shown = self.shown
        start, end = shown.live_from, len(shown.history)
        if (cut := shown.cut) is not None:
            start = max(start, shown.first_kept(cut))
        return start - shown.live_from, end - shown.live_from

    @property
    def transcript(self) -> list[str]:
        """The transcript for people to read: the newest 10,000 lines."""
        return self.shown.lines[-MAX_TRANSCRIPT_LEN:]

    @property
    def latest_summary(self) -> tuple[str, RequestMetadata] | None:
        """The summary of the compaction in force, and the metadata of the request for it."""
        return self.shown.latest_summary

    @property
    def context_message_length(self) -> int | None:
        """The length in characters of the sticky files as last sent; None if something changed since."""
        return self.context_manager.context_message_length if self.context_manager else None

    @property
    def file_line_tracker(self) -> dict[str, FileLineTracker]:
        """What the line tracker knows about each file."""
        if self._trackers is None:
            raise _not_loaded("file_line_tracker", f"await session.lines(), or {_WHOLE}")
        return self._trackers

    @file_line_tracker.setter
    def file_line_tracker(self, trackers: dict[str, FileLineTracker]) -> None:
        self._trackers = trackers

    @property
    def checkpoint_manager(self) -> CheckpointState | None:
        """The checkpoints of the files on this path, as the log has them; None if there are none."""
        known = self.shown.checkpoints_since_start
        if self._view is not None:
            if self._view.checkpoints is None:
                raise _not_loaded("checkpoint_manager", _WHOLE)
            known = self._view.checkpoints
        found = tuple(one for _, one in known)
        return CheckpointState(work_tree=found[0].work_tree, checkpoints=found) if found else None

    @property
    def messages(self) -> list[Message]:
        """All messages on the path that are loaded, including those that no window shows."""
        return list(self.shown.fold.messages)

    @property
    def system(self) -> str | None:
        """The system prompt in force."""
        return self.shown.fold.prompt

    @property
    def tangent_state(self) -> ConversationCheckpoint | None:
        """The main conversation, while a tangent is open."""
        main = self.main
        if main is None:
            return None
        return ConversationCheckpoint(
            main_history=main.live_history,
            main_next_message=UserMessage(main.pending) if main.pending else None,
            main_transcript=main.lines[-MAX_TRANSCRIPT_LEN:],
            main_latest_summary=main.latest_summary,
            tangent_start_time=self.open_tangents[0].created,
        )

    def is_in_tangent_mode(self) -> bool:
        """Return True if a tangent is open."""
        return bool(self.open_tangents)

    def get_tangent_duration_seconds(self) -> int | None:
        """Return how many seconds the tangent has been open; None outside a tangent."""
        if not self.open_tangents:
            return None
        return max(0, self.os.now() - self.open_tangents[0].created) // 1000

    def kept_tangents(self) -> list[KeptTangent]:
        """Return the tangents that were left, in the order in which they began.

        A restore or a rewind goes to another main conversation; the tangents of the former one are listed
        again when it is undone.
        """
        if self._view is None:
            kept: list[KeptTangent] = self._log.operate(tangents.kept(), now=0).result
            return kept
        if self._view.kept is None:
            raise _not_loaded("kept_tangents", f"await session.tangents(), or {_WHOLE}")
        return self._view.kept

    def to_json(self) -> dict[str, Any]:
        """Return the conversation as one JSON document, as `turnstate.conversation.to_json` does."""
        from .document import to_json  # a document is made of states

        return to_json(self)

    # Changing a conversation without a session.

    def _is_view(self, method: str) -> InputError:
        return InputError(
            f"conversation {self.conversation_id} is a view of its session and never changes; "
            f"use await session.{method}"
        )

    def _own_log(self, method: str) -> MemoryLog:
        """Return the log of a conversation without a session; in a view, name the session's method."""
        if self._view is not None:
            raise self._is_view(method)
        return self._log

    def _operate(self, operation: Operation, method: str) -> Effect:
        log = self._own_log(method)
        self.record_settings()
        branch = log.head.branch
        effect = log.operate(operation, now=self.os.now())
        if log.head.branch != branch:
            self._folded = None
            self._apply_settings()
        self._cap()  # the last cut may be newer than where it went
        return effect

    def add(self, entry: Entry) -> None:
        """Add an entry, after an entry for settings that have changed; a message is copied."""
        log = self._own_log("append(…)")
        self.record_settings()
        match entry:
            case Message():
                entry = entry.owned()
            case Cut():
                entry = self.shown.fold.archiving(entry)
        log.add(entry)
        if isinstance(entry, Message):
            self._cap()

    def record_settings(self) -> None:
        """Add entries for settings and line trackers that have changed; a view has nothing to add."""
        if self._view is not None:
            return
        shown, info, known = self.shown, self.model_info, self.shown.fold.model
        wanted = ModelChange(info.id, info.counter) if info else ModelChange("", self.default_counter)
        if wanted != known and (info or (known and known.id)):
            self._log.add(wanted)
            known = wanted
        fields = settings.without_known_model(settings.fields_of(self), known)
        before = shown.settings.fields if shown.settings else settings.DEFAULTS
        if fields != settings.without_known_model(before, known):
            self._log.add(SettingsChange(fields))
        if self.file_line_tracker != shown.trackers:
            for path in {**shown.trackers, **self.file_line_tracker}:
                now = self.file_line_tracker.get(path)
                if now != shown.trackers.get(path):
                    self._log.add(FileLines(path, tracker_to_json(now) if now else None))

    def use(self, log: MemoryLog) -> None:
        """Continue this log, as it was read from a document; the settings of the document stay."""
        self._log, self._folded = log, None

    def settle(self) -> None:
        """Record what was set, and make the cut that is due."""
        self.record_settings()
        self._cap()

    def _apply_settings(self) -> None:
        """Use the settings, the model and the line trackers of the branch of the head."""
        shown = self.shown
        settings.restore(self, shown.settings.fields if shown.settings else settings.DEFAULTS)
        self.model_info = settings.model_under(shown.fold.model, self.model_info)
        if self.context_manager is None and self.agents is not None:
            self._use_files_of(self.agents)
        self.file_line_tracker = dict(shown.trackers)

    def _cap(self) -> None:
        """Add a cut if windows could show more exchanges than the history may hold, whatever the budget."""
        while self._is_over_cap():
            fold = self.shown.fold
            cut = capped(
                fold.messages, tuple(fold.decisions), self.policy, self.manager.counter, stored=False
            )
            if cut is None:
                return
            self._log.add(fold.archiving(cut))

    def _is_over_cap(self) -> bool:
        shown = self.shown
        if len(shown.history) <= MAX_CONVERSATION_STATE_HISTORY_LEN:
            return False
        floor = floor_of(shown.fold.in_force)
        first = shown.first_kept(floor) if floor else 0
        return len(shown.history) - first > MAX_CONVERSATION_STATE_HISTORY_LEN

    def set_next_user_message(self, content: str | Iterable[Part]) -> Message:
        """Add a user message; open calls get a visible cancellation."""
        self._own_log("append(Message.user(…))")
        message = Message.user(content)
        for call in self.shown.open_calls:
            self.add(Answer.give(call.id, CANCELLED))
        self.add(message)
        return message

    def add_tool_results(self, results: Sequence[ToolCallResult]) -> Message | None:
        """Answer calls, however late; return the message that was added, or None if nothing is new.

        A late result is shown as text. Raise `InvalidMessage` for a result of an unknown call, or a second
        result that differs from the first.
        """
        self._own_log("append(Message.tool(…))")
        message = Message.tool(results)
        known = self._log.run(operations.known_calls(self._log.path(), [message]))
        taken = known.fresh(message)
        if taken is not None:
            self.add(taken)
        return taken

    def push_assistant_message(
        self, message: Message, request_metadata: RequestMetadata | None = None
    ) -> HistoryEntry:
        """Close an exchange with the assistant's answer."""
        self._own_log("append(Message.assistant(…))")
        if message.role != "assistant":
            raise InvalidMessage(f"message {message.id}: the assistant's message was expected")
        if not self.shown.pending:
            raise InvalidMessage("there is no user message or tool result to answer; add one first")
        self.add(message)
        if request_metadata is not None:
            self.add(request_metadata)
        return self.shown.history[-1]

    def append_transcript(self, text: str) -> None:
        """Add a line to the transcript, such as an error or a notice."""
        self._own_log("note(…)")
        self.add(Note(text))

    def set_system(self, text: str) -> None:
        """Set the system prompt from here on."""
        self._own_log("set_system(…)")
        self.add(Prompt(text))

    def set_model(self, model_id: str) -> ModelInfo:
        """Use another model from now on; the limit of the sticky files follows it."""
        self._own_log("set_model(…)")
        self.model_info = catalog.named(model_id)
        if self.context_manager:
            self.context_manager.for_window(self.model_info.context_window)
        return self.model_info

    def clear(self) -> None:
        """Hide history, summary and next message; the log keeps all of it, and `undo` shows it again."""
        self._operate(operations.clear(), "clear()")

    def undo(self, *, only: str | None = None) -> str:
        """Undo the newest operation by the rule of `log.undo`, and return its name; files stay."""
        name: str = self._operate(undo(only), "undo()").result
        return name

    def enter_tangent_mode(self) -> None:
        """Begin a tangent; do nothing inside one (`begin_tangent` nests)."""
        self._own_log("begin_tangent()")
        if not self.is_in_tangent_mode():
            self.begin_tangent()

    def begin_tangent(self, *, at: str | None = None) -> str:
        """Begin a tangent here, or after an earlier message, at any depth; return its name."""
        name: str = self._operate(tangents.begin(at), "begin_tangent()").result
        return name

    def exit_tangent_mode(self) -> None:
        """Leave the tangent and go back to where it began; do nothing outside a tangent."""
        self._leave(None)

    def exit_tangent_mode_with_tail(self) -> None:
        """Leave the tangent and carry over its last exchange."""
        self._leave("tail")

    def exit_tangent_mode_with_summary(self, summary: str | None = None) -> None:
        """Leave the tangent and carry over a summary: the given one, or a digest of the tangent."""
        self._leave("summary", summary)

    def _leave(self, bring: Bring | None, summary: str | None = None) -> None:
        method = "leave_tangent()" if bring is None else f"leave_tangent({bring!r})"
        self._operate(tangents.leave(bring, summary), method)

    def reopen_tangent(self, name: str) -> None:
        """Reopen a tangent that was left; leaving it leads back to where it began."""
        self._operate(tangents.reopen(name), "reopen_tangent(…)")

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
        self._own_log("window(…)")
        window = self.preview(budget)
        for decision in window.decisions:
            self.add(decision)
        return window

    def preview(self, budget: Budget | None = None, *, more: Sequence[Decision] = ()) -> Window:
        """Return the window that `window` would return, without adding anything."""
        self._own_log("preview(…)")
        gathered, tools = self.sticky(), self.tool_specs
        live = self._live_window(self.manager, budget or self.budget, tools)
        preface, decisions = self._preface(tools, gathered.text), [*self.shown.fold.decisions, *more]
        window = live.window(preface, decisions, dropped=gathered.left_out)
        if not more:
            live.sent(window)
        return window

    def _preface(self, tools: Sequence[ToolSpec], context: str | None = None) -> Preface:
        return Preface(
            system=self.shown.fold.prompt,
            bootstrap=self.shown.fold.bootstrap,
            context=context,
            tools=tuple(tools),
        )

    def _live_window(self, manager: StateManager, budget: Budget, tools: Sequence[ToolSpec]) -> LiveWindow:
        """Return the live window of this branch with all its messages, under the current tool names."""
        shown, names = self.shown, frozenset(spec.name for spec in tools)
        wanted = (shown, manager.counter.name, manager.policy, names)
        if self._live is None or self._live[0] != wanted:
            self._live = (wanted, LiveWindow(manager.counter, manager.policy, stored=False))
        live = self._live[1].under(budget, shown.fold.decisions)
        live.grow(repaired(message, names) for message in shown.fold.messages[live.length :])
        return live

    # Compaction.

    def plan_compaction(
        self, strategy: Strategy | None = None, *, focus: str | None = None, budget: Budget | None = None
    ) -> PendingCut | None:
        """Return what a compaction would cover; None if there is nothing to compact."""
        self._own_log("preview_compact()")
        shown = self._planned(budget or self.budget)
        return compaction(shown, self.policy, strategy, focus=focus)

    def compact(
        self, plan: PendingCut, summary: str | None = None, *, source: dict[str, Any] | None = None
    ) -> Cut:
        """Make a planned cut, with the given summary or with the digest.

        Raise `InputError` and change nothing if the summary says nothing or is longer than what it replaces,
        or if the plan was made for another view, such as before a clearing or on another branch.
        """
        self._own_log("compact()")
        self._check_plan(plan)
        words = None
        if summary is not None:
            self._check_summary(plan, summary)
            words = Summary(cut=plan.cut.id, text=summary, source=source or {})
            words = with_facts(words, plan.cut, self.manager.counter, self.policy)
        after = self._planned(Budget(plan.cut.limit), [plan.cut, words] if words else [plan.cut])
        outcome, decisions = compacted(plan, words, after.tokens)
        for decision in decisions:
            self.add(decision)
        return outcome.cut

    def _check_plan(self, plan: PendingCut) -> None:
        """Raise `InputError` if what a plan covers is not what the conversation shows now."""
        shown = self._planned(Budget(plan.cut.limit))
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

    def _planned(self, budget: Budget, more: Sequence[Decision] = ()) -> Window:
        """Make the window that results from the recorded decisions and `more`, whether it fits or not."""
        tools = self.tool_specs
        live = self._live_window(self.manager, budget, tools)
        return live.shown(self._preface(tools), [*self.shown.fold.decisions, *more])


def _not_loaded(name: str, call: str) -> NotLoaded:
    return NotLoaded(f"{name} was not loaded with this view; use {call}")
