"""Faults at a chosen system call: `strace` counts, fails or kills at the Nth call of one thread.

It attaches to a running worker, so counting starts with the next command. Counts are per thread and per
call, so a point is (thread, call, N); a dry run lists all points.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.faults.fork_server import Worker

CHANGES = (  # calls that change a file or send data; the disk does not change between two of them
    *("write", "pwrite64", "writev", "pwritev", "sendto", "sendmsg"),
    *("ftruncate", "fallocate", "openat", "rename", "renameat2", "unlink", "unlinkat", "fsync", "fdatasync"),
)
LINE = re.compile(r"^(?P<tid>\d+) +(?P<call>\w+)\((?P<arguments>.*)")


class Point(NamedTuple):
    """The Nth call of that name in one thread, counted since strace attached."""

    thread: int
    call: str
    nth: int


class Call(NamedTuple):
    """One system call that a dry run saw."""

    thread: int
    name: str
    arguments: str


@cache
def missing() -> str:
    """Return why calls cannot be traced here, or an empty text."""
    if not shutil.which("strace"):
        return "strace is not installed"
    probe = subprocess.run(["strace", "-e", "trace=none", "true"], capture_output=True, text=True)
    return f"strace does not work: {probe.stderr.strip()}" if probe.returncode else ""


def threads(worker: Worker) -> list[int]:
    """Return the threads of a worker in the order of their start, the main thread first.

    Linux counts ids up, and starts again at the lowest after the highest.
    """
    highest = int(Path("/proc/sys/kernel/pid_max").read_text())
    found = (int(task.name) for task in Path(f"/proc/{worker.pid}/task").iterdir())
    return sorted(found, key=lambda id: (id - worker.pid) % highest)


@contextmanager
def _attached(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run strace on a process for as long as the block runs."""
    tracer = subprocess.Popen(["strace", *arguments], stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    try:
        said = tracer.stderr.readline()
        assert "attached" in said, f"strace: {said}"
        yield tracer
    finally:
        tracer.send_signal(signal.SIGTERM)
        tracer.wait()
        tracer.stderr.close()


@contextmanager
def watching(worker: Worker, log: Path, calls: Iterable[str] = CHANGES) -> Iterator[list[Call]]:
    """Yield a list of the calls that a worker makes in the block; it is complete afterwards."""
    before, seen = threads(worker), list[Call]()
    wanted = f"trace={','.join(f'?{call}' for call in calls)}"
    with _attached("-f", "-o", str(log), "-e", wanted, "-p", str(worker.pid)):
        yield seen
    for match in filter(None, map(LINE.match, log.read_text().splitlines())):
        if (tid := int(match["tid"])) in before:  # a thread that started meanwhile cannot be chosen
            seen.append(Call(before.index(tid), match["call"], match["arguments"]))


@contextmanager
def killing(worker: Worker, point: Point) -> Iterator[None]:
    """Kill a worker as it enters a call; the call itself does not happen."""
    with _injecting(worker, point.thread, f"{point.call}:signal=SIGKILL:when={point.nth}"):
        yield


@contextmanager
def failing(
    worker: Worker, call: str, when: str, error: str = "EIO", *, log: Path = Path(os.devnull)
) -> Iterator[None]:
    """Make calls of any thread fail: the Nth (`3`), from the Nth on (`3+`), or every second (`1+2`)."""
    inject = f"inject=?{call}:error={error}:when={when}"
    with _attached("-f", "-o", str(log), "-e", f"trace=?{call}", "-e", inject, "-p", str(worker.pid)):
        yield


@contextmanager
def _injecting(worker: Worker, thread: int, fault: str) -> Iterator[None]:
    tid, call = threads(worker)[thread], fault.partition(":")[0]
    with _attached("-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={fault}", "-p", str(tid)):
        yield


def points(calls: Iterable[Call]) -> list[Point]:
    """Return every point of a dry run, in order."""
    counts, found = Counter[tuple[int, str]](), list[Point]()
    for call in calls:
        counts[call.thread, call.name] += 1
        found.append(Point(call.thread, call.name, counts[call.thread, call.name]))
    return found
