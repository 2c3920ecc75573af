"""The state of sticky context: paths with their owners, the limit, the agent's name and hooks.

It is a value, stored as ``{max_context_files_size, current_profile, paths, hooks}``. The shape comes from
Amazon Q's CLI, which writes bare paths without owners. Here a path is an object with an owner; bare paths are
read as the agent's, and `original` returns the bare form. Hooks, and fields that this version does not know,
are kept unchanged. The module also defines the delimited form in which files are sent; neither the content
nor the name of a file can break out of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal, get_args

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from .. import strict_json
from ..errors import DuplicatePath, InputError, InvalidPayload, UnknownName
from ..value import Extra, Value, settle, settle_object, wire_names
from .pattern import comparable

CONTEXT_ENTRY_START_HEADER = "--- CONTEXT ENTRY BEGIN ---\n"
CONTEXT_ENTRY_END_HEADER = "--- CONTEXT ENTRY END ---\n\n"

# No prefix before the first word: a file of a million backslashes must not take quadratic time.
_MARKER = re.compile(r"CONTEXT\s+ENTRY\s+(?:BEGIN|END)", re.IGNORECASE)
_SHORT = {"\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


def entry(path: str, content: str) -> str:
    """Return the entry of one file; pass a path from `spelled`."""
    named = f"{CONTEXT_ENTRY_START_HEADER}[{_guarded(path)}]\n"
    return f"{named}{_guarded(content)}\n{CONTEXT_ENTRY_END_HEADER}"


def spelled(path: str) -> str:
    r"""Return a path as one printable line: ``\n``, ``\u2028``, ``\xe9``.

    A byte that is not UTF-8 becomes ``\x..``, an invisible character ``\u....``.
    """
    if path.isprintable() and "\\" not in path:
        return path
    return "".join(map(_character, path))


def _guarded(text: str) -> str:
    return _MARKER.sub(r"\\\g<0>", text)


def _character(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # how Python represents a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


Owner = Literal["agent", "session"]
"""Who added a path: the agent's configuration, or the user in this conversation."""

Reason = Literal["limit", "missing", "unreadable", "special", "huge", "binary", "outside", "stopped"]


class StickyFile(Struct, frozen=True):
    """A file that is sent: its path as shown, the tokens of its entry, the hash of its bytes."""

    path: str
    tokens: int
    sha256: str


class Dropped(Struct, frozen=True):
    """A file, folder or pattern that is not sent, or only in part, and why."""

    path: str
    reason: Reason
    why: str


class Gathered(Struct, frozen=True, kw_only=True):
    """The sticky context at one moment; the text is None if there are no files."""

    text: str | None = None
    files: tuple[StickyFile, ...] = ()
    dropped: tuple[Dropped, ...] = ()

    @property
    def length(self) -> int:
        """The number of characters in the text."""
        return len(self.text or "")

    @property
    def left_out(self) -> tuple[str, ...]:
        """Everything that is not in the text, each with the reason, as a window reports it."""
        return tuple(f"{one.path}: {one.why}" for one in self.dropped)

    @property
    def tokens(self) -> int:
        """The tokens of all entries."""
        return sum(file.tokens for file in self.files)


class Shown(Struct, frozen=True):
    """A path, its owner, the files that it matches now, and what was left out."""

    path: str
    owner: Owner
    files: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()


OWNERS: tuple[str, ...] = get_args(Owner)

DEFAULT_WINDOW = 200_000
DEFAULT_PROFILE = "default"


def limit_for(window: int) -> int:
    """Return the most tokens that sticky context may use of a model's window: three quarters."""
    if type(window) is not int or window <= 0:
        raise InputError(f"a model's window must be a positive number of tokens, not {window!r:.40}")
    return window * 3 // 4


class StickyPath(Value, frozen=True):
    """A file, folder or pattern as it was written, and its owner."""

    path: str
    owner: Owner = "agent"

    def __post_init__(self) -> None:
        settle(self, "path")
        if self.owner not in OWNERS:
            raise InputError(f"the owner of a path must be agent or session, not {self.owner!r:.40}")


class ContextState(Value, frozen=True, kw_only=True):
    """The paths in the user's order, and their settings; every change returns a new value."""

    max_context_files_size: int = limit_for(DEFAULT_WINDOW)
    current_profile: str = DEFAULT_PROFILE
    paths: tuple[StickyPath, ...] = ()
    hooks: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settle(self, "current_profile")
        settle_object(self, "hooks")

    def find(self, path: str) -> StickyPath | None:
        """Return the path in the context that equals this one, or None."""
        wanted = comparable(path)
        return next((one for one in self.paths if comparable(one.path) == wanted), None)

    def adding(self, path: str, owner: Owner) -> ContextState:
        """Return the state with a path added at the end. Raise DuplicatePath if it is there already."""
        if there := self.find(path):
            raise DuplicatePath(f"{spelled(path)} is in the context already, added by the {there.owner}")
        return replace(self, paths=(*self.paths, StickyPath(path, owner)))

    def without(self, path: str) -> ContextState:
        """Return the state without a path. Raise UnknownName if it is not in the context."""
        there = self.find(path)
        if there is None:
            raise UnknownName(f"{spelled(path)} is not in the context; `show` lists the paths that are")
        return replace(self, paths=tuple(one for one in self.paths if one is not there))

    def under_agent(self, profile: str, paths: Iterable[str]) -> ContextState:
        """Return the state with the paths of another agent; the user's own paths stay."""
        own = ContextState(paths=tuple(one for one in self.paths if one.owner == "session"))
        news = dict[str, StickyPath]()
        for path in paths:
            if own.find(path) is None:
                news.setdefault(comparable(path), StickyPath(path, "agent"))
        return replace(self, current_profile=profile, paths=(*news.values(), *own.paths))

    def original(self) -> dict[str, Any]:
        """Return plain JSON values as Amazon Q writes them, with bare paths."""
        return {**self.to_json(), "paths": [one.path for one in self.paths]}

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "max_context_files_size": self.max_context_files_size,
            "current_profile": self.current_profile,
            "paths": [{"path": one.path, "owner": one.owner, **_extra(one)} for one in self.paths],
            "hooks": strict_json.plain(self.hooks),
            **_extra(self),
        }

    @classmethod
    def from_json(cls, document: Any, *, at: str = "$") -> ContextState:
        """Create a state from plain JSON values, ours or Amazon Q's."""
        strict_json.check(document, at=at)
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
    plain: dict[str, Any] = strict_json.plain(value.extra)
    return plain
