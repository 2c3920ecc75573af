"""The program of the worker process: read a job, run it, send its records, read the next.

A message is four bytes of length and JSON; nothing that comes from the other side is executed or unpickled.
The process ends when its input ends. While a job runs it cannot read, so it also ends by two signals that
work in the middle of a match: SIGIO when the parent's end of the pipe closes, and SIGALRM soon after the
deadline.

A job is a function in a module of this package that yields records. The module imports nothing of Turnstate
that is not as small as itself. A job raises `JobRefused` for input that it cannot take.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

JOBS = {
    "list_files": "folder",
    "search_files": "folder",
    "check_schema": "schemas",
    "check_arguments": "schemas",
}
"""Every job, and the module of this package that has the function."""

HEADER = 4
"""Bytes before a message, which hold its length."""

MEMORY = 1 << 30
"""Bytes of address space; a job that needs more ends with MemoryError."""

GRACE = 1.0
"""Seconds after the deadline until the worker ends by itself; its parent is usually faster."""

_ENDING = (signal.SIGIO, signal.SIGALRM, signal.SIGTERM)


class JobRefused(Exception):
    """The input of a job is invalid; the text says why."""


def packed(message: dict[str, Any]) -> bytes:
    """Return a message with its length before it."""
    data = json.dumps(message).encode()
    return len(data).to_bytes(HEADER, "big") + data


def main() -> None:
    """Run jobs until the input ends."""
    answers = os.dup(1)
    os.dup2(2, 1)  # nothing that a library prints gets between the messages
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    with suppress(OSError, ValueError):  # some systems do not limit it
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while (job := _received()) is not None:
        with _ends_on_time(job["seconds"]):
            outcome = _run(job, answers)
        _send(answers, outcome)  # the next job may come at once, and must not end this process


def _run(job: dict[str, Any], answers: int) -> dict[str, Any]:
    """Send each record of a job as soon as it is found; return how the job ended."""
    try:
        if job["name"] not in JOBS:
            raise JobRefused(f"there is no job {job['name']!r:.80}")
        run = getattr(import_module(f".{JOBS[job['name']]}", __package__), job["name"])
        for record in run(*job["arguments"]):
            _send(answers, {"record": record})
    except JobRefused as refusal:
        return {"refused": str(refusal)}
    except MemoryError:
        return {"exhausted": True}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}
    return {"done": True}


@contextmanager
def _ends_on_time(seconds: float) -> Iterator[None]:
    """End this process soon after the deadline, and at once if the parent closes the input."""
    flags = fcntl.fcntl(0, fcntl.F_GETFL)
    with suppress(OSError):  # some systems have no such signal for pipes; the alarm remains
        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_ASYNC)
    signal.setitimer(signal.ITIMER_REAL, seconds + GRACE)
    watched = select.poll()
    watched.register(0, select.POLLIN)
    if watched.poll(0):  # it was closed before the signal was asked for; nothing is sent during a job
        os._exit(0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        fcntl.fcntl(0, fcntl.F_SETFL, flags)


def _received() -> dict[str, Any] | None:
    header = _exactly(HEADER)
    data = header and _exactly(int.from_bytes(header, "big"))
    return json.loads(data) if data else None


def _exactly(size: int) -> bytes:
    """Return the next bytes of the input, or nothing if it ends before."""
    pieces = bytearray()
    while len(pieces) < size:
        piece = os.read(0, size - len(pieces))
        if not piece:
            return b""
        pieces += piece
    return bytes(pieces)


def _send(descriptor: int, message: dict[str, Any]) -> None:
    rest = memoryview(packed(message))
    while rest:
        rest = rest[os.write(descriptor, rest) :]
