"""The scene of a move: an archive, the two commands as processes that faults happen to, and their judge.

Each round has a tenant of its own, so that it finds nothing of the rounds before.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

from nursery import Nursery, Reply

SESSIONS = 4
SIZE = 80  # messages of an append: an import writes them in more parts than there were appends
UNSWEPT = "its removal was broken off"  # half-made, then begun anew: words that are left find nothing
LOCKED = 3.0  # seconds without an answer until a file counts as locked by whoever was stopped


def make_archive(nursery: Nursery, folder: Path) -> Path:
    """Export sessions with branches and epochs."""
    (home := folder / "home").mkdir()
    url, path = f"sqlite:///{home}/agent.db", folder / "archive.jsonl"
    with nursery.worker(url) as worker:
        for number in range(SESSIONS):
            worker.must("open")
            worker.must("create")
            for part, divide in (("said", "fork"), ("forked", "reset"), ("anew", "rest")):
                worker.must("append", name=f"{number}-{part}", size=SIZE)
                worker.must(divide)
            worker.must("close")
    ran(nursery, ["export", "--all", "-o", str(path), "--store", url])
    return path


def by_session(path: Path) -> list[str]:
    """Give the lines of each session of an archive."""
    _, *sessions = path.read_text().split('\n{"type":"session"')
    return [session.partition('\n{"type":"end"')[0] for session in sessions]


def ran(nursery: Nursery, command: list[str]) -> Reply:
    """Run the program to its end, with success."""
    with nursery.worker("") as worker:
        reply = worker.must("run", arguments=command)
    assert reply["code"] == 0, reply
    return reply


def seconds_of(nursery: Nursery, command: list[str]) -> float:
    """Tell how long a command takes when nothing happens to it."""
    with nursery.worker("") as worker:
        begun = time.monotonic()
        reply = worker.must("run", arguments=command)
        assert reply["code"] == 0, reply
        return time.monotonic() - begun


def killed(nursery: Nursery, command: list[str], moment: float, plant: str = "") -> bool:
    """Kill the program at some moment of a command; tell whether it had not ended by then."""
    with nursery.worker("", plant=plant) as worker:
        worker.tell("run", arguments=command)
        time.sleep(moment)
        return not worker.kill()


def overtaken(nursery: Nursery, command: list[str], moment: float) -> tuple[Reply, Reply]:
    """Stop the program at some moment, let another one do its work, and hear what both say in the end.

    Where the first was stopped inside a transaction on a file, the other one waits for it, and it is woken.
    """
    with nursery.worker("") as first, nursery.worker("") as second:
        first.tell("run", arguments=command)
        time.sleep(moment)
        first.signal(signal.SIGSTOP)
        first.wait_until_stopped()
        second.tell("run", arguments=command)
        second.has_answered(LOCKED)
        first.signal(signal.SIGCONT)
        return first.hear(), second.hear()


def findings(nursery: Nursery, url: str) -> list[str]:
    """Name what a check of the whole store finds, but for removals that were killed."""
    with nursery.worker(url) as worker:
        worker.must("open")
        found: list[str] = worker.must("verify")["findings"]
        worker.must("close")
    return [fault for fault in found if fault != UNSWEPT]


class Round:
    """One archive on its way into one store, and whether it arrived."""

    def __init__(self, nursery: Nursery, url: str, archive: Path, number: int) -> None:
        self._nursery, self._archive = nursery, archive
        self._place = ["--tenant", f"round {number}", "--store", url]
        self.command = ["import", str(archive), *self._place]

    def wrong_meanwhile(self) -> tuple[int, list[str]]:
        """Count the whole sessions that are there, and name what should not be."""
        whole, found = by_session(self._archive), self._exported()
        return len(found), [] if found == whole[: len(found)] else ["half a session, or one twice"]

    def wrong_after_another_import(self) -> list[str]:
        """Import again, and name what is not as the archive has it."""
        ran(self._nursery, self.command)
        return [] if self._exported() == by_session(self._archive) else ["not what the archive holds"]

    def _exported(self) -> list[str]:
        path = self._archive.with_name("exported.jsonl")
        ran(self._nursery, ["export", "--all", "--force", "-o", str(path), *self._place])
        return by_session(path)
