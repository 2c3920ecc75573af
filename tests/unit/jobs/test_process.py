"""The worker process: it is ended at the deadline, never blocks its caller, and never outlives it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from turnstate.errors import InputError
from turnstate.jobs import process
from turnstate.jobs.process import JobFailed, JobResult, run, run_blocking
from turnstate.jobs.worker import JOBS

FOREVER = "(a+)+$"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "1-first.txt").write_text("aaa\n")
    (tmp_path / "2-second.txt").write_text("a" * 60 + "!\n")
    return tmp_path


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[process._Workers]:
    """No worker yet; those that the test starts end with it."""
    monkeypatch.setattr(process, "_workers", mine := process._Workers())
    yield mine
    for one in tuple(mine._every):
        mine.end(one)


def arguments(folder: Path, pattern: str) -> tuple[str, str, str, str, str]:
    return "search_files", str(folder), "", "", pattern


def workers() -> set[int]:
    """The process ids of this process's workers that are running."""
    return {one.process.pid for one in process._workers._every if one.process.poll() is None}


def eventually(holds: Callable[[], Any]) -> bool:
    until = time.monotonic() + 60
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def gone(pid: int) -> bool:
    """Return True if a process does not run any more; a zombie counts as ended."""
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


DEADLINES = (0.5, 2.0, 8.0, 30.0, 120.0)
"""A busy machine may need more than the first to start a worker."""


def test_a_job_that_never_ends_is_stopped_and_what_it_found_is_returned(folder: Path) -> None:
    for seconds in DEADLINES:
        before = workers()
        found = run_blocking(*arguments(folder, FOREVER), seconds=seconds)
        assert found.stopped == f"stopped after {seconds:g} seconds"
        assert workers() <= before  # the one that was busy is gone
        if found.records:
            break
    assert found.records == [["1-first.txt", 1, "aaa"]]
    assert run_blocking(*arguments(folder, "^aaa$"), seconds=60).stopped == ""


def test_the_event_loop_runs_while_a_job_does(folder: Path) -> None:
    async def counted() -> int:
        rounds, job = 0, asyncio.ensure_future(run(*arguments(folder, FOREVER), seconds=0.5))
        while not job.done():
            rounds += 1
            await asyncio.sleep(0)
        assert (await job).stopped == "stopped after 0.5 seconds"
        return rounds

    assert asyncio.run(counted()) > 10


def test_canceling_a_call_kills_its_worker(folder: Path) -> None:
    async def canceled() -> set[int]:
        job = asyncio.ensure_future(run(*arguments(folder, FOREVER), seconds=600))
        while not (busy := {one for one in process._workers._every if one not in process._workers._idle}):
            await asyncio.sleep(0.01)
        pids = {one.process.pid for one in busy}
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        return pids

    pids = asyncio.run(canceled())
    assert all(eventually(lambda pid=pid: gone(pid)) for pid in pids)  # type: ignore[misc]
    assert eventually(lambda: not pids & workers())


