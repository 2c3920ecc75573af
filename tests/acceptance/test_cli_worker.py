from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_program import Outcome, command_line, environment, turnstate
from turnstate import codec
from turnstate.log.records import Ending
from turnstate.memory import User, open_engine
from turnstate.message import Message
from turnstate.stores import connect
from turnstate.stores.port import Store
from turnstate.stores.values import Address, Change, Fork, Parcel, Record, SessionRow

pytestmark = pytest.mark.req("F3", "P3")

PATIENCE = 60.0
SLOW_ENGINE = '''
import asyncio, os
from pathlib import Path
from turnstate.memory import open_engine

async def connect(address):
    """Open an engine that keeps a record, tells so, and then takes its time, unless it is told not to."""
    engine = await open_engine(f"builtin:{address}")
    ingest = engine.ingest

    async def slowly(record):
        await ingest(record)
        place = Path(os.environ["SLOW_ENGINE"])
        place.joinpath("kept").touch()
        while not place.joinpath("go").exists():
            await asyncio.sleep(0.01)

    engine.ingest = slowly
    return engine
'''
BROKEN_ENGINE = """
from turnstate.memory.engines import NoEngine

class Broken(NoEngine):
    async def ingest(self, record):
        raise ConnectionError("nobody is there")

async def connect(address):
    return Broken()
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def slow(tmp_path: Path) -> dict[str, str]:
    """Install an engine that is slow, and give the environment in which it is found."""
    site = tmp_path / "site"
    info = site / "slow-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "slow_engine.py").write_text(SLOW_ENGINE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[turnstate.memory]\nslow = slow_engine:connect\n")
    known = environment()
    path = os.pathsep.join([str(site), known["PYTHONPATH"]])
    return {**known, "PYTHONPATH": path, "SLOW_ENGINE": str(tmp_path)}


def with_store(url: str, work: Callable[[Store], Awaitable[Any]]) -> Any:
    async def inside() -> Any:
        store = await connect(url)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(inside())


def leave(url: str, *sessions: str, user: str = "u1") -> list[str]:
    """Keep sessions that have ended, and give the ids of the parcels that they left."""

    async def one(store: Store, session: str) -> str:
        at = Address("default", session)
        message = Message.user(f"Tea for {session}", id=f"{session}-1", timestamp="2025-06-15T12:00:00Z")
        nothing: dict[str, Any] = {"title": "", "tags": (), "counter": "c", "meta": {}}
        row = SessionRow(tenant="default", id=session, user=user, created=1, active=1, **nothing)
        await store.create(row, [Record(id=message.id, kind="message", body=codec.encode(message))])
        ending = Ending(
            epoch=1, branch=1, seq=1, last=message.id, user=user, reason="reset", started=1, ended=2_000
        )
        fork = Fork(parent=None, seq=0, operation="reset")
        parcel = ending.parcel(at, due=2_000)
        await store.commit(Change(at=at, now=2_000, fork=fork, parcels=(parcel,), next_epoch=True))
        return parcel.id

    async def work(store: Store) -> list[str]:
        return [await one(store, session) for session in sessions]

    ids: list[str] = with_store(url, work)
    return ids


def waiting(url: str) -> list[Parcel]:
    found: list[Parcel] = with_store(url, lambda store: store.parcels())
    return found


def make_due(url: str, id: str) -> None:
    """Let the time pass after which a parcel is tried again."""
    with_store(url, lambda store: store.failed(id, error="", due=0))


def memory(tmp_path: Path) -> str:
    return f"builtin:{tmp_path}/memory.db"


def recalled(tmp_path: Path, query: str = "tea") -> list[str]:
    async def search() -> list[str]:
        engine = await open_engine(memory(tmp_path))
        try:
            return sorted(one.message for one in await engine.search(User("default", "u1"), query, 100))
        finally:
            await engine.close()

    return asyncio.run(search())


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Install an engine that fails, and return its name."""
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (tmp_path / "broken_engine.py").write_text(BROKEN_ENGINE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[turnstate.memory]\nbroken = broken_engine:connect\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_engine", raising=False)
    return "broken"


def worker(url: str, *arguments: object) -> Outcome:
    return turnstate("worker", "--store", url, *arguments)


def test_what_sessions_left_is_delivered(url: str, tmp_path: Path) -> None:
    ids = leave(url, "s1", "s2")
    code, out, err = worker(url, "--once", "--engine", memory(tmp_path))
    assert (code, out) == (0, "")
    assert err.splitlines() == [*(f"turnstate: delivered {id}" for id in ids), "turnstate: 2 delivered"]
    assert recalled(tmp_path) == ["s1-1", "s2-1"]
    assert waiting(url) == []


def test_nothing_due_is_said(url: str) -> None:
    assert worker(url, "--once", "--engine", "none") == (0, "", "turnstate: nothing was due\n")


def test_json_is_one_object_a_parcel(url: str) -> None:
    (id,) = leave(url, "s1")
    assert worker(url, "--once", "--engine", "none", "--json").objects == [
        {
            "id": id,
            "kind": "ingest",
            "tenant": "default",
            "session": "s1",
            "result": "delivered",
            "tries": 1,
            "error": None,
            "due": None,
        }
    ]


def test_memory_is_kept_beside_the_store_when_nothing_else_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNSTATE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TURNSTATE_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    assert turnstate("worker", "--once").code == 0
    leave(f"sqlite:///{tmp_path}/home/turnstate.db", "s1")
    assert turnstate("worker", "--once").code == 0
    found = turnstate("memory", "search", "tea", "--user", "u1", "--json")
    assert [json.loads(line)["message"] for line in found.out.splitlines()] == ["s1-1"]


def test_an_engine_that_fails_is_told_and_exits_with_1(url: str, broken: str) -> None:
    (id,) = leave(url, "s1")
    code, _, err = worker(url, "--once", "--engine", broken)
    assert code == 1
    first, last = err.splitlines()
    assert first.startswith(f"turnstate: delayed {id}: ")
    assert "; next attempt in " in first
    assert last == "turnstate: 1 delayed"


def parked(url: str, broken: str) -> str:
    (id,) = leave(url, "s1")
    for _ in range(8):
        make_due(url, id)
        assert worker(url, "--once", "--engine", broken).code == 1
    return id


def test_what_was_given_up_is_listed_with_its_reason(url: str, broken: str) -> None:
    assert worker(url, "--parked") == (0, "", "turnstate: nothing is parked\n")
    id = parked(url, broken)
    code, out, err = worker(url, "--parked")
    assert (code, err) == (0, "")
    assert out.startswith(f"{id}  tried 8 times  ConnectionError: nobody is there")
    (listed,) = worker(url, "--parked", "--json").objects
    assert (listed["id"], listed["result"], listed["tries"]) == (id, "parked", 8)
    assert listed["error"].startswith("ConnectionError: nobody is there")


@pytest.mark.parametrize("which", ["one", "all"])
def test_what_was_given_up_can_be_tried_again(url: str, tmp_path: Path, broken: str, which: str) -> None:
    id = parked(url, broken)
    assert worker(url, "--once", "--engine", memory(tmp_path)).err == "turnstate: nothing was due\n"
    revived = worker(url, "--revive", id if which == "one" else "all")
    assert revived == (0, "", "turnstate: 1 parcel will be retried\n")
    assert worker(url, "--once", "--engine", memory(tmp_path)).code == 0
    assert recalled(tmp_path) == ["s1-1"]


def test_reviving_tells_programs_what_was_revived(url: str, broken: str) -> None:
    id = parked(url, broken)
    assert worker(url, "--revive", "all", "--json").objects == [{"id": id, "result": "revived"}]
    assert worker(url, "--revive", "all", "--json").objects == []


def test_reviving_what_is_not_parked_is_refused(url: str) -> None:
    assert worker(url, "--revive", "no\x1bthing") == (1, "", "turnstate: no parcel no\\x1bthing is parked\n")


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["--engine", "parrot"], 2, "there is no memory engine 'parrot'; known engines: none, builtin"),
        (["--engine", "jsonl:notes"], 2, "jsonl was removed; use builtin:PATH"),
        (["--once", "--parked"], 2, "pass only one of --once, --parked and --revive"),
        (["--interval", "0"], 2, "--interval"),
        (["--store", "carrier-pigeon:"], 2, "no store has the scheme 'carrier-pigeon'"),
        (["--store", "sqlite:////dev/null/x.db"], 2, "does not exist"),
    ],
)
def test_what_cannot_be_used_is_one_line(url: str, arguments: list[str], code: int, reason: str) -> None:
    outcome = worker(url, *arguments)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (code, "", 1)
    assert reason in outcome.err


