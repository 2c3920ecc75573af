"""Run a job in a worker process, which is killed at the deadline.

    found = await run("search_files", root, path, names, pattern, seconds=20)

The worker is started when the first job needs it and used again for the next ones. It is not a fork: it
starts with no descriptor and no store of this process, with the standard library before everything else on
its path, and outside of the working folder. It has a process group of its own, so Ctrl-C does not reach it.
It ends with this process, however that ends.

What a job found before its deadline is returned, and the result says that it was stopped. A call that is
canceled kills its worker.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError, TurnstateError
from .worker import HEADER, packed

PARALLEL = 4
"""Jobs of event loops that run at the same time; the next ones wait for a worker."""

IDLE = 2
"""Workers to keep for the next jobs; each takes about 10 MB."""

LONGEST_ANSWER = 64_000_000
"""Maximum bytes that a job may send."""

_PIECE = 1 << 16
_START = (
    "import sys; from importlib import import_module; sys.path += sys.argv[2:];"
    " import_module(sys.argv[1]).main()"
)
_LOADER = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # some installations of Python start only with them


class JobFailed(TurnstateError):
    """A job could not be run, for a reason that is not its input."""


class JobResult(NamedTuple):
    """The records of a job, and why it was stopped, or an empty text if it finished."""

    records: list[Any]
    stopped: str = ""


async def run(name: str, *arguments: Any, seconds: float) -> JobResult:
    """Run a job for at most `seconds`; raise InputError if it refuses its input."""
    job, loop = _Job(name, arguments, seconds), asyncio.get_running_loop()
    result: asyncio.Future[JobResult] = loop.create_future()

    def deliver(given: JobResult | BaseException) -> None:
        if result.done():  # canceled
            return
        if isinstance(given, BaseException):
            result.set_exception(given)
        else:
            result.set_result(given)

    def work() -> None:
        try:
            with _workers.slots:
                given: JobResult | BaseException = job.run()
        except BaseException as error:  # whatever it is, it is raised where the result is awaited
            given = error
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(deliver, given)

    # Not a thread of a pool: a program would wait for it before it exits.
    threading.Thread(target=work, name=f"turnstate-job-{name}", daemon=True).start()
    try:
        return await result
    finally:
        job.stop()


def run_blocking(name: str, *arguments: Any, seconds: float) -> JobResult:
    """Run a job in the calling thread, as `run` does."""
    job = _Job(name, arguments, seconds)
    try:
        return job.run()
    finally:
        job.stop()


class _Stopped(Exception):
    """The job did not finish; the text says why."""


class _Worker:
    """A worker process and the pipes to it."""

    def __init__(self) -> None:
        if not sys.executable or getattr(sys, "frozen", False):
            raise JobFailed("there is no Python interpreter to start a worker process with (sys.executable)")
        try:
            self.process = subprocess.Popen(  # noqa: S603  ourselves
                [sys.executable, "-I", "-S", "-X", "utf8", "-c", _START, f"{__package__}.worker", *_path()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={name: os.environ[name] for name in _LOADER if name in os.environ},
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise JobFailed(f"the worker process cannot be started: {error.strerror}") from None
        assert self.process.stdin is not None  # noqa: S101
        assert self.process.stdout is not None  # noqa: S101
        self._input, self._output = self.process.stdin, self.process.stdout
        os.set_blocking(self._input.fileno(), False)
        self._ready = select.poll()

    def send(self, data: bytes, until: float) -> None:
        """Send a message; raise _Stopped if the worker does not take it in time."""
        rest = memoryview(data)
        while rest:
            self._wait(self._input.fileno(), select.POLLOUT, until)
            try:
                rest = rest[os.write(self._input.fileno(), rest) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise _Stopped(self._ended()) from None

    def messages(self, until: float) -> Iterator[dict[str, Any]]:
        """Yield what the worker sends; raise _Stopped at the deadline, or if it ends or sends too much."""
        waiting, total = bytearray(), 0
        while True:
            self._wait(self._output.fileno(), select.POLLIN, until)
            piece = os.read(self._output.fileno(), _PIECE)
            if not piece:
                raise _Stopped(self._ended())
            waiting += piece
            total += len(piece)
            if total > LONGEST_ANSWER:
                raise _Stopped(f"stopped: it found more than {LONGEST_ANSWER:,} bytes")
            while len(waiting) >= HEADER:
                end = HEADER + int.from_bytes(waiting[:HEADER], "big")
                if len(waiting) < end:
                    break
                message = json.loads(bytes(waiting[HEADER:end]))
                del waiting[:end]
                yield message

    def kill(self) -> None:
        """Kill the worker's process group; its pipes stay open for whoever reads them."""
        if self.process.poll() is None:  # so its number has not been given to another process
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill the worker and leave nothing of it behind."""
        self.kill()
        self._input.close()
        self._output.close()
        self.process.wait()

    def abandon(self) -> None:
        """Close the pipes of a worker that belongs to the process which this one was forked from."""
        self._input.close()
        self._output.close()
        self.process.returncode = 0  # not ours to wait for

    def _wait(self, descriptor: int, event: int, until: float) -> None:
        self._ready.register(descriptor, event)
        try:
            left = until - time.monotonic()
            if left <= 0 or not self._ready.poll(left * 1000):
                raise _Stopped("")
        finally:
            self._ready.unregister(descriptor)

    def _ended(self) -> str:
        return f"stopped: the worker process ended with code {self.process.wait()}"


class _Workers:
    """The workers of this process."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.slots = threading.BoundedSemaphore(PARALLEL)
        self._lock = threading.Lock()
        self._every, self._idle = set[_Worker](), list[_Worker]()

    def take(self) -> _Worker:
        """Return an idle worker, or a new one."""
        while True:
            with self._lock:
                worker = self._idle.pop() if self._idle else None
            if worker is None:
                worker = _Worker()
                with self._lock:
                    self._every.add(worker)
                return worker
            if worker.process.poll() is None:
                return worker
            self.end(worker)  # something else killed it

    def give_back(self, worker: _Worker) -> None:
        """Keep a worker that has finished its job for the next one."""
        with self._lock:
            kept = len(self._idle) < IDLE
            if kept:
                self._idle.append(worker)
        if not kept:
            self.end(worker)

    def end(self, worker: _Worker) -> None:
        """End a worker that is not idle."""
        worker.end()
        with self._lock:
            self._every.discard(worker)

    def kill(self) -> None:
        """Kill all workers: this process ends."""
        for worker in tuple(self._every):
            worker.kill()
            worker.process.wait()

    def begin_after_fork(self) -> None:
        """Let go of the workers of the other process, so that they notice when it ends, and begin anew."""
        for worker in tuple(self._every):
            worker.abandon()
        self._begin()  # with a new lock: a thread that this process does not have may hold the old one


