"""The context manager: adds, removes, shows and gathers the files that are sent with every request.

It holds a small value, `state`, which can be stored as JSON, and a cache of what it has read, which cannot.
After restoring it, attach it to a workspace again. It blocks while it reads, and only one caller may use it
at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from ..errors import InputError, NothingMatches
from ..tokens import Counter
from .gather import Gatherer
from .pattern import Workspace
from .reading import find
from .sticky_paths import ContextState, Gathered, Owner, Shown, StickyPath, limit_for, spelled


class ContextManager:
    """Adds, removes, shows and gathers sticky files, the agent's and the session's."""

    def __init__(self, workspace: Workspace | None = None, *, state: ContextState | None = None) -> None:
        self._workspace = workspace
        self._state = state or ContextState()
        self._gatherer = Gatherer()
        self._length: int | None = None

    @classmethod
    def from_json(cls, document: Any, workspace: Workspace | None = None) -> ContextManager:
        """Create a manager from plain JSON values, ours or Amazon Q's, without reading files."""
        return cls(workspace, state=ContextState.from_json(document))

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return self._state.to_json()

    def attach(self, workspace: Workspace) -> None:
        """Look up files in this workspace from now on."""
        self._workspace, self._length = workspace, None

    @property
    def state(self) -> ContextState:
        """The paths and their settings; assign an earlier state to restore it."""
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
        """The number of characters gathered last; None if the state or workspace changed since."""
        return self._length

    def add(self, path: str | os.PathLike[str], *, owner: Owner = "session", force: bool = False) -> Shown:
        """Add a file, folder or pattern at the end, and return what it matches.

        Raise NothingMatches if it matches no file, unless ``force`` is set; raise DuplicatePath if it is in
        the context already.
        """
        text = _checked(path)
        state = self._state.adding(text, owner)
        shown = self._shown(state.paths[-1])
        if not (shown.files or force):
            raise NothingMatches(_nothing(shown, attached=self._workspace is not None))
        self.state = state
        return shown

    def remove(self, path: str | os.PathLike[str]) -> None:
        """Remove a path, whoever added it. Raise UnknownName if it is not in the context."""
        self.state = self._state.without(os.fspath(path))

    def show(self) -> tuple[Shown, ...]:
        """Return each path with its owner and the files that it matches now."""
        return tuple(map(self._shown, self._state.paths))

    def for_agent(self, profile: str, paths: Iterable[str] = ()) -> None:
        """Replace the previous agent's paths with those of another agent; the session's paths stay."""
        self.state = self._state.under_agent(profile, paths)

    def for_window(self, tokens: int) -> None:
        """Set the limit to three quarters of a model's window."""
        self.state = replace(self._state, max_context_files_size=limit_for(tokens))

    def gather(self, counter: Counter, *, limit_tokens: int | None = None) -> Gathered:
        """Read changed files; return the text to send, the files in it, and what was left out."""
        if self._workspace is None:
            raise InputError("this context has no workspace; attach one first")
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
        raise InputError(f"{text!r:.80} is not a path")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{spelled(text)} is not UTF-8 and cannot be stored by name; add a pattern that matches it"
        ) from None
    return text


def _nothing(shown: Shown, *, attached: bool) -> str:
    if not attached:
        return f"{spelled(shown.path)} cannot be looked up without a workspace; attach one, or force it"
    reasons = "; ".join(one.why for one in shown.dropped[:3])
    return f"{spelled(shown.path)} matches no file to send ({reasons}); force it if the file will exist later"
