"""Whatever is done to the files of a store, a process opens them or raises a typed error.

It never hangs or crashes, returns only what was written, and if something is missing from the database a
check of the store reports it. A WAL ends where it is damaged: everything before that must be readable.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from tests.faults.damage import (
    TO_DATABASE,
    TO_LOG,
    Damage,
    blank_a_page,
    flip_a_body,
    flip_a_byte,
    scramble_a_stretch,
)
from tests.faults.fork_server import Died, ForkServer, Reply, Worker
from tests.faults.promises import texts
from tests.harness.thoroughness import report, rng, runs

FILE = "agent.db"
TOLD = 20  # appends in each of two sessions
SIZE = 2
COUNTER = "o200k_base"
UNTOLD = "not reported:"
REFUSALS = ("StoreDamaged", "StoreUnavailable", "StoreError", "NotFound", "NewerFormat")


@dataclass
class Store:
    """A store with two sessions, to be copied and damaged."""

    fork_server: ForkServer
    template: Path
    sessions: tuple[str, str]
    plant: str = ""

    @property
    def told(self) -> list[str]:
        """What was written into either session."""
        return [text for number in range(TOLD) for text in texts(f"told-{number}", SIZE)]


def make(fork_server: ForkServer, folder: Path, *, closed: bool, plant: str = "") -> Store:
    """Write two sessions; a store that is not closed still has its WAL."""
    template = folder / "template"
    template.mkdir()
    with fork_server.worker(f"sqlite:///{template}/{FILE}") as worker:
        sessions = list[str]()
        worker.must("open")
        for _ in range(2):
            sessions.append(worker.must("create")["session"])
            for number in range(TOLD):
                worker.must("append", name=f"told-{number}", size=SIZE)
        if closed:
            worker.must("close")
            worker.close()
    return Store(fork_server, template, (sessions[0], sessions[1]), plant)


@dataclass
class Seen:
    """What a process saw of a damaged store."""

    errors: list[Reply]
    served: list[list[str]]
    findings: list[str]

    @property
    def told_of_it(self) -> bool:
        """True if an error or a finding reported damage."""
        return bool(self.errors or self.findings)


def look(worker: Worker, sessions: tuple[str, str]) -> Seen:
    """Read everything, append, and check the store."""
    seen = Seen([], [], [])

    def ask(do: str, **details: object) -> Reply:
        reply = worker.ask(do, **details)
        seen.errors.extend([reply] if "error" in reply else [])
        return reply

    if "error" in ask("open"):
        return seen
    for session in sessions:
        if "error" not in ask("resume", session=session):
            seen.served.append(ask("read").get("texts", []))
            ask("append", name="after")
    seen.findings = ask("verify").get("findings", [])
    ask("close")
    return seen


def harm(
    store: Store, copy: Path, damage: Damage, random: Random, *, log: bool
) -> tuple[Seen | None, list[str]]:
    """Damage a copy, read it, and return what is wrong with the result."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(store.template, copy)
    done = damage(copy / (f"{FILE}-wal" if log else FILE), random)
    with store.fork_server.worker(f"sqlite:///{copy}/{FILE}", plant=store.plant) as worker:
        try:
            seen = look(worker, store.sessions)
            worker.close()
        except Died:
            return None, [f"{done}: crashed"]
    wrong = [f"not ours: {reply}" for reply in seen.errors if reply["error"] not in REFUSALS]
    for served in seen.served:
        wrong += [f"never written: {text}" for text in set(served) - set(store.told)]
        if log and not seen.errors and served != store.told[: len(served)]:
            wrong.append("a hole in what is served")
        if not log and served != store.told and not seen.told_of_it:
            wrong.append(f"{UNTOLD} {len(store.told) - len(served)} messages gone")
    return seen, [f"{done}: {what}" for what in wrong]


def harms(
    store: Store, copy: Path, damages: list[Damage], count: int, *, log: bool
) -> tuple[dict[str, int], list[str]]:
    """Damage copies in all ways, one after the other; count the results."""
    random, broken = rng(f"damage {log} {store.plant}"), list[str]()
    counts = {"refused": 0, "served": 0, "served_and_told": 0}
    for number in range(count):
        seen, wrong = harm(store, copy, damages[number % len(damages)], random, log=log)
        broken += wrong
        if seen is not None:
            how = "served" if not seen.told_of_it else "served_and_told" if any(seen.served) else "refused"
            counts[how] += 1
    return counts, broken


