"""Settings: the part of a conversation's state that is not in its messages, and the head it belongs to.

Tools, sticky files and the rest go into the log as one JSON object whenever one of them changes; the newest
object on a path applies. The model has its own entry, which a session without a state also writes; the
settings hold what is known about the model beyond the catalog. The line tracker's record of each file is its
own entry, too. So the settings of a timeline come back whenever it becomes the head.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Annotated, Any

import msgspec
from msgspec import Struct, structs

from ..catalog import ModelInfo
from ..catalog import named as model_named
from ..context.cut import capped
from ..context.manager import StateManager
from ..context.policy import Policy
from ..entry import Cut, Entry, FileLines, ModelChange, Revert, Settings
from ..errors import InvalidPayload, NotFound, NothingToUndo, UnknownName
from ..message import Message
from ..sticky import ContextManager, ContextState
from ..tokens import counter
from ..toolspec import ToolSpec
from .environment import Agents, Os
from .line_tracker import FileLineTracker, tracker_from_json, tracker_to_json
from .timeline import Timeline
from .tools import ToolOrigin, Tools

DEFAULTS: dict[str, Any] = {"tools": {}, "mcp_enabled": True}


class ConversationHead:
    """The timeline that a conversation continues on, and the settings in force there.

    Every entry is added here, after an entry for settings that have changed. Going to another timeline
    brings back its settings.
    """

    def __init__(self, os: Os, policy: Policy) -> None:
        self.os, self.policy = os, policy
        self.head = Timeline()
        self.timelines = [self.head]
        self.tools: Tools = {}
        self.default_counter = "o200k_base"  # for a conversation without a model
        self.model: str | None = None
        self.model_info: ModelInfo | None = None
        self.context_manager: ContextManager | None = None
        self.file_line_tracker: dict[str, FileLineTracker] = {}
        self.files_lock = Lock()  # tools track files in threads while the loop folds in appended entries
        self.mcp_enabled = True
        self.agents: Agents | None = None
        self.extra: dict[str, Any] = {}
        self.sync: object | None = None  # owned by the session: which part of the conversation is in its log

    @property
    def manager(self) -> StateManager:
        """The State Manager for this conversation's model and policy."""
        return StateManager(self.model_info.counter if self.model_info else self.default_counter, self.policy)

    def add(self, entry: Entry) -> None:
        """Add an entry, after an entry for settings that have changed; a message is copied."""
        self.record_settings()
        match entry:
            case Message():
                entry = entry.owned()
            case Cut():
                entry = self.head.fold.archiving(entry)
        self.head.add(entry)
        if isinstance(entry, Message | Revert):
            self.cap()

    def record_settings(self) -> None:
        """Add entries for settings and line trackers that have changed."""
        self._record_model()
        change = self.head.fold.model
        fields = without_known_model(fields_of(self), change)
        before = self.head.settings.fields if self.head.settings else DEFAULTS
        if fields != without_known_model(before, change):
            self.head.add(Settings(fields))
        if self.file_line_tracker != self.head.trackers:
            for path in {**self.head.trackers, **self.file_line_tracker}:
                now = self.file_line_tracker.get(path)
                if now != self.head.trackers.get(path):
                    self.head.add(FileLines(path, tracker_to_json(now) if now else None))

    def _record_model(self) -> None:
        """Add an entry for the model if it changed; its counter applies from here on."""
        info, known = self.model_info, self.head.fold.model
        wanted = ModelChange(info.id, info.counter) if info else ModelChange("", self.default_counter)
        if wanted != known and (info or (known and known.id)):
            self.head.add(wanted)

    def apply_settings(self) -> None:
        """Use the settings, the model and the line trackers of the head's timeline."""
        restore(self, self.head.settings.fields if self.head.settings else DEFAULTS)
        self.model_info = model_under(self.head.fold.model, self.model_info)
        if self.context_manager is None:
            self._use_agents_files()
        self.file_line_tracker = dict(self.head.trackers)

    def _use_agents_files(self) -> None:
        """Send the sticky files of the attached agents from now on; the user's sticky files stay."""
        if self.agents is None:
            return
        if self.context_manager is None:
            self.context_manager = ContextManager()
        self.context_manager.attach(self.os.workspace())
        self.context_manager.for_agent(self.agents.active, self.agents.context_paths)
        if self.model_info:
            self.context_manager.for_window(self.model_info.context_window)

    def cap(self) -> None:
        """Add a cut if windows could show more exchanges than the history may hold, whatever the budget.

        What the cut covers has to be loaded; otherwise a session makes the cut when it writes the state.
        """
        while self.head.is_over_cap and not self.head.lacks_a_start:
            fold, counter, stored = self.head.fold, self.manager.counter, is_stored(self.head)
            cut = capped(fold.messages, tuple(fold.decisions), self.policy, counter, stored=stored)
            if cut is None:
                return
            self.head.add(fold.archiving(cut))

    def restore_moment(self, at: int) -> None:
        """Go back to when the conversation had `at` entries; later entries stay in the log."""
        self.record_settings()
        moment = self.head.restored(at)
        self._check_loaded(moment)
        self.timelines.append(moment)
        self._go_to(moment)

    def undo_restore(self) -> None:
        """Undo the last restore, even if tangents began since."""
        timeline: Timeline | None = self.head
        while timeline is not None and timeline.operation != "restore":
            timeline = timeline.parent
        if timeline is None or timeline.former is None:
            raise NothingToUndo("there is no restore to undo")
        self._check_loaded(timeline.former)
        self.record_settings()
        self._go_to(timeline.former)

    def adopt(self, other: ConversationHead) -> None:
        """Replace the content with another state of the same conversation, as loaded from the log."""
        self.timelines, self.sync = other.timelines, other.sync
        self._go_to(other.head)

    def stand_at(self, head: Timeline, timelines: list[Timeline]) -> None:
        """Go back to an earlier head after a step that could not be written."""
        self.timelines = timelines
        self._go_to(head)

    def _is_loaded(self, timeline: Timeline) -> bool:
        """Return True if everything that a timeline shows is loaded, or the head lacks its start as well."""
        return self.head.lacks_a_start or not timeline.lacks_a_start

    def _check_loaded(self, timeline: Timeline) -> None:
        if not self._is_loaded(timeline):
            raise NotFound(
                "not all that this moment shows is loaded, and nothing was changed; commit the state, go "
                "there with session.rewind() or session.fork(), and load the conversation again"
            )

    def _go_to(self, timeline: Timeline) -> None:
        self.head = timeline
        self.apply_settings()
        self.cap()  # the last cut may be newer than the moment it goes back to


