"""Hooks as commands: a program gets a step of an agent as JSON, and may change or stop it.

A command reads an object from its standard input: ``event``, ``session``, and the subject of the step:
``request`` (the number of messages and the names of tools), ``message``, ``call``, or ``call`` and
``result``. It prints nothing, or an object:

    {"stop": "why"}                         ends the run
    {"result": …, "is_error": false}        for a tool: use this result instead of running it or of its own

A command that fails, times out or prints anything else counts as a "no": the call is not run or its result is
withheld; before a request or after a reply, the run ends. So a broken check lets nothing through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from .. import strict_json
from ..agent import Hooks, Stop
from ..errors import InputError, TurnstateError
from ..message import Message, ToolCallRequest, ToolCallResult
from ..models import ModelRequest
from ..tools.command import run_program
from .profile import HookCommand, HookCommands

_SHOWN = 300


class HookFailed(TurnstateError):
    """The command of a hook failed, took too long, or did not answer with JSON."""


class _HookAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    stop: str | None = None
    result: Any = msgspec.UNSET
    is_error: bool = False


def command_hooks(
    commands: HookCommands, *, session: str, folder: Path, variables: Sequence[str] = ()
) -> Hooks:
    """Return hooks that run these commands in a folder; the commands of a step run one after another.

    `variables` are environment variables that they get besides the usual ones, by name or pattern.
    """
    return _CommandHooks(commands, session, folder, variables).hooks()


class _CommandHooks:
    def __init__(self, commands: HookCommands, session: str, folder: Path, variables: Sequence[str]) -> None:
        self._commands, self._session, self._folder = commands, session, folder
        self._variables = variables

    def hooks(self) -> Hooks:
        """Return hooks for the steps that have commands only, so the others cost nothing."""
        steps = {name: getattr(self, name) for name in HookCommands.__struct_fields__}
        return Hooks(**{name: step for name, step in steps.items() if getattr(self._commands, name)})

    async def before_request(self, request: ModelRequest) -> ModelRequest | None:
        told = {"messages": len(request.messages), "tools": [one.name for one in request.tools]}
        await self._step("before_request", {"request": told})
        return None

    async def after_reply(self, message: Message) -> None:
        await self._step("after_reply", {"message": message})

    async def before_tool(self, call: ToolCallRequest) -> ToolCallResult | None:
        return await self._tool("before_tool", call, {"call": call}, "it was not run")

    async def after_tool(self, call: ToolCallRequest, result: ToolCallResult) -> ToolCallResult | None:
        about = {"call": call, "result": result}
        return await self._tool("after_tool", call, about, "it ran, and its result is withheld")

    async def _step(self, event: str, about: Mapping[str, Any]) -> None:
        for command in getattr(self._commands, event):
            try:
                answer = await self._answer(command, event, about)
            except HookFailed as error:
                raise Stop(str(error)) from None
            if answer.result is not msgspec.UNSET:
                raise Stop(f"the hook {command.command} answered {event} with a result; only tools have one")

    async def _tool(
        self, event: str, call: ToolCallRequest, about: Mapping[str, Any], outcome: str
    ) -> ToolCallResult | None:
        given: ToolCallResult | None = None
        commands: Sequence[HookCommand] = getattr(self._commands, event)
        for command in commands:
            if not any(fnmatchcase(call.name, pattern) for pattern in command.tools):
                continue
            try:
                answer = await self._answer(command, event, about)
            except HookFailed as error:
                return ToolCallResult.of(call.id, f"{error}; {outcome}", is_error=True)
            if answer.result is not msgspec.UNSET:
                given = ToolCallResult.of(call.id, answer.result, is_error=answer.is_error)
                if event == "before_tool":
                    return given
                about = {**about, "result": given}
        return given

    async def _answer(self, command: HookCommand, event: str, about: Mapping[str, Any]) -> _HookAnswer:
        """Run a command and return its answer; raise `HookFailed` if there is no usable answer."""
        given = msgspec.json.encode({"event": event, "session": self._session, **about})
        program = command.command
        try:
            done = await run_program(
                program,
                *command.args,
                folder=self._folder,
                seconds=command.seconds,
                given=given,
                variables=self._variables,
            )
        except OSError as error:
            raise HookFailed(f"the hook {program} cannot be started: {error.strerror}") from None
        if done.code is None:
            raise HookFailed(f"the hook {program} did not finish within {command.seconds:g} seconds")
        if done.code:
            said = (done.errors or done.output).strip()
            raise HookFailed(f"the hook {program} ended with {done.code}: {said[:_SHOWN]}")
        if not done.output.strip():
            return _HookAnswer()
        try:
            answer = msgspec.convert(strict_json.read(done.output.encode()), _HookAnswer)
        except (InputError, msgspec.ValidationError) as error:
            raise HookFailed(f"the hook {program} printed an invalid answer: {error}") from None
        if answer.stop is not None:
            raise Stop(answer.stop)
        return answer
