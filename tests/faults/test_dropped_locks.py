"""Nothing is lost by a process that opens and closes the files of its own store, which drops SQLite's locks.

Four processes write to one file, read it, close it and open it again, while a thread in each opens and closes
every file of the folder; they are killed and replaced. With SQLite's locks alone, that loses what was
acknowledged or makes the file unreadable.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

import apsw
import pytest

from tests.faults.fork_server import Died, ForkServer, Reply, Worker
from tests.faults.promises import Promises, losses
from tests.faults.recovery import examine
from tests.harness.thoroughness import report, rng, runs

pytestmark = pytest.mark.req("P3", "G6")

PROCESSES = 4
LIFE = (0.05, 0.6)  # seconds after which a process is killed
PLANTED_KILLS = 400


class Stress:
    """Four processes on one file, and what they were promised."""

    def __init__(self, fork_server: ForkServer, folder: Path, kind: str, *, plant: str = "") -> None:
        self._server, self._kind, self._plant = fork_server, kind, plant
        (home := folder / "work").mkdir()
        self._folder, self.url = home, f"sqlite:///{home}/agent.db"
        self.promises, self.broken, self._started = Promises(), list[str](), 0
        with fork_server.worker(self.url) as worker:
            self.session = worker.enter()
            worker.must("close")

    def run(self, kills: int, random: Random) -> None:
        """Kill and replace one process after another, and stop when something is wrong."""
        with ExitStack() as stack:
            workers = [stack.enter_context(self._worker()) for _ in range(PROCESSES)]
            for _ in range(kills):
                time.sleep(random.uniform(*LIFE))
                number = random.randrange(PROCESSES)
                self._hear(workers[number].kill())
                for worker in workers:
                    self._hear(worker.heard_already())
                if self.broken:
                    break
                workers[number] = stack.enter_context(self._worker())
            for worker in workers:
                worker.tell("rest")
            for worker in workers:
                with suppress(Died):
                    while "resting" not in (reply := worker.hear()):
                        self._hear([reply])

    def _worker(self) -> Worker:
        worker = self._server.worker(self.url, plant=self._plant)
        self._started += 1
        worker.tell(
            "stress",
            folder=str(self._folder),
            kind=self._kind,
            prefix=f"{self._started}",
            session=self.session,
        )
        return worker

    def _hear(self, replies: list[Reply]) -> None:
        for reply in replies:
            if "ask" in reply:
                self.promises.ask(reply["ask"], reply["size"])
            self.broken += [str(reply)] if "wrong" in reply or "error" in reply else []
        self.promises.hear(replies)

    def wrong(self) -> list[str]:
        """Return what is wrong with the file now."""
        if self._kind == "memory":
            return self.broken + self.promises.broken_by(remembered(self._folder / "memory.db"))
        found = examine(self._server, self.url, self.session, self.promises)
        with self._server.worker(self.url) as worker:
            worker.must("open")
            found += [f"verify: {fault}" for fault in worker.must("verify")["findings"]]
            worker.must("close")
        return self.broken + found


def remembered(path: Path) -> list[str]:
    """Return the messages of a memory, in the order of their delivery; raise an error if it is damaged."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    ((answer,),) = db.execute("PRAGMA integrity_check").fetchall()
    assert answer == "ok", answer
    found = [id for (id,) in db.execute("SELECT message FROM document ORDER BY rowid").fetchall()]
    db.close()
    return found


@pytest.mark.parametrize("kind", ["sessions", "memory"])
def test_nothing_is_lost_by_processes_that_drop_their_locks(
    kind: str, fork_server: ForkServer, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    kills = runs(8, long=400)
    stress = Stress(fork_server, folder, kind)
    stress.run(kills, rng(f"dropped locks {kind}"))
    broken = stress.wrong()
    acked = len(stress.promises.acked)
    report(
        record_property,
        f"processes that drop their locks, {kind}",
        kills=kills,
        acks=acked,
        lost=losses(broken),
    )
    assert broken == []
    assert acked > kills


@pytest.mark.parametrize("kind", ["sessions", "memory"])
def test_locks_that_are_taken_only_once_are_caught(kind: str, fork_server: ForkServer, folder: Path) -> None:
    stress = Stress(fork_server, folder, kind, plant="locks once")
    stress.run(PLANTED_KILLS, rng(f"planted dropped locks {kind}"))
    assert stress.broken


READING = {
    "sessions": ["sessions"],
    "show": ["show", "SESSION"],
    "search": ["search", "said"],
    "context": ["context", "SESSION"],
    "tree": ["tree", "SESSION"],
    "export": ["export", "--all", "-o", "FOLDER/out.jsonl", "--force"],
    "verify": ["verify"],
}


@pytest.mark.parametrize("name", READING)
def test_a_command_that_only_reads_leaves_the_wal_as_it_is(
    name: str, fork_server: ForkServer, folder: Path
) -> None:
    url, log = f"sqlite:///{folder}/agent.db", folder / "agent.db-wal"
    with fork_server.worker(url) as writer:
        session = writer.enter()
        writer.must("append", name="said", size=30)
        given = [one.replace("SESSION", session).replace("FOLDER", str(folder)) for one in READING[name]]

        def run_and_compare() -> None:
            before = log.read_bytes()
            with fork_server.worker(url) as reader:
                reply = reader.must("run", arguments=[*given, "--store", url])
            assert reply["code"] == 0, reply
            assert before
            assert log.read_bytes() == before

        run_and_compare()
        writer.kill()
        run_and_compare()


@pytest.mark.parametrize("end", ["killed", "closed"])
def test_a_tool_that_reads_the_folder_and_a_command_in_between_lose_nothing(
    end: str, fork_server: ForkServer, folder: Path
) -> None:
    assert lost_after_one_search(fork_server, folder, end) == []


@pytest.mark.parametrize("end", ["killed", "closed"])
def test_a_loss_after_one_search_is_caught(end: str, fork_server: ForkServer, folder: Path) -> None:
    assert losses(lost_after_one_search(fork_server, folder, end, plant="locks once"))


def lost_after_one_search(fork_server: ForkServer, folder: Path, end: str, *, plant: str = "") -> list[str]:
    """Open and close the files of a store in an agent's process, and write from there and from another one.

    The other one takes itself for the last user when it closes the file.
    """
    url, promises = f"sqlite:///{folder}/agent.db", Promises()

    def append(worker: Worker, prefix: str, count: int) -> None:
        for number in range(count):
            promises.hear([worker.must("append", name=promises.ask(f"{prefix}-{number}"))])

    with fork_server.worker(url, plant=plant) as agent:
        session = agent.enter()
        append(agent, "before", 12)
        agent.must("drop_once", folder=str(folder))
        for turn in range(3):
            with fork_server.worker(url, plant=plant) as other:
                other.enter(session)
                append(other, f"other {turn}", 7)
                other.must("close")
            append(agent, f"agent {turn}", 10)
        if end == "closed":
            agent.must("close")
        agent.kill()
    return examine(fork_server, url, session, promises)