@pytest.mark.parametrize("log", [False, True], ids=["database", "log"])
def test_a_damaged_file_is_read_or_refused_and_nothing_false_is_read(
    log: bool, fork_server: ForkServer, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    count, store = runs(14, long=3_000), make(fork_server, folder, closed=not log)
    counts, broken = harms(store, folder / "run", TO_LOG if log else TO_DATABASE, count, log=log)
    wrong = [what for what in broken if UNTOLD not in what]
    report(
        record_property,
        f"damage to the {'log' if log else 'database'}",
        runs=count,
        wrong=len(wrong),
        **counts,
    )
    assert wrong == []


def test_a_check_of_the_store_reports_missing_messages(
    fork_server: ForkServer, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    count, store = runs(6, long=1_000), make(fork_server, folder, closed=True)
    _, broken = harms(store, folder / "run", [flip_a_body, flip_a_byte], count, log=False)
    untold = [what for what in broken if UNTOLD in what]
    report(record_property, "messages gone by damage", runs=count, untold=len(untold))
    assert untold == []


def repair(store: Store, copy: Path, damage: Damage, random: Random) -> list[str]:
    """Damage a copy, repair it, and return what the repair made worse."""
    before, wrong = harm(store, copy, damage, random, log=False)
    wrong = [what for what in wrong if UNTOLD not in what]
    if before is None or not before.findings:
        return wrong
    url = f"sqlite:///{copy}/{FILE}"
    with store.fork_server.worker(url) as worker, store.fork_server.worker(url) as later:
        try:
            replies = [worker.ask("open"), worker.ask("verify", repair=True), worker.ask("close")]
            after = look(later, store.sessions)
        except Died:
            return [*wrong, "crashed in or after the repair"]
    errors = [reply for reply in (*replies, *after.errors) if reply.get("error", REFUSALS[0]) not in REFUSALS]
    gone = {text for served in before.served for text in served} - {
        text for served in after.served for text in served
    }
    return [
        *wrong,
        *(f"not ours: {error}" for error in errors),
        *(f"lost by the repair: {text}" for text in gone),
    ]


def test_a_repair_removes_nothing_that_could_still_be_read(
    fork_server: ForkServer, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    count, store, random = runs(6, long=1_000), make(fork_server, folder, closed=True), rng("repair")
    damages = [flip_a_body, flip_a_byte, blank_a_page, scramble_a_stretch]
    broken = [
        what for number in range(count) for what in repair(store, folder / "run", damages[number % 4], random)
    ]
    report(record_property, "repairs of damaged files", runs=count, wrong=len(broken))
    assert broken == []


def flip_the_counters(path: Path, random: Random) -> str:
    """Change one byte of the name of the counter everywhere in the file."""
    name, place, mask = COUNTER.encode(), random.randrange(len(COUNTER)), random.randrange(1, 256)
    flipped = name[:place] + bytes([name[place] ^ mask]) + name[place + 1 :]
    path.write_bytes(path.read_bytes().replace(name, flipped))
    return f"{path.name}: the counter is called {flipped!r}"


def test_a_counter_without_its_name_is_refused_and_reported_and_repaired(
    fork_server: ForkServer, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    count, store, random = runs(2, long=100), make(fork_server, folder, closed=True), rng("counters")
    copy, broken = folder / "run", list[str]()
    for _ in range(count):
        broken += repair(store, copy, flip_the_counters, random)
        with store.fork_server.worker(f"sqlite:///{copy}/{FILE}") as worker:
            after = look(worker, store.sessions)
        told = [*store.told, *texts("after", 1)]
        if after.errors or after.findings or after.served != [told, told]:
            broken.append(f"not as it was: {after}")
    report(record_property, "counters without a name", runs=count, wrong=len(broken))
    assert broken == []


def test_a_store_that_trusts_its_bytes_is_caught(fork_server: ForkServer, folder: Path) -> None:
    store = make(fork_server, folder, closed=True, plant="trusts bytes")
    _, broken = harms(store, folder / "run", [flip_a_body], 3, log=False)
    assert any("never written" in what for what in broken)