def test_a_call_that_is_canceled_when_its_job_has_ended_leaves_no_dead_worker(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = process._Job._outcome

    def outcome(self: process._Job, *given: Any) -> process.JobResult:
        self.stop()
        return really(self, *given)

    monkeypatch.setattr(process._Job, "_outcome", outcome)
    process._Job("search_files", (str(folder), "", "", "x"), 20).run()
    monkeypatch.undo()
    assert process.run_blocking("search_files", str(folder), "", "", "x", seconds=20).stopped == ""


def test_jobs_of_many_loops_and_threads_share_workers(folder: Path) -> None:
    run_blocking(*arguments(folder, "a"), seconds=60)
    (idle,) = list(process._workers._idle)[-1:]
    for _ in range(3):
        assert len(asyncio.run(run(*arguments(folder, "aaa"), seconds=60)).records) == 2
    assert idle in process._workers._idle
    results = list[JobResult]()
    threads = [
        threading.Thread(target=lambda: results.append(run_blocking(*arguments(folder, "aaa"), seconds=60)))
        for _ in range(6)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [len(one.records) for one in results] == [2] * 6
    assert len(workers()) <= process.IDLE


def test_a_worker_that_was_killed_is_replaced(folder: Path) -> None:
    run_blocking(*arguments(folder, "a"), seconds=60)
    for one in tuple(process._workers._idle):
        os.kill(one.process.pid, signal.SIGKILL)
        one.process.wait()
    assert len(run_blocking(*arguments(folder, "aaa"), seconds=60).records) == 2


def test_input_that_a_job_refuses_is_a_typed_error_and_the_worker_stays(folder: Path) -> None:
    run_blocking(*arguments(folder, "a"), seconds=60)
    before = workers()
    with pytest.raises(InputError, match="not a regular expression"):
        run_blocking(*arguments(folder, "("), seconds=60)
    with pytest.raises(InputError, match="there is no job"):
        run_blocking("os", "system", seconds=60)
    with pytest.raises(JobFailed, match="TypeError"):
        run_blocking("list_files", seconds=60)
    assert workers() == before


@pytest.mark.usefixtures("fresh")
def test_a_job_that_needs_too_much_memory_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("abc")
    (tmp_path / "2").write_text("ab" * 400_000)
    process_start = process._START.replace(".main()", ".__dict__.update(MEMORY=100 << 20)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "_START", f"{process_start}; import_module(sys.argv[1]).main()")
        found = run_blocking(*arguments(tmp_path, "^(?:(a)|(b))*c"), seconds=600)
    assert found == JobResult([["1", 1, "abc"]], "stopped: it ran out of memory")
    assert run_blocking(*arguments(tmp_path, "^abc"), seconds=60).stopped == ""


def test_the_worker_has_no_descriptor_and_no_path_of_the_working_folder(
    tmp_path: Path, folder: Path, fresh: process._Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*JOBS.values(), "json", "re", "turnstate", "fnmatch"):
        (folder / f"{name}.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    with open(tmp_path / "inherited", "w+b") as file:
        os.set_inheritable(file.fileno(), True)
        assert len(run_blocking(*arguments(folder, "^aaa$"), seconds=60).records) == 1
        (worker,) = fresh._idle
        opened = {os.readlink(one) for one in Path(f"/proc/{worker.process.pid}/fd").iterdir()}
        assert not [one for one in opened if not one.startswith(("pipe:", "/dev/null"))]
        assert os.readlink(f"/proc/{worker.process.pid}/cwd") == "/"


PROGRAM = """
import asyncio, os, sys, threading
from turnstate.jobs import process

def announce():
    while not process._workers._every:
        pass
    print(*(one.process.pid for one in process._workers._every), flush=True)

threading.Thread(target=announce, daemon=True).start()
arguments = "search_files", sys.argv[1], "", "", sys.argv[2]
"""


def started(folder: Path, lines: str) -> tuple[subprocess.Popen[str], int]:
    """Run a program that calls a job; return it, and the process id of its worker."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + textwrap.dedent(lines), str(folder), FOREVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None
    return program, int(program.stdout.readline())


def is_matching(pid: int) -> bool:
    """Return True if a worker is in the middle of a match: it has used the processor for a while."""
    used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(used[11]) > 20  # hundredths of a second


@pytest.mark.parametrize("blocking", [True, False])
def test_ctrl_c_ends_the_program_and_its_worker(folder: Path, blocking: bool) -> None:
    call = (
        "process.run_blocking(*arguments, seconds=600)"
        if blocking
        else ("asyncio.run(process.run(*arguments, seconds=600))")
    )
    program, worker = started(folder, call)
    assert eventually(lambda: is_matching(worker))
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert eventually(lambda: gone(worker))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_in_the_middle_of_a_match_ends_with_its_parent(folder: Path, number: int) -> None:
    program, worker = started(folder, "process.run_blocking(*arguments, seconds=600)")
    assert eventually(lambda: is_matching(worker))
    program.send_signal(number)
    program.communicate(timeout=60)
    assert eventually(lambda: gone(worker))


@pytest.mark.parametrize("line", ["", "os._exit(0)", "os.kill(os.getpid(), 9)", "1/0"])
def test_an_idle_worker_ends_with_its_parent(folder: Path, line: str) -> None:
    program, worker = started(folder, f"process.run_blocking(*arguments[:4], 'x', seconds=600)\n{line}")
    program.communicate(timeout=60)
    assert eventually(lambda: gone(worker))


def test_a_program_that_exits_during_a_job_does_not_wait_for_it(folder: Path) -> None:
    lines = """
    job = lambda: asyncio.run(process.run(*arguments, seconds=600))
    threading.Thread(target=job, daemon=True).start()
    sys.stdin.readline()
    """
    program, worker = started(folder, lines)
    assert eventually(lambda: is_matching(worker))
    program.communicate("\n", timeout=60)
    assert eventually(lambda: gone(worker))


def test_a_forked_process_has_its_own_worker_and_keeps_no_other_alive(folder: Path) -> None:
    lines = """
    process.run_blocking(*arguments[:4], "a", seconds=600)
    before = {one.process.pid for one in process._workers._every}
    if os.fork() == 0:
        found = process.run_blocking(*arguments[:4], "aaa", seconds=600)
        mine = {one.process.pid for one in process._workers._every}
        print(len(found.records), bool(mine & before), flush=True)
        sys.stdin.read()  # lives on after its parent
        os._exit(0)
    os.kill(os.getpid(), 9)
    """
    program, worker = started(folder, lines)
    assert program.stdout is not None
    assert program.stdout.readline() == "2 False\n"
    assert eventually(lambda: gone(worker))
    program.communicate(timeout=60)


@pytest.mark.usefixtures("fresh")
def test_without_an_interpreter_the_error_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(JobFailed, match="cannot be started: No such file"):
        run_blocking(*arguments(folder, "a"), seconds=60)
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(JobFailed, match="no Python interpreter"):
        run_blocking(*arguments(folder, "a"), seconds=60)
