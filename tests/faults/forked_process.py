"""A program that forks while it has everything open, and reports what child and parent could still do.

    python -m tests.faults.forked_process URL FOLDER blocking,async,loop,storm [PLANT]

The parent appends, forks, lets the child try every handle it inherited and open a store of its own, and
appends again while the child lives and after it ended. A child that hangs is ended by an alarm. Prints a
JSON object for each API.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from turnstate import Budget, Message, SessionManager, blocking, process
from turnstate.checkpoints import CheckpointManager
from turnstate.errors import TurnstateError
from turnstate.home import Home
from turnstate.memory import User, Worker
from turnstate.stores.port import Store
from turnstate.stores.sqlite import connection

ALARM = 20  # seconds; with a planted bug, the child may wait forever
APPENDS = 4


def outcome(call: Callable[[], object]) -> str:
    try:
        call()
    except TurnstateError as error:
        return type(error).__name__
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def blocking_calls(sessions: blocking.SessionManager, session: blocking.Session) -> dict[str, Any]:
    """Return one call for each kind of handle."""
    return {
        "append": lambda: session.append(Message.user("lost")),
        "window": lambda: session.window(Budget(8_000)),
        "messages": lambda: session.messages(),
        "state": lambda: session.state.set("notes", "a", 1),
        "turn": lambda: session.turn("lost", budget=Budget(8_000)).__enter__(),
        "lease": lambda: session.lease().__enter__(),
        "create": lambda: sessions.create(),
        "list": lambda: sessions.list(),
        "follow": lambda: next(sessions.follow()),
        "erase": lambda: sessions.erase(tenant_state=True),
    }


def own_store(url: str, id: str) -> str:
    """Append as a process of its own does, and say whether SQLite took its locks."""
    with blocking.SessionManager.open(url) as sessions:
        session = sessions.open_or_create(id)
        for number in range(APPENDS):
            session.append(Message.user(f"child {number}"))
        return "unlocked" if url.startswith("sqlite") and not locks(url) else "done"


def locks(url: str) -> bool:
    """Return True if this process has locks on both the database and its shared memory."""
    path = url.removeprefix("sqlite:///")
    wanted = {os.stat(path).st_ino, os.stat(f"{path}-shm").st_ino}
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    own = {int(line[5].split(":")[2]) for line in lines if line[1] == "POSIX" and int(line[4]) == os.getpid()}
    return wanted <= own


def wal_is_linked(url: str) -> bool:
    """Return True if no descriptor of this process leads to a removed file of the store."""
    names = [os.readlink(one) for one in map(str, Path("/proc/self/fd").iterdir()) if os.path.islink(one)]
    path = url.removeprefix("sqlite:///")
    return not any(name.startswith(path) and name.endswith("(deleted)") for name in names)


def in_child(work: Callable[[], dict[str, str]], *, ends: bool) -> tuple[int, Callable[[], dict[str, Any]]]:
    """Fork; the child reports, collects its garbage, and ends normally or at once."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(ALARM)
        report = work()
        gc.collect()
        os.write(write, json.dumps(report).encode())
        os.close(write)
        if ends:
            sys.exit(0)  # through all `with` blocks, and the end of the interpreter
        os._exit(0)
    os.close(write)

    def result() -> dict[str, Any]:
        with os.fdopen(read) as pipe:
            found = pipe.read()
        _, status = os.waitpid(pid, 0)
        return {"calls": json.loads(found) if found else {}, "exit": os.waitstatus_to_exitcode(status)}

    return pid, result


