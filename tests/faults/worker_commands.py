"""The process that faults happen to: it uses sessions through the public API and reports every outcome.

An answer with `ack` is a promise of the store. An answer with `error` names the type, and whether it is
one of ours; a process that ends without an answer has crashed. Nothing is caught that a user's code
would not catch.
"""

from __future__ import annotations

import asyncio
import io
import json
import select
import socket
from contextlib import redirect_stderr
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from tests.faults import lock_stress
from tests.faults.promises import texts
from turnstate import Message, cli
from turnstate.errors import Conflict, TurnstateError
from turnstate.ids import monotonic_clock, wall_clock
from turnstate.log.path import message_of
from turnstate.session.manager import SessionManager
from turnstate.stores.sqlite import SqliteStore, writer
from turnstate.stores.sqlite.target import commits_in_loop, path_of
from turnstate.stores.values import Span
from turnstate.tokens import counter

USER = "u1"
END = 2**60
COMMANDS = ("export", "import_", "sessions", "show", "search", "context", "tree", "verify")


class Commands:
    """Runs the commands of a test, on one store and one session at a time."""

    def __init__(self, channel: socket.socket, url: str) -> None:
        self.url = url
        self.ahead = 0  # milliseconds by which this process's clock is wrong
        self._channel = channel
        self._channel.setblocking(False)
        self._unread = b""
        self.memory: lock_stress.Memory | None = None

    async def say(self, **reply: object) -> None:
        """Send an answer to the test."""
        await asyncio.get_running_loop().sock_sendall(self._channel, json.dumps(reply).encode() + b"\n")

    async def _command(self) -> dict[str, Any] | None:
        while b"\n" not in self._unread:
            received = await asyncio.get_running_loop().sock_recv(self._channel, 65_536)
            if not received:
                return None
            self._unread += received
        line, self._unread = self._unread.split(b"\n", 1)
        command: dict[str, Any] = json.loads(line)
        return command

    async def serve(self) -> None:
        """Run commands until the command to end, or until the test closes the socket."""
        while (command := await self._command()) is not None:
            do = command.pop("do")
            if do == "end":
                return
            try:
                await getattr(self, do)(**command)
            except Exception as error:
                await self.say(
                    error=type(error).__name__,
                    typed=isinstance(error, TurnstateError),
                    text=str(error),
                    name=command.get("name", ""),
                )

    async def open(self) -> None:
        clocks: dict[str, Any] = {"clock": lambda: wall_clock() + self.ahead, "monotonic": monotonic_clock}
        if self.url.startswith("sqlite:"):  # in a thread that is there: in others no call can be chosen
            settings: dict[str, Any] = {"commits_in_loop": commits_in_loop(self.url)}
            store = await asyncio.to_thread(SqliteStore, path_of(self.url), **settings)
            self.sessions = SessionManager(store, **clocks)
        else:
            self.sessions = await SessionManager.open(self.url, **clocks)
        await self.say(opened=True)

    async def create(self, idle: float | None = None) -> None:
        self.session = await self.sessions.create(user=USER, idle=idle)
        await self.say(session=self.session.id)

    async def resume(self, session: str) -> None:
        self.session = await self.sessions.open(session, user=USER)
        await self.say(session=self.session.id)

    async def append(self, name: str, size: int = 1, expected: int | None = None) -> None:
        """Append messages under a key, and acknowledge when the store has."""
        receipt = await self.commit(name, size, expected)
        await self.say(ack=name, version=receipt.version)

    async def commit(self, name: str, size: int, expected: int | None) -> Any:
        """Append, and return the receipt; planted bugs override this."""
        messages = [Message.user(text) for text in texts(name, size)]
        return await self.session.append(*messages, expected_version=expected, key=name)

    async def burst(
        self, prefix: str, count: int, size: int = 1, lanes: int = 8, searching: bool = False
    ) -> None:
        """Append from several tasks at once, so that appends share a commit; each is acknowledged.

        With `searching`, messages are indexed all the while.
        """

        async def lane(first: int) -> None:
            for number in range(first, count, lanes):
                await self.append(f"{prefix}-{number}", size)

        async def search() -> None:
            while True:
                _ = [one async for one in self.sessions.search("0", limit=1)]

        indexing = asyncio.ensure_future(search()) if searching else None
        await asyncio.gather(*(lane(first) for first in range(lanes)))
        if indexing is not None:
            indexing.cancel()
        await self.say(done=True)

    async def stream(self, prefix: str, count: int, pause: float) -> None:
        """Append one after the other with pauses, until one fails or the next command arrives."""
        for number in range(count):
            if select.select([self._channel], [], [], 0)[0]:
                break
            await self.append(f"{prefix}-{number}")
            await asyncio.sleep(pause)
        await self.say(done=True)

    async def contend(self, prefix: str, count: int) -> None:
        """Append only at the version last seen, again after every conflict."""
        version, conflicts = 0, 0
        for number in range(count):
            while True:
                try:
                    receipt = await self.commit(f"{prefix}-{number}", 1, version)
                except Conflict as conflict:
                    version, conflicts = conflict.version, conflicts + 1
                    continue
                await self.say(ack=f"{prefix}-{number}", at=version, version=receipt.version)
                version = receipt.version
                break
        await self.say(done=True, conflicts=conflicts)

    async def version(self) -> int:
        """Return the current version of the session."""
        return (await self.sessions.open(self.session.id, user=USER)).version

    async def read(self) -> None:
        """Send the texts of the path in order."""
        await self.say(texts=[message.content for message in await self.session.messages()])

    async def search(self) -> None:
        """Send what a search finds of the first message of each append; it indexes what is missing."""
        await self.say(texts=[one.message.text async for one in self.sessions.search("0", limit=10**9)])

    async def read_all(self) -> None:
        """Send the texts of all branches, including those that were reset or forked away."""
        store, at = self.sessions.store, self.session._row.address
        rows = [
            row
            for branch in await self.session.branches()
            for row in await store.read(at, Span(branch.id, branch.fork_seq + 1, END))
        ]
        await self.say(texts=[message.content for row in rows if (message := message_of(row))])

    async def acquire(self, seconds: float) -> None:
        lease = await self.session.acquire(seconds=seconds)
        await self.say(fence=lease.fence)

    async def release(self) -> None:
        await self.session.release()
        await self.say(released=True)

    async def jump(self, ahead: int) -> None:
        """Set the clock wrong."""
        self.ahead = ahead
        await self.say(jumped=True)

    async def expire(self) -> None:
        """End sessions that are idle by this process's clock."""
        await self.say(ended=list(await self.sessions.expire()))

    async def reset(self) -> None:
        self.session = await self.session.reset()
        await self.say(epoch=self.session._row.epoch)

    async def fork(self) -> None:
        branch = await self.session.fork()
        await self.say(branch=branch.id)

    async def stress(
        self, folder: str, kind: str, prefix: str, session: str = "", drops: bool = True
    ) -> None:
        """Work on a file of a folder while a thread drops the locks, until the next command arrives."""
        random, path = Random(prefix), Path(folder)
        if drops:
            lock_stress.drop_locks(path, random)
        work = (
            lock_stress.Sessions(str(path / "agent.db"), session)
            if kind == "sessions"
            else lock_stress.Memory(str(path / "memory.db"), prefix, random)
        )

        def is_told_to_stop() -> bool:
            return b"\n" in self._unread or bool(select.select([self._channel], [], [], 0)[0])

        await lock_stress.work(work, prefix, random, self.say, is_told_to_stop)

    async def deliver(self, path: str, name: str) -> None:
        """Deliver a message to a memory, which stays open."""
        if self.memory is None:
            self.memory = lock_stress.Memory(path, USER, Random(0))
            await self.memory.open()
        await self.memory.write(name, 1)
        await self.say(ack=name)

    async def drop_once(self, folder: str) -> None:
        """Open and close every file of a folder, as a search through it does."""
        lock_stress.touch_all(Path(folder))
        await self.say(dropped=True)

    async def verify(self, repair: bool = False) -> None:
        """Send what a check of the whole store finds, and repair it if asked."""
        found = [finding.fault async for finding in self.sessions.store.verify(repair=repair)]
        await self.say(findings=found)

    async def read_at_once(self) -> None:
        """Read from many tasks, so that all reader threads are started and have the file open."""
        await asyncio.gather(*(self.session.messages() for _ in range(16)))
        await self.say(read=True)

    async def warm(self) -> None:
        """Start the thread of the loop, so that its calls can be counted."""
        await asyncio.to_thread(lambda: None)
        await self.say(warm=True)

    async def rest(self) -> None:
        """Answer when all earlier commands are done, acknowledged or not."""
        await self.say(resting=True)

    async def run(self, arguments: list[str]) -> None:
        """Run the program `turnstate` in this process, and send its exit code and its stderr."""
        with redirect_stderr(io.StringIO()) as remarks:
            code = await asyncio.to_thread(cli.run, arguments)
        await self.say(code=code, remarks=remarks.getvalue())

    async def close(self) -> None:
        await self.sessions.close()
        await self.say(closed=True)


def prepare() -> None:
    """Load once what every worker needs.

    Messages are indexed when a command searches, and every disk is quick enough for commits in the loop, so
    that a thread makes the same calls each time.
    """
    writer.IDLE = writer.QUICK = 3_600
    counter("o200k_base").count("hello")
    for name in COMMANDS:
        import_module(f"turnstate.cli.commands.{name}")


def live(commands: Commands) -> None:
    """Serve commands until the worker ends."""
    asyncio.run(commands.serve())
