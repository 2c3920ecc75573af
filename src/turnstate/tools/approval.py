"""Approval: whether a call may run, decided by rules, by earlier answers of the user, or by asking.

A rule names a tool and optionally a path, both as patterns, and says allow, ask or deny. Of the rules that
match a call, the strictest wins, so a broad "allow" never overrides a narrow "deny". Without a rule, a
tool that changes nothing runs, and the user is asked about any other. An answer can be remembered for the
session, for the project (the folder), or always. The last two are kept in the installation's own folder,
never in the workspace: a project cannot approve itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from ..home import Home, HomeDocument
from ..message import ToolCallRequest
from .definition import Tool

Decision = Literal["allow", "ask", "deny"]
Scope = Literal["once", "session", "project", "always"]

_FILE = "approvals.json"


class Rule(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A decision for the calls of a tool; ``path`` limits it to calls that name a matching path.

    With a ``digest``, the rule applies only while the definition of the tool is the one that was approved.
    """

    tool: str
    decision: Decision
    path: str = ""
    digest: str = ""

    def is_about(self, tool: Tool) -> bool:
        """Return True if the rule applies to a tool as it is defined now.

        Several tools may have had one name in earlier versions, so by that name a rule only restricts.
        """
        former = tool.former_name if self.decision != "allow" else ""
        is_named = fnmatchcase(tool.name, self.tool) or (former and fnmatchcase(former, self.tool))
        return bool(is_named) and self.digest in ("", tool.digest)

    def matches(self, path: str) -> bool:
        """Return True if the rule applies to a path; an empty path matches only a rule without a path."""
        return not self.path or (bool(path) and fnmatchcase(path, self.path))


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """A call that waits for the user's decision."""

    tool: Tool
    call: ToolCallRequest
    paths: tuple[str, ...] = ()


class Approval(Struct, frozen=True, kw_only=True):
    """The user's answer: yes or no, how long it applies, and the reason if it is no."""

    allow: bool
    scope: Scope = "once"
    reason: str = ""


Ask = Callable[[ApprovalRequest], Awaitable[Approval]]


class _Answers(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The remembered answers: for all projects, and for each project by its folder."""

    always: tuple[Rule, ...] = ()
    projects: dict[str, tuple[Rule, ...]] = {}


class Approvals:
    """Decides whether calls may run; questions are asked one at a time."""

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        *,
        ask: Ask | None = None,
        project: Path | None = None,
        home: Home | None = None,
    ) -> None:
        self._rules, self._ask = tuple(rules), ask
        self._project = os.path.realpath(project) if project is not None else ""
        self._kept = HomeDocument(home, _FILE, _Answers) if home is not None else None
        self._session = list[Rule]()
        self._asking = asyncio.Lock()

    def decision(self, tool: Tool, args: dict[str, Any]) -> Decision:
        """Return the decision of the rules for a call; an "allow" of the user never overrides a "deny"."""
        paths = tool.paths(args)
        settings, answers = _said(self._rules, tool, paths), _said(self._answers(), tool, paths)
        if "deny" in settings | answers:
            return "deny"
        if "allow" in answers:
            return "allow"
        if settings:
            return "ask" if "ask" in settings else "allow"
        return "allow" if tool.idempotent and not tool.changes_files else "ask"

    async def refusal(self, tool: Tool, call: ToolCallRequest) -> str:
        """Return why a call must not run, or an empty string; ask the user if the rules say so."""
        decision = self.decision(tool, call.args)
        if decision == "ask" and self._ask is not None:
            async with self._asking:  # the answer to an earlier question may decide this one
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
        answer = await self._ask(ApprovalRequest(tool=tool, call=call, paths=paths))
        decision: Decision = "allow" if answer.allow else "deny"
        digest = tool.digest if tool.origin.kind == "mcp" else ""  # a server may change its tools at any time
        rules = [Rule(escape(tool.name), decision, escape(path), digest) for path in paths or ("",)]
        match answer.scope:
            case "session":
                self._session += rules
            case "project" if not self._project:
                self._session += rules
            case "project" | "always":
                self._remember(rules, everywhere=answer.scope == "always")
            case "once":
                pass
        if answer.allow:
            return ""
        return f"the user refused {tool.name}" + (f": {answer.reason}" if answer.reason else "")

    def _answers(self) -> tuple[Rule, ...]:
        """Return the user's earlier answers: in this session, for all projects, and for this project."""
        if self._kept is None:
            return tuple(self._session)
        kept = self._kept.read()
        return (*self._session, *kept.always, *kept.projects.get(self._project, ()))

    def _remember(self, rules: Sequence[Rule], *, everywhere: bool) -> None:
        if self._kept is None:
            self._session += rules
            return

        def with_rules(kept: _Answers) -> _Answers:
            if everywhere:
                return replace(kept, always=(*kept.always, *rules))
            own = (*kept.projects.get(self._project, ()), *rules)
            return replace(kept, projects={**kept.projects, self._project: own})

        self._kept.change(with_rules)


def _said(rules: Iterable[Rule], tool: Tool, paths: Sequence[str]) -> set[Decision]:
    """Return the decisions of rules for a call.

    "allow" rules together must cover all paths of the call; for any other rule, one path is enough.
    """
    places = paths or ("",)
    about = [rule for rule in rules if rule.is_about(tool)]
    allowed = [rule for rule in about if rule.decision == "allow"]
    others = {rule.decision for rule in about if rule.decision != "allow" and any(map(rule.matches, places))}
    covered = all(any(rule.matches(place) for rule in allowed) for place in places)
    return others | ({"allow"} if covered else set())
