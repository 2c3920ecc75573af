"""What is kept of sticky context: paths with their owners, the limit, the agent's name and hooks.

A value, written as ``{max_context_files_size, current_profile, paths, hooks}``. The CLI that this
shape comes from writes bare paths and forgets whose they are; here a path is an object with an
owner, bare ones are read as the agent's, and `original` gives the bare form. Hooks, and fields that
this version does not know, are kept as they came.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from msgspec import UNSET, UnsetType, field
from msgspec.structs import replace

from .. import reader
from ..errors import DuplicatePath, InputError, InvalidPayload, UnknownName
from ..value import Extra, Value, settle, settle_object, wire_names
from .entries import spelled
from .pattern import comparable
from .values import Owner

__all__ = ["ContextState", "StickyPath", "limit_for"]

OWNERS: tuple[str, ...] = get_args(Owner)

DEFAULT_WINDOW = 200_000
DEFAULT_PROFILE = "default"


def limit_for(window: int) -> int:
    """Give the tokens that context may have in a model's window: three quarters."""
    if type(window) is not int or window <= 0:
        raise InputError(f"a model's window is a number of tokens, and {window!r:.40} is none")
    return window * 3 // 4


class StickyPath(Value, frozen=True):
    """A file, folder or pattern, as it was written, and who asked for it."""

    path: str
    owner: Owner = "agent"

    def __post_init__(self) -> None:
        settle(self, "path")
        if self.owner not in OWNERS:
            raise InputError(f"{self.owner!r:.40} owns no path; agent and session do")


class ContextState(Value, frozen=True, kw_only=True):
    """The paths in the user's order, and what belongs to them; every change gives a new value."""

    max_context_files_size: int = limit_for(DEFAULT_WINDOW)
    current_profile: str = DEFAULT_PROFILE
    paths: tuple[StickyPath, ...] = ()
    hooks: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settle(self, "current_profile")
        settle_object(self, "hooks")

    def find(self, path: str) -> StickyPath | None:
        """Give the path that this one equals, if there is one."""
        wanted = comparable(path)
        return next((one for one in self.paths if comparable(one.path) == wanted), None)

    def adding(self, path: str, owner: Owner) -> ContextState:
        """Add a path at the end; one that is there already is refused."""
        if there := self.find(path):
            raise DuplicatePath(f"{spelled(path)} is in the context already, by the {there.owner}")
        return replace(self, paths=(*self.paths, StickyPath(path, owner)))

    def without(self, path: str) -> ContextState:
        """Remove a path, whoever asked for it."""
        there = self.find(path)
        if there is None:
            raise UnknownName(f"{spelled(path)} is not in the context; show lists what is")
        return replace(self, paths=tuple(one for one in self.paths if one is not there))

    def under_agent(self, profile: str, paths: Iterable[str]) -> ContextState:
        """Take another agent's paths for those of the last; what the user added stays."""
        own = ContextState(paths=tuple(one for one in self.paths if one.owner == "session"))
        news = dict[str, StickyPath]()
        for path in paths:
            if own.find(path) is None:
                news.setdefault(comparable(path), StickyPath(path, "agent"))
        return replace(self, current_profile=profile, paths=(*news.values(), *own.paths))

    def original(self) -> dict[str, Any]:
        """Give plain JSON values in the original's shape: bare paths."""
        return {**self.to_json(), "paths": [one.path for one in self.paths]}

    def to_json(self) -> dict[str, Any]:
        """Give plain JSON values."""
        return {
            "max_context_files_size": self.max_context_files_size,
            "current_profile": self.current_profile,
            "paths": [{"path": one.path, "owner": one.owner, **_extra(one)} for one in self.paths],
            "hooks": reader.plain(self.hooks),
            **_extra(self),
        }

    @classmethod
    def from_json(cls, document: Any, *, at: str = "$") -> ContextState:
        """Take it from plain JSON values, ours or the original's."""
        reader.check(document, at=at)
        if not isinstance(document, dict):
            raise InvalidPayload("sticky context is an object", path=at)
        fields = {key: document[key] for key in wire_names(cls) & document.keys()}
        for key, kind in _KINDS.items():
            _check(fields, key, kind, at)
        if "paths" not in fields:
            raise InvalidPayload("sticky context has a list of paths", path=f"{at}.paths")
        paths = tuple(_path(one, f"{at}.paths[{i}]") for i, one in enumerate(fields.pop("paths")))
        return cls(**fields, paths=paths, extra=_unknown(document, cls))


_KINDS: dict[str, type] = {
    "max_context_files_size": int,
    "current_profile": str,
    "paths": list,
    "hooks": dict,
}


def _path(document: Any, at: str) -> StickyPath:
    if isinstance(document, str):
        return StickyPath(document, "agent")
    if not isinstance(document, dict):
        raise InvalidPayload("a path is text, or an object with path and owner", path=at)
    _check(document, "path", str, at)
    if "path" not in document:
        raise InvalidPayload("a path is missing", path=f"{at}.path")
    owner = document.get("owner", "agent")
    if owner not in OWNERS:
        raise InvalidPayload("a path is owned by the agent or by the session", path=f"{at}.owner")
    return StickyPath(document["path"], owner, extra=_unknown(document, StickyPath))


def _check(document: dict[str, Any], key: str, kind: type, at: str) -> None:
    if key in document and type(document[key]) is not kind:
        found = type(document[key]).__name__
        raise InvalidPayload(f"expected {kind.__name__}, got {found}", path=f"{at}.{key}")
    if kind is int and document.get(key, 0) < 0:
        raise InvalidPayload("a number of tokens is not negative", path=f"{at}.{key}")


def _unknown(document: dict[str, Any], kind: type[Value]) -> Extra | UnsetType:
    unknown = {key: value for key, value in document.items() if key not in wire_names(kind)}
    return Extra(unknown) if unknown else UNSET


def _extra(value: Value) -> dict[str, Any]:
    if isinstance(value.extra, UnsetType):
        return {}
    plain: dict[str, Any] = reader.plain(value.extra)
    return plain
