"""Commands run in the workspace; nothing of them is left running."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.harness.process_end import has_ended
from turnstate import ToolCallRequest, ToolCallResult
from turnstate.tools import Approvals, Rule, ToolManager, command, process, run_command


async def ran(root: Path, text: str, *, variables: tuple[str, ...] = (), **args: Any) -> ToolCallResult:
    allow = Approvals([Rule("*", "allow")])
    manager = ToolManager([run_command], workspace=root, approvals=allow, variables=variables)
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


@pytest.mark.req("L3")
def test_a_command_that_leaves_its_output_open_returns_at_once_with_what_it_printed(tmp_path: Path) -> None:
    """A limit of an hour would be waited for if the open pipe counted instead of the shell's end."""
    text = "echo before; (echo $$; exec sleep 3600) & echo $! > child; echo after"
    done = asyncio.run(ran(tmp_path, text, seconds=3_600))
    assert not done.is_error
    assert done.result.endswith("\n[what it left in the background was ended]")
    assert {"before", "after"} <= set(done.result.splitlines())
    assert has_ended(pid_in(tmp_path / "child"))
    failed = asyncio.run(ran(tmp_path, "sleep 3600 & exit 3", seconds=3_600))
    assert failed.is_error
    assert failed.result == "[what it left in the background was ended]\n[exit code 3]"


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


SECRETS = (
    *("OPENAI_API_KEY", "DATABASE_URL", "GH_PAT", "MYSQL_PWD", "PGPASSFILE", "NPM_AUTH", "SSH_AUTH_SOCK"),
    *("https_proxy", "SENTRY_DSN", "SLACK_WEBHOOK", "KUBECONFIG", "X"),
)


@pytest.mark.req("L3")
def test_a_command_gets_the_variables_that_are_named_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "hidden-value")
    monkeypatch.setenv("LC_TIME", "de_DE.UTF-8")
    monkeypatch.setenv("MINE_ONE", "1")
    shown = asyncio.run(ran(tmp_path, "env")).result.splitlines()
    assert not any("hidden-value" in line for line in shown)
    assert {"LC_TIME=de_DE.UTF-8", f"PATH={os.environ['PATH']}"} <= set(shown)
    assert "MINE_ONE=1" not in shown
    shown = asyncio.run(ran(tmp_path, "env", variables=("MINE_*", "X"))).result.splitlines()
    assert {"MINE_ONE=1", "X=hidden-value"} <= set(shown)


ENDS = (signal.SIGHUP, signal.SIGTERM, signal.SIGKILL)
PROGRAM = """
import asyncio, sys
from turnstate.tools.command import run_program
from turnstate.tools.process import watchdog

async def main():
    running = asyncio.create_task(run_program("/bin/sh", "-c", sys.argv[1], folder=None, seconds=600))
    while not watchdog._groups:
        await asyncio.sleep(0.001)
    print("ready", flush=True)
    await running

asyncio.run(main())
"""


@pytest.mark.req("L2")
def test_a_command_ends_with_the_process_that_runs_it(tmp_path: Path) -> None:
    """The command ignores what a terminal sends, and has a child."""
    pids = list[int]()
    with ExitStack() as stack:
        for end in ENDS:
            place = tmp_path / end.name
            text = f"trap '' HUP TERM; sleep 600 & echo $! > {place}.child; echo $$ > {place}.shell; wait"
            started = subprocess.Popen([sys.executable, "-c", PROGRAM, text], stdout=subprocess.PIPE)
            running = stack.enter_context(started)
            assert running.stdout is not None
            assert running.stdout.readline() == b"ready\n"
            pids += [pid_in(Path(f"{place}.{name}")) for name in ("child", "shell")]
            running.send_signal(end)
    assert all(map(has_ended, pids))


NOT_OURS = """
import asyncio, os, sys
from turnstate.tools.command import run_program
from turnstate.tools.process import watchdog

async def main():
    command = run_program("/bin/sh", "-c", sys.argv[1], folder=None, seconds=float(sys.argv[2]))
    running = asyncio.create_task(command)
    while not os.path.exists(sys.argv[3]):
        await asyncio.sleep(0.001)
    os.setresuid(65534, 65534, 65534)  # the command keeps its user, as one of `sudo` does
    done = await running
    print(done.code, done.output.strip(), watchdog._groups)

asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start what it may not end")
@pytest.mark.parametrize(
    ("text", "seconds", "said"),
    [
        ("echo said; echo $$ > {0}; mv {0} {1}; exec sleep 600", 1, "None said set()"),
        ("echo said; sleep 600 & echo $! > {0}; mv {0} {1}; sleep 1", 600, "0 said set()"),
    ],
)
def test_what_is_left_of_another_user_costs_no_output_and_is_not_waited_for(
    tmp_path: Path, text: str, seconds: int, said: str
) -> None:
    place = tmp_path / "pid"
    text = text.format(tmp_path / "new", place)
    command = [sys.executable, "-c", NOT_OURS, text, str(seconds), str(place)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    finally:
        os.kill(pid_in(place), signal.SIGKILL)
    assert (done.stdout.strip(), done.returncode) == (said, 0), done.stderr


def test_a_watchdog_that_was_killed_is_started_again() -> None:
    watchdog = process._Watchdog()
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as first:
        watchdog.watch(first.pid)
        reading = watchdog._pipe
        assert reading is not None
        watchdog._pipe = broken_pipe()
        with subprocess.Popen(["sleep", "600"], start_new_session=True) as second:
            watchdog.watch(second.pid)
            watchdog.release(first.pid)
            os.close(reading)
            first.wait()
            assert watchdog._pipe is not None
            os.close(watchdog._pipe)
            second.wait()


def broken_pipe() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    return writing