# -- as a process


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start workers as processes, and end those that are left."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command_line("worker", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env or environment(),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=PATIENCE)


def until(holds: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_worker_when_the_parcel_in_hand_has_arrived(
    url: str, tmp_path: Path, start: Any, slow: dict[str, str], number: signal.Signals
) -> None:
    leave(url, "s1", "s2")
    process = start("--store", url, "--engine", f"slow:{tmp_path}/memory.db", "--json", env=slow)
    until((tmp_path / "kept").exists, process)
    process.send_signal(number)
    assert "delivering from" in process.stderr.readline()
    assert "stopping after the current parcel" in process.stderr.readline()
    (tmp_path / "go").touch()
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "turnstate: 1 delivered\n")
    assert [json.loads(line)["result"] for line in out.splitlines()] == ["delivered"]
    assert len(waiting(url)) == 1


def test_a_second_signal_ends_a_worker_at_once_and_the_parcel_is_delivered_again(
    url: str, tmp_path: Path, start: Any, slow: dict[str, str]
) -> None:
    (id,) = leave(url, "s1")
    process = start("--store", url, "--engine", f"slow:{tmp_path}/memory.db", env=slow)
    until((tmp_path / "kept").exists, process)
    process.terminate()
    assert "delivering from" in process.stderr.readline()
    assert "stopping" in process.stderr.readline()
    process.terminate()
    assert process.wait(PATIENCE) == -signal.SIGTERM
    assert waiting(url)[0].id == id
    make_due(url, id)
    assert worker(url, "--once", "--engine", memory(tmp_path)).code == 0
    assert recalled(tmp_path) == ["s1-1"]


