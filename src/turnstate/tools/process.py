"""Processes of tools: each has its own process group, and the whole group ends with it and with us.

So nothing that a command or an MCP server started is left running, however this process ends. No wait depends
on pipes, since a process that left its group may hold them open forever. Environments are allow-lists: what a
process gets is named, and everything else, such as a key that this program was given, stays here.

A local MCP server communicates over standard input and output, one message per line; reading a line takes
time linear in its length.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from asyncio import SubprocessTransport
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from fnmatch import fnmatchcase
from typing import Any

from .redaction import Redaction

KILL_AFTER = 2.0
"""Seconds between asking a process to end and killing it."""

USUAL_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TMPDIR", "TMP", "TEMP"),
    *("LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM", "NO_COLOR", "CI"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYENV_ROOT", "PYTHONPATH"),
    *("JAVA_HOME", "GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME", "NVM_DIR", "NODE_PATH"),
    *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PKG_CONFIG_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""Variables that commands need to find programs, folders and the user's language; none of them has a secret.

A proxy's address may contain a password, and an agent's socket (`SSH_AUTH_SOCK`) signs what it is given, so
they are not here."""

POLL = 0.02
CHUNK = 1 << 20
LONGEST_MESSAGE = 128_000_000
"""Maximum bytes of one message from a server; a longer one ends the connection."""

NOISE = 120
"""How many characters to quote of a line that is no message."""

LAST_WORDS = 400
"""How many characters to quote of the end of a server's standard error."""


class LastWords:
    """Why a process failed: the end of its standard error, and its exit code; without its secrets."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._text, self.code = b"", 0
        self.noise = ""
        """The first line on its standard output that is no message."""
        self.on_noise: Callable[[str], None] = lambda _: None

    def heard(self, line: bytes) -> None:
        """Take note of a line that is no message; of many, the first says it all."""
        if not self.noise:
            line = line.strip()[: self._redaction.kept(NOISE)]  # it may be very long
            self.noise = self._redaction.first(line.decode(errors="replace"), NOISE)
            self.on_noise(self.noise)

    def __str__(self) -> str:
        text = self._redaction.last(self._text.decode(errors="replace"), LAST_WORDS).strip()
        ended = f"it ended with exit code {self.code}" if self.code > 0 else ""  # not killed by our signal
        return ": ".join(filter(None, (ended, text)))

    async def listen(self, process: Process) -> None:
        """Read until the process closes its standard error."""
        assert process.stderr is not None  # noqa: S101
        while chunk := await process.stderr.read(CHUNK):
            self._text = (self._text + chunk)[-self._redaction.kept(LAST_WORDS) :]


class _Watchdog:
    """A process that outlives this one by an instant: it ends the groups that this one leaves behind.

    A signal handler would not do. A program that uses this library has its own, a process that is killed runs
    none, and the default action for a closed terminal or SIGTERM runs no Python either. The watchdog reads
    the groups from a pipe whose other end only this process has, so the end of the pipe is its end.
    """

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forked)

    def start(self) -> None:
        """Start the watchdog unless it runs; do so before a process is started, since this takes longer."""
        with self._lock:
            if self._pipe is None:
                self._pipe = self._started()

    def watch(self, group: int) -> None:
        """Have a group of processes ended when this process has ended."""
        with self._lock:
            self._groups.add(group)
            self._tell(f"+ {group}\n")

    def release(self, group: int) -> None:
        """Forget a group that has ended; its number may be used again."""
        with self._lock:
            self._groups.discard(group)
            if self._pipe is not None:
                self._tell(f"- {group}\n")

    def _tell(self, line: str) -> None:
        if self._pipe is not None:
            try:
                os.write(self._pipe, line.encode())
                return
            except BrokenPipeError:  # someone killed it
                os.close(self._pipe)
        self._pipe = self._started()
        os.write(self._pipe, "".join(f"+ {group}\n" for group in self._groups).encode())

    def _started(self) -> int:
        """Start the watchdog and return the pipe to it; the shell between leaves it no child of ours."""
        reading, writing = os.pipe()
        try:
            subprocess.run(  # noqa: S603
                ["/bin/sh", "-c", _WATCHDOG, "turnstate-watchdog", str(KILL_AFTER)],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,  # it does not get what a terminal sends to our group
                check=True,
            )
        except BaseException:  # a canceled task, too: nobody else could close it
            os.close(writing)
            raise
        finally:
            os.close(reading)
        return writing

    def _forget(self) -> None:
        self._lock, self._pipe, self._groups = threading.Lock(), None, set()

    def _forked(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)  # the parent's: its end must not wait for ours
        self._forget()

    _lock: threading.Lock
    _pipe: int | None
    _groups: set[int]


_WATCHDOG = r"""
exec 3<&0
{
    trap '' HUP INT TERM
    groups=
    while read -r sign group; do
        left=
        for one in $groups; do [ "$one" = "$group" ] || left="$left $one"; done
        groups=$left
        [ "$sign" = - ] || groups="$groups $group"
    done
    for one in $groups; do kill -s TERM -- "-$one"; done
    [ -z "$groups" ] || sleep "$1"
    for one in $groups; do kill -s KILL -- "-$one"; done
} <&3 3<&- &
"""

watchdog = _Watchdog()


@asynccontextmanager
async def group_of(transport: SubprocessTransport) -> AsyncIterator[None]:
    """End the whole group of a process at the end of the block, and also if this process ends before that."""
    try:
        watchdog.watch(transport.get_pid())
        yield
    finally:
        await asyncio.shield(asyncio.ensure_future(_end(transport)))


def is_alive(group: int) -> bool:
    """Return True if a process of a group is still running, whoever owns it."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # all that are left belong to another user
        pass
    return _has_running(group)


