"""Hooks as commands: what they are told, what they may answer, and that a broken one lets nothing through."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from turnstate import Message, ToolCallRequest, ToolCallResult
from turnstate.agent import Hooks, Stop
from turnstate.config import HookCommand, HookCommands
from turnstate.config.hooks import command_hooks
from turnstate.models import ModelRequest

CALL = ToolCallRequest(name="run_command", args={"command": "ls"})
RESULT = ToolCallResult.of(CALL.id, "a.txt")


def shell(script: str, **settings: Any) -> HookCommand:
    return HookCommand(command="/bin/sh", args=("-c", script), **settings)


def hooks(folder: Path, **commands: tuple[HookCommand, ...]) -> Hooks:
    return command_hooks(HookCommands(**commands), session="s1", folder=folder)


def answer(step: Awaitable[Any] | None) -> Any:
    async def awaited() -> Any:
        assert step is not None
        return await step

    return asyncio.run(awaited())


def before(folder: Path, *commands: HookCommand) -> ToolCallResult | None:
    made = hooks(folder, before_tool=commands)
    assert made.before_tool
    found: ToolCallResult | None = answer(made.before_tool(CALL))
    return found


def after(folder: Path, *commands: HookCommand) -> ToolCallResult | None:
    made = hooks(folder, after_tool=commands)
    assert made.after_tool
    found: ToolCallResult | None = answer(made.after_tool(CALL, RESULT))
    return found


def test_a_command_is_told_the_step_and_a_silent_one_changes_nothing(tmp_path: Path) -> None:
    made = hooks(tmp_path, before_tool=(shell("cat > told.json"),))
    assert made.before_tool
    assert (made.before_request, made.after_reply, made.after_tool) == (None, None, None)
    assert answer(made.before_tool(CALL)) is None
    told = json.loads((tmp_path / "told.json").read_text())
    assert (told["event"], told["session"], told["call"]["args"]) == ("before_tool", "s1", {"command": "ls"})
    assert before(tmp_path, shell("exec cat > /dev/null", tools=("read_*",))) is None


def test_a_command_can_answer_for_a_tool_and_change_its_result(tmp_path: Path) -> None:
    given = before(tmp_path, shell("""echo '{"result": "no", "is_error": true}'"""), shell("exit 1"))
    assert given == ToolCallResult.of(CALL.id, "no", is_error=True)
    twice = after(
        tmp_path,
        shell("""echo '{"result": "first"}'"""),
        shell("""grep -q first && echo '{"result": [1]}'"""),
    )
    assert twice == ToolCallResult.of(CALL.id, [1])


def test_a_command_can_stop_a_run_at_any_step(tmp_path: Path) -> None:
    stop = (shell("""echo '{"stop": "enough"}'"""),)
    made = hooks(tmp_path, before_request=stop, after_reply=stop, before_tool=stop, after_tool=stop)
    assert made.before_request
    assert made.after_reply
    assert made.before_tool
    assert made.after_tool
    request = ModelRequest(messages=(Message.user("hi"),))
    for step in (
        made.before_request(request),
        made.after_reply(Message.assistant("x")),
        made.before_tool(CALL),
        made.after_tool(CALL, RESULT),
    ):
        with pytest.raises(Stop, match="enough"):
            answer(step)


def test_a_broken_command_lets_nothing_through(tmp_path: Path) -> None:
    broken = {
        shell("echo no >&2; exit 3"): "ended with 3: no",
        shell("exec sleep 60", seconds=0.2): "did not finish within 0.2 seconds",
        shell("echo hello"): "printed an invalid answer",
        shell("""echo '{"resutl": 1}'"""): "printed an invalid answer",
        shell("""echo '{"result": 1, "result": 2}'"""): "printed an invalid answer",
        HookCommand(command="./missing"): "cannot be started",
    }
    for command, reason in broken.items():
        refused, withheld = before(tmp_path, command), after(tmp_path, command)
        assert refused
        assert withheld
        assert refused.is_error
        assert withheld.is_error
        assert reason in refused.result
        assert refused.result.endswith("it was not run")
        assert withheld.result.endswith("it ran, and its result is withheld")
        made = hooks(tmp_path, after_reply=(command,))
        assert made.after_reply
        with pytest.raises(Stop):
            answer(made.after_reply(Message.assistant("x")))


def test_a_command_gets_no_keys_and_a_step_without_a_tool_takes_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert before(tmp_path, shell("env > env.txt")) is None
    assert "sk-secret" not in (tmp_path / "env.txt").read_text()
    made = hooks(tmp_path, after_reply=(shell("""echo '{"result": 1}'"""),))
    assert made.after_reply
    with pytest.raises(Stop, match="only tools have one"):
        answer(made.after_reply(Message.assistant("x")))


def test_a_command_gets_the_variables_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://u:secret@db")
    monkeypatch.setenv("MINE", "1")
    commands = HookCommands(before_tool=(shell("env > seen"),))
    made = command_hooks(commands, session="s1", folder=tmp_path, variables=("MINE",))
    assert made.before_tool
    assert answer(made.before_tool(CALL)) is None
    seen = (tmp_path / "seen").read_text().splitlines()
    assert "MINE=1" in seen
    assert not any(line.startswith("DATABASE_URL") for line in seen)
