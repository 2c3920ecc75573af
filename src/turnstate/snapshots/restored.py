"""What restoring gives: a snapshot, where it came from, and what was passed over on the way to it.

A snapshot that this installation did not write may be loaded if its user says so. It is then not
taken at its word: its system messages become ``foreign`` ones, so none of them passes for the prompt,
the bootstrap or the summary of this core, and their texts are given separately, to be shown.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ..context.snapshot import ContextSnapshot
from ..message import Message
from ..sent import described
from .seal import State

__all__ = ["Found", "Restored", "from_elsewhere"]


class Found(Struct, frozen=True, kw_only=True):
    """A file in the folder of a session, and what it is."""

    path: Path
    state: State
    reason: str = ""
    timestamp: int | None = None
    token_count: int | None = None


class Restored(Struct, frozen=True, kw_only=True):
    """The newest snapshot that could be used."""

    snapshot: ContextSnapshot
    path: Path
    foreign: bool = False
    system_texts: tuple[str, ...] = ()
    passed_over: tuple[Found, ...] = ()


def from_elsewhere(snapshot: ContextSnapshot) -> tuple[ContextSnapshot, tuple[str, ...]]:
    """Take its authority from a snapshot, and tell what it would have said with it."""
    texts = [_whole_text(message) for message in snapshot.messages if message.role == "system"]
    if snapshot.summary is not None and snapshot.summary not in texts:
        texts.append(snapshot.summary)
    messages = tuple(
        message.replace(kind="foreign") if message.role == "system" else message
        for message in snapshot.messages
    )
    return replace(snapshot, messages=messages, summary=None), tuple(texts)


def _whole_text(message: Message) -> str:
    """Write all parts, not only those that are words."""
    return "\n".join(described(part) for part in message.parts)
