"""Approval: whether a call may run, by rules, by what the user said before, or by asking.

A rule names a tool and perhaps a path, both as patterns, and says allow, ask or deny. Of the rules that
match a call, the strictest counts, so a broad "allow" never overrides a narrow "deny". Without a rule, a
tool that changes nothing runs, and the user is asked about any other. An answer can be remembered for the
session, for the project (the folder), or always. The last two are kept in the installation's own folder,
never in the workspace: a project cannot approve itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from .. import files, strict_json
from ..errors import HomeUnusable, InputError
from ..home import Home
from ..message import ToolCallRequest
from .definition import Tool

__all__ = ["Answer", "Approvals", "Decision", "Question", "Rule", "Scope"]

Decision = Literal["allow", "ask", "deny"]
Scope = Literal["once", "session", "project", "always"]

_FILE = "approvals.json"
_LOCK_SECONDS = 5.0


class Rule(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A decision for the calls of a tool; ``path`` limits it to calls that name a matching path."""

    tool: str
    decision: Decision
    path: str = ""

    def matches(self, tool: str, paths: Sequence[str]) -> bool:
        """Return True if the rule is about such a call; an allowance has to cover all its paths."""
        if not fnmatchcase(tool, self.tool):
            return False
        if not self.path:
            return True
        hits = [fnmatchcase(path, self.path) for path in paths]
        return bool(hits) and (all(hits) if self.decision == "allow" else any(hits))


class Question(Struct, frozen=True, kw_only=True):
    """A call that waits for the user's word."""

    tool: Tool
    call: ToolCallRequest
    paths: tuple[str, ...] = ()


class Answer(Struct, frozen=True, kw_only=True):
    """What the user said: yes or no, for how long it holds, and why not."""

    allow: bool
    scope: Scope = "once"
    reason: str = ""


Ask = Callable[[Question], Awaitable[Answer]]


class _Kept(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The file of remembered rules: those for all folders, and those of each folder."""

    always: tuple[Rule, ...] = ()
    projects: dict[str, tuple[Rule, ...]] = {}


class Approvals:
    """Decides about calls; questions are asked one after the other."""

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        *,
        ask: Ask | None = None,
        project: Path | None = None,
        home: Home | None = None,
    ) -> None:
        self._rules, self._ask = tuple(rules), ask
        self._project = os.path.realpath(project) if project is not None else None
        self._home = home
        self._session = list[Rule]()
        self._asking = asyncio.Lock()

    def decision(self, tool: Tool, args: dict[str, Any]) -> Decision:
        """Return what the rules say of a call; what the user allowed does not lift a prohibition."""
        paths = tool.paths(args)
        settings = {rule.decision for rule in self._rules if rule.matches(tool.name, paths)}
        answers = {rule.decision for rule in self._answers() if rule.matches(tool.name, paths)}
        if "deny" in settings | answers:
            return "deny"
        if "allow" in answers:
            return "allow"
        if settings:
            return "ask" if "ask" in settings else "allow"
        return "allow" if tool.idempotent and not tool.changes_files else "ask"

    async def refusal(self, tool: Tool, call: ToolCallRequest) -> str:
        """Return why a call must not run, or an empty text; ask the user if the rules say so."""
        decision = self.decision(tool, call.args)
        if decision == "ask" and self._ask is not None:
            async with self._asking:  # the answer to the question before may settle this one
                decision = self.decision(tool, call.args)
                if decision == "ask":
                    return await self._asked(tool, call)
        match decision:
            case "allow":
                return ""
            case "deny":
                return f"{tool.name} is not allowed here"
            case _:
                return f"{tool.name} needs the user's approval, and there is no one to ask"

    async def _asked(self, tool: Tool, call: ToolCallRequest) -> str:
        assert self._ask is not None  # noqa: S101
        paths = tool.paths(call.args)
        answer = await self._ask(Question(tool=tool, call=call, paths=paths))
        rules = [Rule(tool.name, "allow" if answer.allow else "deny", path) for path in paths or ("",)]
        match answer.scope:
            case "session":
                self._session += rules
            case "project" | "always":
                self._remember(rules, everywhere=answer.scope == "always")
            case "once":
                pass
        if answer.allow:
            return ""
        return f"the user refused {tool.name}" + (f": {answer.reason}" if answer.reason else "")

    def _answers(self) -> tuple[Rule, ...]:
        """Return what the user said before: in this session, for this project, for all of them."""
        if self._home is None:
            return tuple(self._session)
        kept = self._read()
        return (*self._session, *kept.always, *kept.projects.get(self._project or "", ()))

    def _read(self) -> _Kept:
        assert self._home is not None  # noqa: S101
        path = self._home.path / _FILE
        try:
            return msgspec.convert(strict_json.read(path.read_bytes()), _Kept)
        except FileNotFoundError:
            return _Kept()
        except (OSError, InputError, msgspec.ValidationError) as error:
            raise HomeUnusable(f"{path} cannot be read ({error}); correct it, or remove it") from error

    def _remember(self, rules: Sequence[Rule], *, everywhere: bool) -> None:
        """Write rules down; processes that do so at once wait for each other."""
        if self._home is None or (self._project is None and not everywhere):
            self._session += rules
            return
        folder = self._home.make()
        held = files.lock(folder / f"{_FILE}.lock", seconds=_LOCK_SECONDS)
        with closing(os.fdopen(held)):
            kept = self._read()
            if everywhere:
                kept.always = (*kept.always, *rules)
            else:
                project = self._project or ""
                kept.projects = {**kept.projects, project: (*kept.projects.get(project, ()), *rules)}
            files.replace(folder / _FILE, msgspec.json.format(msgspec.json.encode(kept), indent=2))
