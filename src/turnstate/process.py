"""Processes: a handle belongs to the process that opened it, and a forked child neither uses nor closes it.

A child of `fork` inherits sockets, locks and files of its parent, but none of its threads. If it used them,
both processes would talk on one socket, a write could be acknowledged and lost, and a call could wait forever
for a thread that does not exist. So every handle has an `Owner` that notes the process, and raises
`WrongProcess` in any other. Closing is as dangerous as using: a closed SQLite connection may remove the WAL
that the parent writes to, and a closed client tells the server, or the parent's event loop, that it is gone.
So what a child inherits is never finalized there, not even when the interpreter ends.

A file that SQLite has open cannot be opened again in a child: SQLite keeps one list of locks per process and
file, finds the inherited one, and takes no locks at all. So a handle that has such files is a `Pausing`: it
closes them before a fork, and both processes open them again when they need them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeAlias
from weakref import WeakSet

from .errors import WrongProcess

FORK_PATIENCE = 5.0
"""Seconds for which a fork waits for statements that are running; usually they take milliseconds."""

_log = logging.getLogger(__name__)

AnyLock: TypeAlias = "threading.Lock | threading.RLock"

_handles: WeakSet[Any] = WeakSet()
_pausing: WeakSet[Pausing] = WeakSet()
_pauses = threading.Lock()  # held while handles are paused other than for a fork
_registering = threading.Lock()
_locks: list[AnyLock] = []
_held: list[AnyLock] = []


class Owner:
    """The process that opened a handle."""

    forks = 0  # between the first process and this one

    def __init__(self, handle: object, what: str) -> None:
        import asyncio  # a handle needs it anyway; the modules that only import this one do not

        self._what, self._pid, self._forks = what, os.getpid(), Owner.forks
        with _registering:
            _handles.add(handle)
            with suppress(RuntimeError):  # no loop is running
                # A loop that a child finalizes unregisters its files from a selector that both share.
                _handles.add(asyncio.get_running_loop())

    @property
    def is_elsewhere(self) -> bool:
        """True in a process that inherited the handle."""
        return self._forks != Owner.forks

    def check(self) -> None:
        """Raise `WrongProcess` in a process that inherited the handle."""
        if self._forks != Owner.forks:
            raise WrongProcess(
                f"{self._what} was opened in process {self._pid}, and process {os.getpid()}, which was "
                "forked from it, cannot use it; nothing was written. Open it again in this process"
            )


class Pausing(Protocol):
    """A handle whose files are closed while the process forks."""

    def pause(self, deadline: float) -> None:
        """Wait for running statements until the deadline, close the files, and let no statement begin."""
        ...

    def resume(self) -> None:
        """Let statements begin again; they reopen the files."""
        ...


def pause_before_fork(handle: Pausing) -> None:
    """Pause a handle before each fork, and resume it in the parent afterwards."""
    with _registering:
        _pausing.add(handle)


@contextmanager
def paused() -> Iterator[None]:
    """Pause all handles as a fork does, and resume them at the end; never call it in one of their jobs."""
    with _pauses:
        with _registering:
            handles = [*_pausing]
        deadline = time.monotonic() + FORK_PATIENCE
        try:
            for one in handles:
                one.pause(deadline)
            yield
        finally:
            for one in handles:
                one.resume()


def hold_during_fork(lock: AnyLock) -> None:
    """Hold a lock of the whole process during each fork: a thread that had it would never free it there."""
    _locks.append(lock)


class Gate:
    """Lets any number of jobs run, or none: while it is shut, new ones wait."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running, self._is_shut = 0, False

    def __enter__(self) -> None:
        with self._changed:
            while self._is_shut:
                self._changed.wait()
            self._running += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._running -= 1
            if self._is_shut:
                self._changed.notify_all()

    def shut(self, deadline: float) -> bool:
        """Let no job begin; return True if none is running, after waiting for that until the deadline."""
        with self._changed:
            self._is_shut = True
            left = max(0.0, deadline - time.monotonic())
            return self._changed.wait_for(lambda: not self._running, left)

    def open(self) -> None:
        """Let jobs begin again."""
        with self._changed:
            self._is_shut = False
            self._changed.notify_all()


def keep_forever(inherited: object) -> None:
    """Keep an object from ever being finalized in this process.

    A module-level list is not enough: the interpreter empties it when it ends, and finalizes the objects.
    """
    import ctypes  # takes longer to import than most modules here, and only forked children need it

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


def _before_fork() -> None:
    deadline = time.monotonic() + FORK_PATIENCE
    _acquire([_pauses, _registering], deadline)
    for one in _pausing:
        try:
            one.pause(deadline)
        except Exception:  # the others must still be paused, and Python forks whatever a hook raises
            _log.exception("a handle could not be closed before a fork")
    _acquire(_locks, deadline)  # last: a file that is being closed needs one of them


def _acquire(locks: list[AnyLock], deadline: float) -> None:
    _held.extend(lock for lock in locks if lock.acquire(timeout=max(0.0, deadline - time.monotonic())))


def _after_in_parent() -> None:
    for one in _pausing:
        one.resume()
    _release()


def _after_in_child() -> None:
    Owner.forks += 1
    for handle in _handles:
        keep_forever(handle)
    _handles.clear()
    _pausing.clear()
    for lock in {_pauses, _registering, *_locks}.difference(_held):
        # The thread that has it does not exist here.
        lock._at_fork_reinit()  # type: ignore[union-attr]
    _release()


def _release() -> None:
    while _held:
        _held.pop().release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