def is_stored(timeline: Timeline) -> bool:
    """Return True if a log holds the timeline, or will hold it, so that whole outputs can be found there."""
    while not timeline.recorded and timeline.former is not None:
        timeline = timeline.former
    return timeline.recorded


def fields_of(state: ConversationHead) -> dict[str, Any]:
    """Return the settings of a conversation as plain JSON, without unset ones."""
    fields = {
        "tools": tools_to_json(state.tools),
        "context_manager": state.context_manager.to_json() if state.context_manager else None,
        "model": state.model,
        "model_info": model_to_json(state.model_info) if state.model_info else None,
        "mcp_enabled": state.mcp_enabled,
        "extra": state.extra or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def without_known_model(fields: dict[str, Any], change: ModelChange | None) -> dict[str, Any]:
    """Return settings without a model that the newest model change in the log repeats or replaces."""
    info = fields.get("model_info")
    if change is None or info is None:
        return fields
    known = model_under(change, None)
    is_replaced = (info.get("model_id"), info.get("counter")) != (change.id, change.counter)
    if not is_replaced and (known is None or model_to_json(known) != info):
        return fields
    return {name: value for name, value in fields.items() if name != "model_info"}


def model_under(change: ModelChange | None, info: ModelInfo | None) -> ModelInfo | None:
    """Return the model that a model change names, from the settings if they have it, else the catalog."""
    if change is None or (info and (info.id, info.counter) == (change.id, change.counter)):
        return info
    return structs.replace(model_named(change.id), counter=change.counter) if change.id else None


def restore(state: ConversationHead, fields: dict[str, Any], *, at: str = "$") -> None:
    """Apply settings from plain JSON; if one is invalid, raise `InvalidPayload` and set nothing."""
    tools = tools_from_json(fields.get("tools", {}), at=f"{at}.tools")
    info = fields.get("model_info")
    model_info = model_from_json(info, at=f"{at}.model_info") if info is not None else None
    tracked = _tracked(fields.get("file_line_tracker", {}), at=f"{at}.file_line_tracker")
    context = fields.get("context_manager")
    kept = ContextState.from_json(context, at=f"{at}.context_manager") if context is not None else None
    manager = ContextManager(state=kept) if kept is not None else None
    model, enabled = fields.get("model"), fields.get("mcp_enabled", True)
    extra = fields.get("extra", {})
    if model is not None and not isinstance(model, str):
        raise InvalidPayload("the name of a model must be text", path=f"{at}.model")
    if not isinstance(enabled, bool):
        raise InvalidPayload("expected true or false", path=f"{at}.mcp_enabled")
    if not isinstance(extra, dict):
        raise InvalidPayload("expected an object", path=f"{at}.extra")
    state.tools, state.file_line_tracker, state.model, state.mcp_enabled = tools, tracked, model, enabled
    state.model_info = model_info or (model_named(model) if model else None)
    state.extra = extra
    _restore_context(state, manager)


def tools_to_json(tools: Mapping[ToolOrigin, Iterable[ToolSpec]]) -> dict[str, Any]:
    """Return tools as JSON, in the form in which they are sent."""
    return {origin.key: [_tool(spec) for spec in some] for origin, some in tools.items()}


def tools_from_json(document: Any, *, at: str) -> Tools:
    """Read tools; raise `InvalidPayload` with the path to the part that cannot be read."""
    if not isinstance(document, dict):
        raise InvalidPayload(f"expected an object, got {type(document).__name__}", path=at)
    found = Tools()
    for key, some in document.items():
        here = f"{at}.{key}"
        if not isinstance(some, list):
            raise InvalidPayload(f"expected a list of tools, got {type(some).__name__}", path=here)
        found[ToolOrigin.of(key)] = [_spec(one, f"{here}[{place}]") for place, one in enumerate(some)]
    return found


class _SavedSchema(Struct, frozen=True):
    json: dict[str, Any] | None


class _SavedSpecification(Struct, frozen=True):
    name: str
    description: str
    input_schema: _SavedSchema


class _SavedTool(Struct, frozen=True):
    ToolSpecification: _SavedSpecification


def _tool(spec: ToolSpec) -> dict[str, Any]:
    schema = {"json": spec.input_schema or None}
    return {
        "ToolSpecification": {
            "name": spec.name,
            "description": spec.description,
            "input_schema": schema,
        }
    }


def _spec(document: Any, at: str) -> ToolSpec:
    try:
        tool = msgspec.convert(document, _SavedTool).ToolSpecification
    except msgspec.ValidationError as error:
        raise InvalidPayload(f"not a tool: {error}", path=at) from None
    schema = tool.input_schema.json
    return ToolSpec(name=tool.name, description=tool.description, input_schema=schema or {})


def model_to_json(info: ModelInfo) -> dict[str, Any]:
    """Return a model as JSON; id and window have the names that other programs use."""
    return {
        "model_id": info.id,
        "model_name": info.name,
        "context_window_tokens": info.context_window,
        "output_limit": info.output_limit,
        "counter": info.counter,
        "provider": info.provider,
        "features": list(info.features),
        "known": info.known,
    }


class _SavedModel(Struct, frozen=True):
    model_id: str
    model_name: str | None = None
    context_window_tokens: Annotated[int, msgspec.Meta(ge=1)] = 200_000
    output_limit: Annotated[int, msgspec.Meta(ge=0)] | None = None
    counter: str | None = None
    provider: str | None = None
    features: tuple[str, ...] | None = None
    known: bool | None = None


def model_from_json(document: Any, *, at: str) -> ModelInfo:
    """Read a model; missing fields come from the catalog."""
    try:
        given = msgspec.convert(document, _SavedModel)
    except msgspec.ValidationError as error:
        raise InvalidPayload(f"not a model: {error}", path=at) from None
    known = model_named(given.model_id)
    return ModelInfo(
        id=given.model_id,
        name=given.model_name if given.model_name is not None else known.name,
        provider=given.provider if given.provider is not None else known.provider,
        context_window=given.context_window_tokens,
        output_limit=given.output_limit if given.output_limit is not None else known.output_limit,
        counter=_counter(given.counter, at) if given.counter is not None else known.counter,
        features=given.features if given.features is not None else known.features,
        aliases=known.aliases,
        known=given.known if given.known is not None else known.known,
        output_is_known=known.output_is_known
        if given.output_limit in (None, known.output_limit)
        else given.known is not False,
        prices=known.prices,
        ends=known.ends,
        sources=known.sources,
        as_of=known.as_of,
    )


def _counter(name: str, at: str) -> str:
    try:
        return counter(name).name
    except UnknownName as error:
        raise InvalidPayload(str(error), path=f"{at}.counter") from None


def _tracked(document: Any, *, at: str) -> dict[str, FileLineTracker]:
    if not isinstance(document, dict):
        raise InvalidPayload(f"expected an object, got {type(document).__name__}", path=at)
    return {path: tracker_from_json(one, at=f"{at}.{path}") for path, one in document.items()}


def _restore_context(state: ConversationHead, manager: ContextManager | None) -> None:
    """Set the paths; an existing manager keeps its workspace and its cache."""
    if manager is not None and state.context_manager is not None:
        state.context_manager.state = manager.state
        return
    if manager is not None:
        manager.attach(state.os.workspace())
    state.context_manager = manager