def run_blocking(url: str, _folder: Path) -> dict[str, Any]:
    with blocking.SessionManager.open(url, memory=memory_of(url)) as sessions:
        session = sessions.create(id="blocking", user="u")
        acknowledged = [append(session, n) for n in range(APPENDS)]
        own = "" if url.startswith("memory:") else url

        def child() -> dict[str, str]:
            report = {name: outcome(call) for name, call in blocking_calls(sessions, session).items()}
            report["close"] = outcome(sessions.close)
            return report | ({"own": own_outcome(own)} if own else {})

        with session.lease():
            _, result = in_child(child, ends=True)
            acknowledged += [append(session, n) for n in range(APPENDS, 2 * APPENDS)]
            found = result()
            acknowledged += [append(session, n) for n in range(2 * APPENDS, 3 * APPENDS)]
        linked = wal_is_linked(url)
        texts = [message.text for message in session.messages()]
    return found | {"acknowledged": acknowledged, "linked": linked, "texts": texts}


def append(session: blocking.Session, number: int) -> str:
    session.append(Message.user(f"parent {number}"))
    return f"parent {number}"


def own_outcome(url: str, id: str = "child") -> str:
    found = list[str]()
    failed = outcome(lambda: found.append(own_store(url, id)))
    return found[0] if found else failed


def memory_of(url: str) -> Any:
    return "builtin" if url.startswith(("sqlite", "postgres")) else None


def run_async(url: str, folder: Path) -> dict[str, Any]:
    return asyncio.run(_run_async(url, folder))


async def _run_async(url: str, folder: Path) -> dict[str, Any]:
    async with SessionManager.open(url, memory=memory_of(url)) as sessions:
        session = await sessions.create(id="async", user="u")
        other = await sessions.create(id="other")
        work_tree = folder / "work"
        work_tree.mkdir()
        (work_tree / "a").write_text("a")
        checkpoints = await CheckpointManager.open(session, work_tree, home=Home(folder / "home"))
        acknowledged = [await async_append(session, n) for n in range(APPENDS)]
        store: Store = sessions.store
        calls: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
            "append": lambda: session.append(Message.user("lost")),
            "store": lambda: store.get(session._writer.at),
            "window": lambda: session.window(Budget(8_000)),
            "turn": session.turn("lost", budget=Budget(8_000)).__aenter__,
            "acquire": lambda: session.acquire(seconds=5),
            "create": lambda: sessions.create(),
            "checkpoint": lambda: checkpoints.keep("lost"),
            "restore": lambda: checkpoints.restore("0", files=False),
            "expire": lambda: sessions.expire(),
        }
        if (engine := sessions.memory) is not None:
            calls["memory"] = lambda: engine.search(User("default", "u"), "word", 3)
            calls["worker"] = lambda: Worker(store, engine).run_once()
        context = multiprocessing.get_context("fork")
        receiving, sending = context.Pipe(duplex=False)

        def child() -> None:
            signal.alarm(ALARM)
            report = {name: outcome(lambda call=call: asyncio.run(call())) for name, call in calls.items()}
            report["close"] = outcome(lambda: asyncio.run(sessions.close()))
            if not url.startswith("memory:"):
                report["own"] = own_outcome(url)
            gc.collect()
            sending.send(report)

        busy = [asyncio.create_task(async_append(other, n)) for n in range(50)]  # so that some are in flight
        await asyncio.sleep(0)
        one = context.Process(target=child)
        one.start()
        sending.close()
        await asyncio.gather(*busy)
        acknowledged += [await async_append(session, n) for n in range(APPENDS, 2 * APPENDS)]
        with suppress(EOFError):
            found = await asyncio.to_thread(receiving.recv)
        await asyncio.to_thread(one.join)
        acknowledged += [await async_append(session, n) for n in range(2 * APPENDS, 3 * APPENDS)]
        texts = [message.text for message in await session.messages()]
        report = {"calls": locals().get("found", {}), "exit": one.exitcode, "linked": wal_is_linked(url)}
        return report | {"acknowledged": acknowledged, "texts": texts}


