"""A process that forks while a store is open: the child gets a typed error, and the parent loses nothing."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.empty_stores import empty_store
from tests.harness.programs import environment, program
from tests.harness.thoroughness import report, runs
from turnstate import SessionManager


def forked(url: str, folder: Path, how: str, plant: str = "", forks: int = 0) -> list[dict[str, Any]]:
    """Run the program, and return what it reports for each way to fork."""
    command = program("tests.faults.forked_process", url, folder, how, plant)
    told = environment(FORKS=str(forks))
    done = subprocess.run(command, capture_output=True, text=True, env=told, check=False)
    assert done.returncode == 0 or plant, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def faults(report: dict[str, Any]) -> list[str]:
    """Return what a fork broke."""
    calls = report["calls"]
    harmless = {name for name in calls if name.startswith(("close", "own"))}
    expected = {name: "done" if name in harmless else "WrongProcess" for name in calls}
    wrong = [f"{name} in the child: {calls[name]}" for name in calls if calls[name] != expected[name]]
    if report["exit"] or not calls:
        wrong.append(f"the child ended with {report['exit']} after {len(calls)} calls")
    if not report["linked"]:
        wrong.append("the parent writes to a removed file")
    if report["texts"] != report["acknowledged"]:
        wrong.append(f"acknowledged {report['acknowledged']}, read {report['texts']}")
    return wrong


async def read_back(url: str) -> dict[str, list[str]]:
    """Return all texts as a third process sees them, and what `verify` finds."""
    async with SessionManager.open(url) as sessions:
        ids = [info.id async for info in sessions.all()]
        texts = {id: [one.text for one in await (await sessions.open(id)).messages()] for id in ids}
        found = [finding.text async for finding in sessions.store.verify(repair=False)]
        return texts | {"verify": found}


HANGS = "the child ended with -14"
WAYS = ("blocking", "async", "loop")


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "valkey"])
def test_a_forked_child_gets_an_error_and_the_parent_goes_on(kind: str, folder: Path) -> None:
    with empty_store(kind, folder) as url:
        reports = forked(url, folder, ",".join(WAYS))
        assert [faults(one) for one in reports] == [[], [], []]
        kept = asyncio.run(read_back(url))
    assert [kept[way] for way in WAYS] == [one["acknowledged"] for one in reports]
    assert kept["child"] == [f"child {number}" for number in range(4)] * 2
    assert kept["verify"] == []


def test_a_store_in_memory_is_refused_in_a_child(folder: Path) -> None:
    assert [faults(one) for one in forked("memory:", folder, ",".join(WAYS))] == [[], [], []]


def test_a_busy_process_may_fork_again_and_again(
    folder: Path, record_property: Callable[[str, object], None]
) -> None:
    forks = runs(5, long=400)
    url = f"sqlite:///{folder}/agent.db"
    (storm,) = forked(url, folder, "storm", forks=forks)
    kept = asyncio.run(read_back(url))
    appends = len(storm["acknowledged"])
    report(record_property, "Forks of a busy process", forks=forks, appends=appends + 4 * forks, lost=0)
    assert faults(storm) == []
    assert kept["storm"] == storm["acknowledged"]
    assert all(len(kept[f"child {number}"]) == 4 for number in range(forks))
    assert kept["verify"] == []


@pytest.mark.parametrize(
    ("plant", "kind", "way", "sign"),
    [
        ("no guard", "sqlite", "blocking", HANGS),
        ("no pause", "sqlite", "blocking", "own in the child: StoreUnavailable"),
        # It hangs if the parent was writing: SQLite takes the inherited lock for one of the child's.
        ("no refusal", "sqlite", "blocking", ("own in the child: unlocked", HANGS)),
        ("no keeping", "valkey", "loop", "no report"),
    ],
)
def test_a_planted_bug_is_caught(
    plant: str, kind: str, way: str, sign: str | tuple[str, ...], folder: Path
) -> None:
    with empty_store(kind, folder) as url:
        found = [fault for one in forked(url, folder, way, plant) for fault in faults(one)] or ["no report"]
    assert any(fault.startswith(sign) for fault in found), found


TWO_FORKS = """
import asyncio, os, sys
from turnstate.memory.builtin.sqlite import SqliteDatabase
from turnstate.stores import connect

async def main(folder):
    memory = SqliteDatabase(f"{folder}/memory.db")
    store = await connect(f"sqlite:///{folder}/agent.db")
    for number in range(3):  # the memory is not used in between
        await store.facts()
        if (child := os.fork()) == 0:
            asyncio._set_running_loop(None)
            os._exit(asyncio.new_event_loop().run_until_complete(opened(folder)))
        assert os.waitpid(child, 0)[1] == 0, f"fork {number}"
    await store.close()
    await memory.close()

async def opened(folder):
    store = await connect(f"sqlite:///{folder}/agent.db")
    await store.facts()
    await store.close()
    return 0

asyncio.run(main(sys.argv[1]))
"""


def test_a_memory_that_is_not_used_between_two_forks_keeps_no_store_from_its_children(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", TWO_FORKS, str(folder)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
