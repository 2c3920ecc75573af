"""The tool manager: holds an agent's tools and runs batches of calls.

The calls of a batch run concurrently, and each result is yielded as soon as it is available, so the caller
can save it before the others finish. Every failure becomes a result that the model can read: arguments that
are not an object, an unknown name, arguments that do not match, a refusal, an error, a time limit. Only
cancellation propagates, and a start that the caller could not save: both stop the tools that are running.
"""

from __future__ import annotations

import asyncio
import difflib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from .. import long_json
from ..conversation.tools import ToolOrigin
from ..errors import AlreadyExists, TurnstateError
from ..message import ToolCallRequest, ToolCallResult
from ..toolspec import ToolSpec
from ..value import check_number, check_whole
from .approval import Approvals
from .definition import Tool, ToolContext, tool
from .workspace import WorkspaceFiles

if TYPE_CHECKING:
    from ..conversation.edits import LineTracking
    from ..session import Session

Starting = Callable[[ToolCallRequest], Awaitable[None]]
"""Is awaited when a call is about to run, after its approval; the call does not run if it raises."""

TIMEOUT = 120.0
"""Seconds that a tool may take unless it says otherwise."""

OUTPUT_LIMIT = 16_000_000
"""Maximum bytes of one result as JSON; a window shows far less, and the log keeps all of it."""

PARALLEL = 16
"""Maximum number of tools that run at the same time."""


