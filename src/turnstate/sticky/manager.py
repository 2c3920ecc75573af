"""The context manager: files that are sent with every request, for as long as they are in the context.

It holds a small value, `state`, which goes into JSON and comes back, and a memory of what it read,
which does not. After a restore it is attached to a workspace again. It blocks while it reads, and
serves one caller at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from ..errors import InputError, NothingMatches
from ..tokens import Counter
from .files import find
from .gather import Gatherer
from .pattern import Workspace
from .state import ContextState, Gathered, Owner, Shown, StickyPath, limit_for, spelled

__all__ = ["ContextManager"]


class ContextManager:
    """Adds, removes, shows and gathers sticky files, the agent's and the session's."""

    def __init__(self, workspace: Workspace | None = None, *, state: ContextState | None = None) -> None:
        self._workspace = workspace
        self._state = state or ContextState()
        self._gatherer = Gatherer()
        self._length: int | None = None

    @classmethod
    def from_json(cls, document: Any, workspace: Workspace | None = None) -> ContextManager:
        """Take it from plain JSON values, ours or the original's; no file is looked at."""
        return cls(workspace, state=ContextState.from_json(document))

    def to_json(self) -> dict[str, Any]:
        """Return what is to be kept as plain JSON values."""
        return self._state.to_json()

    def attach(self, workspace: Workspace) -> None:
        """Look for files there from now on."""
        self._workspace, self._length = workspace, None

    @property
    def state(self) -> ContextState:
        """The paths and what belongs to them; setting it restores an earlier one."""
        return self._state

    @state.setter
    def state(self, state: ContextState) -> None:
        self._state, self._length = state, None

    @property
    def paths(self) -> tuple[StickyPath, ...]:
        """The paths in the user's order, each with its owner."""
        return self._state.paths

    @property
    def max_context_files_size(self) -> int:
        """The tokens that all files together may have."""
        return self._state.max_context_files_size

    @property
    def context_message_length(self) -> int | None:
        """The characters of the text that was gathered last; none if something was changed since."""
        return self._length

    def add(self, path: str | os.PathLike[str], *, owner: Owner = "session", force: bool = False) -> Shown:
        """Add a file, folder or pattern at the end, and say what it stands for.

        One that stands for no file is refused with `NothingMatches` unless forced, one that is there
        already with `DuplicatePath`.
        """
        text = _checked(path)
        state = self._state.adding(text, owner)
        shown = self._shown(state.paths[-1])
        if not (shown.files or force):
            raise NothingMatches(_nothing(shown, attached=self._workspace is not None))
        self.state = state
        return shown

    def remove(self, path: str | os.PathLike[str]) -> None:
        """Remove a path, whoever asked for it; `UnknownName` if it is not in the context."""
        self.state = self._state.without(os.fspath(path))

    def show(self) -> tuple[Shown, ...]:
        """Say of each path whose it is, and which files it stands for now."""
        return tuple(map(self._shown, self._state.paths))

    def for_agent(self, profile: str, paths: Iterable[str] = ()) -> None:
        """Take another agent's paths for those of the last; the session's stay."""
        self.state = self._state.under_agent(profile, paths)

    def for_window(self, tokens: int) -> None:
        """Set the limit to three quarters of a model's window."""
        self.state = replace(self._state, max_context_files_size=limit_for(tokens))

    def gather(self, counter: Counter, *, limit_tokens: int | None = None) -> Gathered:
        """Read what changed, and give the text to send with what was kept and what was dropped."""
        if self._workspace is None:
            raise InputError("this context belongs to no workspace; attach it to one first")
        limit = self.max_context_files_size if limit_tokens is None else limit_tokens
        gathered = self._gatherer.gather(self.paths, self._workspace, limit=limit, counter=counter)
        self._length = gathered.length
        return gathered

    def _shown(self, path: StickyPath) -> Shown:
        if self._workspace is None:
            return Shown(path.path, path.owner)
        found = find(path.path, path.owner, self._workspace)
        return Shown(path.path, path.owner, tuple(file.shown for file in found.files), found.dropped)


def _checked(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise InputError(f"{text!r:.80} is no path")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{spelled(text)} is not UTF-8 and cannot be kept by name; add a pattern that finds it"
        ) from None
    return text


def _nothing(shown: Shown, *, attached: bool) -> str:
    if not attached:
        return f"{spelled(shown.path)} cannot be looked up without a workspace; attach one, or force it"
    reasons = "; ".join(one.why for one in shown.dropped[:3])
    return f"{spelled(shown.path)} gives no file to send ({reasons}); force it if it will come to be"
