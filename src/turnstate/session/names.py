"""Checks of the input to sessions other than messages: names, prompts, metadata, settings of a manager."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from .. import catalog, strict_json
from ..context.policy import Policy
from ..conversation.line_tracker import FileLineTracker, tracker_to_json
from ..entry import ModelChange
from ..errors import InputError, TooLarge
from ..home import Home
from ..ids import wall_clock
from ..memory.engines import check_engine
from ..snapshots import Snapshots
from ..tokens import counter as counter_named
from ..value import check_kind, check_number, refuse
from .user_memory import Recall

LONGEST = 500
"""Maximum characters of a name: an index key can hold them on every store."""

OWNERS = "\x1f"
"""The prefix of the tenant that keeps the state of another tenant and its users."""

LARGEST_META = 100_000
"""Maximum bytes of metadata, which is read whenever the session is read."""


def checked(name: object, what: str, *, empty: bool = False) -> str:
    """Return a name that every store can keep, or raise `InputError`."""
    if not isinstance(name, str):
        raise InputError(f"{what} must be text, not {type(name).__name__}")
    strict_json.check_text(name, at=what)
    if "\0" in name:
        raise InputError(f"{what} contains a NUL character")
    if len(name) > LONGEST or not (name or empty):
        allowed = "at most" if empty else "1 to"
        raise InputError(f"{what} must have {allowed} {LONGEST} characters, not {len(name)}")
    return str.__str__(name)


def checked_tags(tags: object) -> list[str]:
    """Return tags that every store can keep, or raise `InputError`."""
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        refuse("tags", tags, "a sequence of tags, such as ['urgent']")
    return [checked(tag, "a tag") for tag in tags]


def checked_prompt(text: object) -> str:
    """Return a system prompt that every store can keep; it may have any length."""
    strict_json.check_text(text, at="system")
    return str.__str__(text)


def model_change(id: object) -> ModelChange:
    """Return the entry for a model, with its counter from the catalog, which estimates unknown models."""
    name = checked(id, "a model")
    return ModelChange(name, catalog.model(name).counter)


def checked_meta(meta: object) -> dict[str, Any]:
    """Return a copy of the metadata of a session, a JSON object, or raise `InputError`."""
    if not isinstance(meta, dict):
        raise InputError(f"meta must be an object, not {type(meta).__name__}")
    plain: dict[str, Any] = strict_json.plain(meta, at="meta")
    if (size := len(msgspec.json.encode(plain))) > LARGEST_META:
        raise TooLarge(f"meta has {size:,} bytes; at most {LARGEST_META:,} are kept with a session")
    return plain


def check_settings(
    *,
    tenant: str = "default",
    policy: object = None,
    counter: str = "o200k_base",
    idle: float | None = None,
    model: object = None,
    snapshots: object = None,
    memory: object = None,
    recall: object = None,
    home: object = None,
    clock: object = wall_clock,
    monotonic: object = None,
) -> None:
    """Raise `InputError` if a setting of a session manager is invalid."""
    if checked(tenant, "a tenant").startswith(OWNERS):
        refuse("tenant", tenant, f"a name that does not begin with {OWNERS!r}")
    check_kind("policy", policy, Policy, optional=True)
    counter_named(counter)
    idle_milliseconds(idle)
    if model is not None and not (isinstance(getattr(model, "name", None), str) and _has(model, "stream")):
        refuse("model", model, "a model: a value with a name and a method stream")
    check_kind("snapshots", snapshots, Snapshots, optional=True)
    if isinstance(memory, str):
        check_engine(memory)
    elif memory is not None and not _has(memory, "archive", "ingest"):
        refuse("memory", memory, "the name of a memory engine, or a value with methods archive, ingest, …")
    check_kind("recall", recall, Recall, optional=True)
    check_kind("home", home, Home, optional=True)
    for name, one in (("clock", clock), ("monotonic", monotonic or clock)):
        if not callable(one):
            refuse(name, one, "a function that returns milliseconds")


def _has(value: object, *methods: str) -> bool:
    return all(callable(getattr(value, method, None)) for method in methods)


def idle_milliseconds(seconds: float | None) -> int:
    """Return an idle time in milliseconds; None is 0, which means never."""
    if seconds is None:
        return 0
    check_number("idle", seconds, least=0, most=1e9, below=True)
    return round(seconds * 1000)


def checked_text(text: object, what: str) -> str:
    """Return a text of any length that every store can keep, or raise `InputError`."""
    strict_json.check_text(text, at=what)
    return str.__str__(text)


def checked_lines(records: object) -> dict[str, dict[str, Any] | None]:
    """Return records of the line tracker as plain JSON, or raise `InputError`."""
    if not isinstance(records, Mapping):
        refuse("records", records, "a mapping of paths to records of the line tracker")
    found = dict[str, dict[str, Any] | None]()
    for path, record in records.items():
        check_kind(f"the record of {path!r:.80}", record, FileLineTracker, optional=True)
        found[checked_text(path, "a path")] = tracker_to_json(record) if record is not None else None
    return found