class ToolManager:
    """The tools of an agent, by name; running one never raises for what the tool does."""

    def __init__(
        self,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        *,
        approvals: Approvals | None = None,
        workspace: Path | None = None,
        timeout: float = TIMEOUT,
        output_limit: int = OUTPUT_LIMIT,
        variables: Iterable[str] = (),
    ) -> None:
        check_number("ToolManager(timeout)", timeout, least=0, most=86_400, above=True)
        check_whole("ToolManager(output_limit)", output_limit, least=1_000)
        self.approvals = approvals or Approvals()
        self.workspace = WorkspaceFiles(workspace) if workspace is not None else None
        self._timeout, self._output_limit, self._variables = timeout, output_limit, tuple(variables)
        self._tools = dict[str, Tool]()
        self.sources = list[Callable[[], Awaitable[None]]]()
        """Functions to await before each request, so that the tools of servers are up to date."""
        for one in tools:
            self.add(one)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All tools, in the order in which they were added."""
        return tuple(self._tools.values())

    def get(self, name: str) -> Tool | None:
        """Return the tool with a name, or the only one that had it in earlier versions, or None."""
        if (found := self._tools.get(name)) is not None:
            return found
        former = [one for one in self._tools.values() if one.former_name == name]
        return former[0] if len(former) == 1 else None

    def add(self, added: Tool | Callable[..., Any]) -> Tool:
        """Add a tool, or a function that becomes one; names are unique."""
        made = added if isinstance(added, Tool) else tool(added)
        if made.name in self._tools:
            raise AlreadyExists(f"there is a tool {made.name} already; give one of them another name")
        self._tools[made.name] = made
        return made

    def remove(self, origin: ToolOrigin) -> None:
        """Remove all tools of an origin, such as a server that has stopped."""
        self._tools = {name: one for name, one in self._tools.items() if one.origin != origin}

    async def refresh(self) -> tuple[ToolSpec, ...]:
        """Reload the tools of servers that have changed theirs, and return all definitions."""
        for source in self.sources:
            await source()
        return self.specs()

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return all definitions as they are sent to a model."""
        return tuple(one.spec for one in self._tools.values())

    def schemas(self) -> dict[str, list[ToolSpec]]:
        """Return the definitions by origin, as `ConversationState` expects them."""
        found = dict[str, list[ToolSpec]]()
        for one in self._tools.values():
            found.setdefault(one.origin.key, []).append(one.spec)
        return found

    def counts(self) -> str:
        """Return how many tools each server offers, the most first, and how many there are besides."""
        found = Counter(one.origin.server if one.origin.kind == "mcp" else "" for one in self.tools)
        others = found.pop("", 0)
        told = [f"{count} of the MCP server {name}" for name, count in found.most_common()]
        return ", ".join([*told, *([f"{others} of your own and built in"] if others else [])])

    async def run(
        self,
        calls: Sequence[ToolCallRequest],
        *,
        session: Session | None = None,
        tracking: LineTracking | None = None,
        starting: Starting | None = None,
    ) -> AsyncGenerator[ToolCallResult, None]:
        """Run calls concurrently and yield each result as soon as it is available.

        `starting` is awaited for each call of a tool that is not idempotent, between its approval and its
        run.
        """
        contexts = [
            ToolContext(
                call=call,
                session=session,
                workspace=self.workspace,
                tracking=tracking,
                variables=self._variables,
            )
            for call in calls
        ]
        if len(contexts) == 1:  # needs no task
            yield await self._result(contexts[0], starting)
            return
        slots = asyncio.Semaphore(PARALLEL)

        async def slotted(context: ToolContext) -> ToolCallResult:
            async with slots:
                return await self._result(context, starting)

        tasks = [asyncio.ensure_future(slotted(context)) for context in contexts]
        try:
            for task in asyncio.as_completed(tasks):
                yield await task
        finally:
            left = [one for one in tasks if not one.done()]
            for one in left:
                one.cancel()
            if left:
                await asyncio.wait(left)

    async def _result(self, context: ToolContext, starting: Starting | None) -> ToolCallResult:
        """Run one call and return its result, which may be an error."""
        call = context.call
        if (unusable := malformed(call)) is not None:
            return unusable
        found = self.get(call.name)
        if found is None:
            return _error(call, self._unknown(call.name))
        try:
            args = await found.checked(call.args)
            refusal = await self.approvals.refusal(found, call)
        except (Exception, SystemExit) as error:  # the question may fail; what is not approved does not run
            refusal = _described(error)
        if refusal:
            return _error(call, refusal)
        if starting is not None and not found.idempotent:
            await starting(call)
        limit = found.timeout or self._timeout
        try:
            async with asyncio.timeout(limit) as watched:
                output = await found.run_checked(args, context)
            return self._within_limit(call, output)
        except TimeoutError as error:
            if watched.expired():
                return _error(call, f"{call.name} did not finish within {limit:g} seconds and was stopped")
            return _error(call, _described(error))
        except (Exception, SystemExit) as error:  # a tool may raise anything, and the model must learn of it
            return _error(call, _described(error))

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._tools, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the tools are {', '.join(self._tools) or 'none'}"
        return f"there is no tool {name}; {hint}"

    def _within_limit(self, call: ToolCallRequest, output: Any) -> ToolCallResult:
        if isinstance(output, ToolCallResult):  # the tool can report that it failed
            given = msgspec.structs.replace(output, tool_call_id=call.id)
        else:
            given = ToolCallResult.of(call.id, output)
        size = len(long_json.encode(given.result))
        if size <= self._output_limit:
            return given
        shown = given.result if isinstance(given.result, str) else long_json.encode(given.result).decode()
        kept = shown.encode()[: self._output_limit].decode(errors="ignore")
        note = f"\n[The output had {size:,} bytes; the first {self._output_limit:,} were kept.]"
        return ToolCallResult.of(call.id, kept + note, is_error=given.is_error)


def malformed(call: ToolCallRequest) -> ToolCallResult | None:
    """Return the result of a call whose arguments are not an object; None if they are.

    Such a call has empty ``args``, with which a tool would run on its defaults. It is answered before anyone
    sees it: hooks, the user who approves calls, the log of what was started.
    """
    return None if call.unparsed is None else _error(call, f"{call.error}\n{call.name} was not run")


def _described(error: BaseException) -> str:
    """Return an exception as text, even if its `__str__` fails; our own errors need no name."""
    try:
        return str(error) if isinstance(error, TurnstateError) else f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _error(call: ToolCallRequest, text: str) -> ToolCallResult:
    return ToolCallResult.of(call.id, text, is_error=True)
