"""Commands run in the workspace; nothing of them is left running."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from process_end import has_ended

from turnstate import ToolCallRequest, ToolCallResult
from turnstate.tools import Approvals, Rule, ToolManager, command, run_command


async def ran(root: Path, text: str, **args: Any) -> ToolCallResult:
    manager = ToolManager([run_command], workspace=root, approvals=Approvals([Rule("*", "allow")]))
    calls = [ToolCallRequest(name="run_command", args={"command": text, **args})]
    (result,) = [one async for one in manager.run(calls)]
    return result


def pid_in(path: Path) -> int:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if path.exists() and (text := path.read_text().strip()):
            return int(text)
        time.sleep(0.01)
    raise AssertionError("the command did not start")


@pytest.mark.req("L3")
def test_output_errors_and_exit_codes_are_results(tmp_path: Path) -> None:
    assert asyncio.run(ran(tmp_path, "pwd; echo oops >&2")).result == f"{tmp_path}\noops\n"
    failed = asyncio.run(ran(tmp_path, "echo no; exit 3"))
    assert failed.is_error
    assert failed.result == "no\n\n[exit code 3]"
    assert asyncio.run(ran(tmp_path, "true")).result == "[no output]"


@pytest.mark.req("L2")
def test_a_command_that_hangs_is_stopped_with_its_children(tmp_path: Path) -> None:
    text = "trap '' TERM; sleep 100 & echo $! > child; wait"
    stopped = asyncio.run(ran(tmp_path, text, seconds=0.5))
    assert stopped.is_error
    assert "[stopped after 0.5 seconds]" in stopped.result
    assert has_ended(pid_in(tmp_path / "child"))


def test_a_command_left_in_the_background_does_not_survive(tmp_path: Path) -> None:
    asyncio.run(ran(tmp_path, "sleep 100 >/dev/null 2>&1 & echo $! > child"))
    assert has_ended(pid_in(tmp_path / "child"))


def test_cancelling_stops_a_command(tmp_path: Path) -> None:
    async def cancelled() -> None:
        task = asyncio.ensure_future(ran(tmp_path, "echo $$ > child; exec sleep 100"))
        await asyncio.to_thread(pid_in, tmp_path / "child")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert has_ended(pid_in(tmp_path / "child"))


def test_of_a_flood_the_beginning_and_the_end_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "MOST_BYTES", 100_000)
    flood = asyncio.run(ran(tmp_path, "echo first; yes | head -c 1000000; echo last")).result
    assert flood.startswith("first\ny\n")
    assert flood.endswith("last\n")
    assert "bytes left out]" in flood
    assert len(flood) < 200_000


def test_a_piece_that_is_longer_than_what_is_kept_leaves_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MOST_BYTES", 10)
    output = command._Output()
    for piece in (b"first", b"x" * 30, b"123456789"):
        output.add(piece)
    assert output.text() == "first\n[34 bytes left out]\n56789"


def test_secrets_of_the_environment_are_not_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert "sk-secret" not in asyncio.run(ran(tmp_path, "env")).result
