"""Worker processes that start in milliseconds: an interpreter that has imported everything forks itself.

A fault test needs hundreds of processes, and importing takes longer than the fault. A worker obeys
commands, one JSON object a line over a socket, and answers each; its answers are the acknowledgements,
so they are kept by the test, not on the disk that fails. Workers die with the fork server.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.harness.programs import environment, program

PATIENCE = 60.0  # seconds until silence counts as a hang
PR_SET_PDEATHSIG = 1

Reply = dict[str, Any]


class Hung(AssertionError):
    """A worker neither answered nor ended."""


class Died(Exception):
    """A worker ended before it answered."""


class Worker:
    """One process that keeps a store open and runs the commands that it is sent."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self._handle = os.pidfd_open(pid)
        self._channel = channel
        self._channel.settimeout(PATIENCE)
        self._unread = b""

    def tell(self, do: str, **details: object) -> None:
        """Send a command without waiting for the answer; a dead worker is ignored."""
        try:
            self._channel.sendall(json.dumps({"do": do, **details}).encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            return

    def type(self, line: str) -> None:
        """Send a line to a chat; one that is dead is ignored."""
        try:
            self._channel.sendall(f"{line}\n".encode())
        except (BrokenPipeError, ConnectionResetError):
            return

    def hear(self) -> Reply:
        """Wait for the next answer."""
        while b"\n" not in self._unread:
            try:
                received = self._channel.recv(65_536)
            except TimeoutError:
                raise Hung(f"worker {self.pid} said nothing for {PATIENCE:.0f} s") from None
            except ConnectionResetError:
                received = b""
            if not received:
                raise Died(f"worker {self.pid} died")
            self._unread += received
        line, self._unread = self._unread.split(b"\n", 1)
        reply: Reply = json.loads(line)
        return reply

    def has_answered(self, patience: float) -> bool:
        """Return True if an answer arrives within some seconds."""
        return b"\n" in self._unread or bool(select.select([self._channel], [], [], patience)[0])

    def ask(self, do: str, **details: object) -> Reply:
        """Send a command and wait for its answer."""
        self.tell(do, **details)
        return self.hear()

    def must(self, do: str, **details: object) -> Reply:
        """Send a command that has to succeed."""
        reply = self.ask(do, **details)
        assert "error" not in reply, reply
        return reply

    def enter(self, session: str = "") -> str:
        """Open the store and a session, and return its id; without one, create a session."""
        self.must("open")
        reply = self.must("resume", session=session) if session else self.must("create")
        return str(reply["session"])

    def heard_already(self) -> list[Reply]:
        """Return the answers that have arrived, without waiting."""
        self._channel.setblocking(False)
        try:
            while received := self._channel.recv(65_536):
                self._unread += received
        except (BlockingIOError, ConnectionResetError):
            pass
        self._channel.settimeout(PATIENCE)
        *lines, self._unread = self._unread.split(b"\n")
        return [json.loads(line) for line in lines]

    def last_words(self) -> Iterator[Reply]:
        """Yield the answers that a worker sent before it died."""
        while True:
            try:
                yield self.hear()
            except Died:
                return

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; a worker that has ended is ignored."""
        try:
            signal.pidfd_send_signal(self._handle, number)
        except ProcessLookupError:
            return

    def wait_until_stopped(self) -> None:
        """Return when every thread is stopped."""
        deadline = time.monotonic() + PATIENCE
        while any(state != "T" for state in self._states()):
            assert time.monotonic() < deadline, f"worker {self.pid} does not stop"
            time.sleep(0.001)

    def _states(self) -> list[str]:
        tasks = Path(f"/proc/{self.pid}/task")
        return [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks.iterdir()]

    def gone(self, patience: float = PATIENCE) -> bool:
        """Return True if the process ends within some seconds; its locks are released then."""
        return bool(select.select([self._handle], [], [], patience)[0])

    def kill(self) -> list[Reply]:
        """Kill the worker, wait until it has ended, and return the unread answers."""
        self.signal(signal.SIGKILL)
        if not self.gone():
            raise Hung(f"worker {self.pid} cannot be killed")
        return list(self.last_words())

    def close(self) -> None:
        """Ask the worker to end, and kill it if it does not."""
        self.tell("end")
        if not self.gone():
            self.kill()
            raise Hung(f"worker {self.pid} did not end")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        try:
            self.kill()
        finally:
            os.close(self._handle)
            self._channel.close()


class ForkServer:
    """The interpreter that workers are forked from."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        self._control.settimeout(PATIENCE)
        command = program("tests.faults.fork_server", theirs.fileno())
        self._process = subprocess.Popen(command, env=environment(), pass_fds=[theirs.fileno()])
        theirs.close()

    def worker(self, url: str, *, plant: str = "", **settings: object) -> Worker:
        """Fork a worker for a store, with a planted bug if one is named."""
        return self._forked({"url": url, "plant": plant, **settings})

    def agent(self, folder: Path, *, plant: str = "") -> Worker:
        """Fork a worker that runs or resumes an agent at once, and tells each of its events."""
        return self._forked({"agent": str(folder), "plant": plant})

    def chat(self, folder: Path, *arguments: str, plant: str = "") -> Worker:
        """Fork a worker that is a chat in a pipe: it reads lines, and tells its events."""
        return self._forked({"chat": str(folder), "arguments": arguments, "plant": plant})

    def _forked(self, settings: dict[str, object]) -> Worker:
        ours, theirs = socket.socketpair()
        order = json.dumps(settings).encode()
        socket.send_fds(self._control, [order], [theirs.fileno()])
        theirs.close()
        return Worker(int(self._control.recv(64)), ours)

    def close(self) -> None:
        """End the interpreter with all its workers."""
        self._control.close()
        self._process.wait()


def _serve(control: socket.socket) -> None:
    """Fork a worker for every request; one for a store does nothing before its first command."""
    from tests.faults import agent_process, planted_bugs, worker_commands

    worker_commands.prepare()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for workers: the kernel reaps them
    while True:
        order, descriptors, _, _ = socket.recv_fds(control, 65_536, 1)
        if not order:
            return
        if b'"chat"' in order:  # loaded by the first chat: the other tests do without
            from tests.faults import chat_process
        pid = os.fork()
        if pid == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            channel, wanted = socket.socket(fileno=descriptors[0]), json.loads(order)
            if "chat" in wanted:
                chat_process.live(channel, Path(wanted["chat"]), wanted["arguments"], wanted["plant"])
            if "agent" in wanted:
                agent_process.live(channel, Path(wanted["agent"]), wanted["plant"])
            else:
                worker_commands.live(planted_bugs.commands(channel, **wanted))
            os._exit(0)
        os.close(descriptors[0])
        control.sendall(str(pid).encode())


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