@pytest.mark.req("F2")
def test_a_worker_that_is_killed_in_the_middle_of_a_delivery_loses_and_doubles_nothing(
    url: str, tmp_path: Path, start: Any, slow: dict[str, str]
) -> None:
    (id,) = leave(url, "s1")
    process = start("--store", url, "--engine", f"slow:{tmp_path}/memory.db", env=slow)
    until((tmp_path / "kept").exists, process)
    process.kill()
    process.wait(PATIENCE)
    (parcel,) = waiting(url)
    assert (parcel.id, parcel.tries) == (id, 1)
    make_due(url, id)
    assert worker(url, "--once", "--engine", memory(tmp_path)).err.startswith("turnstate: delivered")
    assert recalled(tmp_path) == ["s1-1"]


def test_workers_that_share_a_store_deliver_everything_once(url: str, tmp_path: Path, start: Any) -> None:
    names = [f"s{number}" for number in range(40)]
    leave(url, *names)
    processes = [start("--store", url, "--engine", memory(tmp_path), "--once", "--json") for _ in range(3)]
    delivered = [
        json.loads(line)["session"]
        for process in processes
        for line in process.communicate(timeout=PATIENCE)[0].splitlines()
    ]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert sorted(delivered) == sorted(names)
    assert recalled(tmp_path) == sorted(f"{name}-1" for name in names)
    assert waiting(url) == []


def test_a_worker_keeps_looking(url: str, tmp_path: Path, start: Any) -> None:
    arguments = ["--store", url, "--engine", memory(tmp_path), "--interval", "0.05"]
    process = start(*arguments)
    assert "delivering from" in process.stderr.readline()
    leave(url, "s1")
    assert "delivered ingest:default:s1:1:s1-1" in process.stderr.readline()
    leave(url, "s2")
    assert "delivered ingest:default:s2:1:s2-1" in process.stderr.readline()
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_a_reader_that_goes_away_ends_the_worker_without_a_word(url: str) -> None:
    leave(url, "s1")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(
            command_line("worker", "--store", url, "--engine", "none", "--once", "--json"),
            stdout=closed,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=PATIENCE,
        )
    assert (done.returncode, done.stderr) == (141, b"")


def test_the_worker_needs_no_package_beyond_the_core(url: str) -> None:
    heavy = ["openai", "anthropic", "asyncpg", "redis", "numpy", "mcp", "rich", "toktok"]
    code = f"""
import sys
from turnstate import cli
cli.run(["worker", "--store", {url!r}, "--engine", "none", "--once"])
print([name for name in {heavy} if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