def run_loop(url: str, _folder: Path) -> dict[str, Any]:
    """Fork between two runs of a loop; the child drops what it inherited, and ends normally."""
    url += "?commit=thread" if url.startswith("sqlite") else ""  # its answers have to wake the loop
    here = dict[str, Any]()
    here["loop"] = loop = asyncio.new_event_loop()
    here["sessions"] = sessions = loop.run_until_complete(SessionManager.open(url))
    here["session"] = session = loop.run_until_complete(sessions.create(id="loop"))
    acknowledged = [loop.run_until_complete(async_append(session, n)) for n in range(APPENDS)]
    del loop, sessions, session

    def child() -> dict[str, str]:
        refused = outcome(lambda: asyncio.run(here["session"].append(Message.user("lost"))))
        here.clear()
        return {"append": refused}

    _, result = in_child(child, ends=True)
    found = result()
    loop, session = here["loop"], here["session"]
    loop.run_until_complete(asyncio.to_thread(time.sleep, 0.1))  # a thread can still wake the loop
    numbers = range(APPENDS, 3 * APPENDS)
    acknowledged += [loop.run_until_complete(async_append(session, n)) for n in numbers]
    texts = [message.text for message in loop.run_until_complete(session.messages())]
    loop.run_until_complete(here["sessions"].close())
    loop.close()
    return found | {"acknowledged": acknowledged, "linked": wal_is_linked(url), "texts": texts}


def run_storm(url: str, _folder: Path) -> dict[str, Any]:
    """Fork again and again from one thread while another appends and reads."""
    return asyncio.run(_run_storm(url, int(os.environ["FORKS"])))


async def _run_storm(url: str, forks: int) -> dict[str, Any]:
    found, acknowledged = dict[str, str](), list[str]()

    def fork() -> None:
        for number in range(forks):
            _, result = in_child(lambda n=number: {"own": own_outcome(url, f"child {n}")}, ends=False)
            report = result()
            found[f"own {number}"] = report["calls"].get("own", f"ended with {report['exit']}")

    async with SessionManager.open(url) as sessions:
        session = await sessions.create(id="storm")
        forking = asyncio.create_task(asyncio.to_thread(fork))
        while not forking.done():
            acknowledged.append(await async_append(session, len(acknowledged)))
            await asyncio.gather(session.messages(last=3), sessions.list())
        await forking
        texts = [message.text for message in await session.messages()]
    return {"calls": found, "exit": 0, "acknowledged": acknowledged, "linked": True, "texts": texts}


async def async_append(session: Any, number: int) -> str:
    await session.append(Message.user(f"parent {number}"))
    return f"parent {number}"


def no_guard() -> None:
    """Plant: handles work in any process."""
    process.Owner.check = lambda _self: None  # type: ignore[method-assign]
    process.Owner.is_elsewhere = property(lambda _self: False)  # type: ignore[assignment, method-assign]
    signal_quickly()


class Nothing(set[Any]):
    """A set that stays empty."""

    def add(self, _element: object) -> None:
        pass


def no_pause() -> None:
    """Plant: files stay open during a fork, as they do if a statement runs for too long."""
    process._pausing = Nothing()  # type: ignore[assignment]


def no_refusal() -> None:
    """Plant: files stay open, and a child may open them again."""
    no_pause()
    connection._inherited = Nothing()
    signal_quickly()


def no_keeping() -> None:
    """Plant: a child finalizes what it inherited."""
    process.keep_forever = lambda _inherited: None
    signal.alarm(5)  # the parent hangs


def signal_quickly() -> None:
    global ALARM
    ALARM = 2


PLANTS: dict[str, Callable[[], None]] = {
    "": lambda: None,
    "no guard": no_guard,
    "no keeping": no_keeping,
    "no pause": no_pause,
    "no refusal": no_refusal,
}


def main(url: str, folder: str, how: str, plant: str = "") -> None:
    PLANTS[plant]()
    each = {"blocking": run_blocking, "async": run_async, "loop": run_loop, "storm": run_storm}
    for name in how.split(","):
        print(json.dumps(each[name](url, Path(folder))))


if __name__ == "__main__":
    tempfile.tempdir = sys.argv[2]
    main(*sys.argv[1:])