class _Job:
    """One run of a job. `stop` may be called from another thread, at any time, and again."""

    def __init__(self, name: str, arguments: tuple[Any, ...], seconds: float) -> None:
        self._request = packed({"name": name, "arguments": arguments, "seconds": seconds})
        self._name, self._seconds = name, seconds
        self._lock, self._worker, self._is_over = threading.Lock(), None, False

    _worker: _Worker | None

    def run(self) -> JobResult:
        """Run the job to its end or its deadline."""
        records, behaved = list[Any](), False
        worker = _workers.take()
        try:
            with self._lock:
                if self._is_over:  # canceled while it waited for its turn
                    behaved = True
                    return JobResult(records, "canceled")
                self._worker = worker
            until = time.monotonic() + self._seconds
            worker.send(self._request, until)
            for message in worker.messages(until):
                if "record" in message:
                    records.append(message["record"])
                    continue
                behaved = True
                return self._outcome(message, records)
            raise JobFailed(f"the worker process did not say how the job {self._name} ended")
        except _Stopped as stopped:
            return JobResult(records, str(stopped) or f"stopped after {self._seconds:g} seconds")
        finally:
            with self._lock:
                was_stopped, self._worker, self._is_over = self._is_over, None, True
            if behaved and not was_stopped:  # a job that is stopped at its end has killed its worker
                _workers.give_back(worker)
            else:
                _workers.end(worker)

    def stop(self) -> None:
        """Kill the worker if the job is still running."""
        with self._lock:
            self._is_over = True
            if self._worker is not None:
                self._worker.kill()

    def _outcome(self, message: dict[str, Any], records: list[Any]) -> JobResult:
        if "refused" in message:
            raise InputError(message["refused"])
        if "failed" in message:
            raise JobFailed(f"the job {self._name} failed: {message['failed']}")
        return JobResult(records, "stopped: it ran out of memory" if "exhausted" in message else "")


def _path() -> list[str]:
    """Return where the worker finds Turnstate and what is installed with it.

    The working folder is left out: it may be a repository whose files have the names of packages.
    """
    here = Path(__file__).parents[__package__.count(".") + 1]
    try:
        working = os.getcwd()
    except OSError:
        working = ""
    return [str(here), *(one for one in sys.path if os.path.isabs(one) and one != working)]


_workers = _Workers()
atexit.register(_workers.kill)
os.register_at_fork(after_in_child=_workers.begin_after_fork)