def _has_running(group: int) -> bool:
    """Return False if all processes of a group have ended, and nobody has collected their exit codes.

    In a container whose first process collects none, such a group would seem to live forever.
    """
    try:
        pids = [name for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return True  # not on Linux
    for pid in pids:
        with suppress(OSError):
            with open(f"/proc/{pid}/stat", "rb") as file:
                state, _parent, its_group = file.read().rpartition(b")")[2].split()[:3]
            if int(its_group) == group and state not in (b"Z", b"X"):
                return True
    return False


def environment(names: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables that a command gets: the usual ones, and those that match further names."""
    patterns = (*USUAL_VARIABLES, *names)
    return {
        name: value
        for name, value in os.environ.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }


async def _end(transport: SubprocessTransport) -> None:
    """Terminate a group, then kill it; do so even if the process itself has ended.

    Processes of another user, such as those of `sudo`, cannot be ended from here, and are left to run.
    """
    group, is_ours = transport.get_pid(), True
    try:
        _signal(group, signal.SIGTERM)
        await _gone(transport)
    finally:  # also if the event loop ends now
        is_ours = _signal(group, signal.SIGKILL)
        watchdog.release(group)
    while is_ours and transport.get_returncode() is None:  # wait() would also wait for pipes of others
        await asyncio.sleep(POLL)
    with suppress(PermissionError):  # it tries to kill a process that still runs
        transport.close()


def _signal(group: int, how: signal.Signals) -> bool:
    """Send a signal to a group; return False if all that is left of it belongs to another user."""
    try:
        os.killpg(group, how)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    return True


async def _gone(transport: SubprocessTransport) -> None:
    """Wait until a process has ended with its group, but not for long."""
    loop, group = asyncio.get_running_loop(), transport.get_pid()
    until = loop.time() + KILL_AFTER
    while (transport.get_returncode() is None or is_alive(group)) and loop.time() < until:
        await asyncio.sleep(POLL)


@asynccontextmanager
async def message_streams(
    command: str, args: Sequence[str], *, env: Mapping[str, str], cwd: str | None, last_words: LastWords
) -> AsyncIterator[tuple[Any, Any]]:
    """Start an MCP server and yield the streams of its messages, as the SDK expects them."""
    import anyio

    watchdog.start()
    process = await asyncio.create_subprocess_exec(
        command,
        *args,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=dict(env),
        cwd=cwd,
        start_new_session=True,
        limit=CHUNK,
    )
    transport: SubprocessTransport = process._transport  # type: ignore[attr-defined]
    async with group_of(transport):
        deliver, received = anyio.create_memory_object_stream[Any](0)
        send, waiting = anyio.create_memory_object_stream[Any](0)
        heard = asyncio.create_task(last_words.listen(process))
        tasks = [
            heard,
            asyncio.create_task(_read(process, deliver, last_words)),
            asyncio.create_task(_write(process, waiting)),
        ]
        try:
            yield received, send
        finally:
            received.close()
            send.close()
            if process.stdin is not None:
                process.stdin.close()  # a well-behaved server then exits by itself
            await _gone(transport)
            await asyncio.wait([heard], timeout=POLL)  # its last output may still be on its way
            last_words.code = process.returncode or 0
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def _read(process: Process, deliver: Any, last_words: LastWords) -> None:
    """Deliver the messages that a server prints, and nothing else that it prints."""
    import anyio

    closed = False
    async with deliver:
        async for line in _lines(process):
            if closed or not line.strip():
                continue
            if (message := _message(line)) is None:
                last_words.heard(line)
                continue
            try:
                await deliver.send(message)
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                closed = True  # keep reading: a server that blocks on a write cannot exit


async def _lines(process: Process) -> AsyncIterator[bytes]:
    """Yield lines of any length; stop at one that is too long."""
    assert process.stdout is not None  # noqa: S101
    line = bytearray()
    while len(line) <= LONGEST_MESSAGE and (chunk := await process.stdout.read(CHUNK)):
        first, *others = chunk.split(b"\n")
        line += first
        for piece in others:
            yield bytes(line)
            line = bytearray(piece)


def _message(line: bytes) -> Any:
    """Return a line as a message; None if it is none: many programs also log to their output."""
    from mcp import types
    from mcp.shared.message import SessionMessage

    if not line.lstrip().startswith((b"{", b"[")):  # ten times as fast as the check of a whole line
        return None
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None


async def _write(process: Process, waiting: Any) -> None:
    assert process.stdin is not None  # noqa: S101
    async with waiting:
        async for message in waiting:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            with suppress(ConnectionError):  # the server has ended; the reader notices
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()
