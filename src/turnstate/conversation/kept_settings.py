"""The part of a conversation that is not in its messages, as the JSON of a `SettingsChange` entry.

Tools, sticky files and the rest go into the log as one JSON object whenever one of them changes; the newest
object on a path applies. The model has its own entry, which a session without other settings also writes;
the settings hold what is known about the model beyond the catalog. The line tracker's record of each file is
its own entry, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Struct, structs

from .. import strict_json
from ..catalog import ModelInfo
from ..catalog import named as model_named
from ..entry import Entry, ModelChange, SettingsChange
from ..errors import InputError, InvalidPayload, UnknownName
from ..sticky import ContextManager, ContextState
from ..tokens import counter
from ..toolspec import ToolSpec
from ..value import check_kind, refuse
from .environment import Os
from .line_tracker import FileLineTracker, tracker_from_json
from .tools import ToolOrigin, Tools

DEFAULTS: dict[str, Any] = {"tools": {}, "mcp_enabled": True}


class HasSettings(Protocol):
    """A conversation with its settings."""

    os: Os
    tools: Tools
    model: str | None
    model_info: ModelInfo | None
    context_manager: ContextManager | None
    file_line_tracker: dict[str, FileLineTracker]
    mcp_enabled: bool
    extra: dict[str, Any]


def fields_of(state: HasSettings) -> dict[str, Any]:
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


def changed(
    changes: Mapping[str, Any],
) -> Callable[[SettingsChange | None, ModelChange | None], Sequence[Entry]]:
    """Return a function that makes the entry for changed settings from the newest ones; none if none changed.

    Raise `InputError` if a setting is unknown or its value is of the wrong kind.
    """
    new = dict[str, Any]()
    for name, value in changes.items():
        match name:
            case "tools":
                new[name] = _tools_of(value)
            case "context_manager":
                check_kind(name, value, ContextManager, optional=True)
                new[name] = value.to_json() if value is not None else None
            case "mcp_enabled":
                check_kind(name, value, bool)
                new[name] = value
            case "extra":
                check_kind(name, value, dict)
                new[name] = strict_json.plain(value, at=name) or None
            case _:
                raise InputError(
                    f"there is no setting {name:.60}; there are tools, context_manager, mcp_enabled and extra"
                )

    def change(settings: SettingsChange | None, model: ModelChange | None) -> Sequence[Entry]:
        before = settings.fields if settings else DEFAULTS
        fields = {name: value for name, value in {**before, **new}.items() if value is not None}
        fields = without_known_model(fields, model)
        return [SettingsChange(fields)] if fields != without_known_model(before, model) else []

    return change


def _tools_of(tools: Any) -> dict[str, Any]:
    if not isinstance(tools, Mapping) or not all(isinstance(origin, ToolOrigin) for origin in tools):
        refuse("tools", tools, "a mapping of ToolOrigin to sequences of ToolSpec")
    for origin, some in tools.items():
        if isinstance(some, str) or not isinstance(some, Iterable):
            refuse("tools", some, f"a sequence of ToolSpec for {origin.key}")
        for spec in some:
            check_kind(f"a tool of {origin.key}", spec, ToolSpec)
    return tools_to_json(tools)


def model_under(change: ModelChange | None, info: ModelInfo | None) -> ModelInfo | None:
    """Return the model that a model change names, from the settings if they have it, else the catalog."""
    if change is None or (info and (info.id, info.counter) == (change.id, change.counter)):
        return info
    return structs.replace(model_named(change.id), counter=change.counter) if change.id else None


def restore(state: HasSettings, fields: dict[str, Any], *, at: str = "$") -> None:
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


def _restore_context(state: HasSettings, manager: ContextManager | None) -> None:
    """Set the paths; an existing manager keeps its workspace and its cache."""
    if manager is not None and state.context_manager is not None:
        state.context_manager.state = manager.state
        return
    if manager is not None:
        manager.attach(state.os.workspace())
    state.context_manager = manager
