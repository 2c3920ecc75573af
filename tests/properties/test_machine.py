"""One random machine for sessions and states: any operations, in any order, by either of the two.

`machine` says what must hold after a step, `machine_steps` has the steps, `machine_model` is what is
expected, and `machine_runs` makes a failing list of steps shorter and plays it again.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.harness.programs import environment, program
from tests.harness.thoroughness import SEED, report, runs
from tests.properties.machine_runs import DISK, Failed, Played, failing_seed, played, replay
from turnstate.conversation.tangents import Tangents
from turnstate.conversation.timeline import Timeline
from turnstate.entry import Decision, Entry, Revert, Tangent
from turnstate.log import fold
from turnstate.log.undo import Undoable, UndoSearch

RUNS = {"memory": runs(90, long=420), "sqlite": runs(40, long=300), "files": runs(6, long=80)}
"""136 runs; in the long version 800, of 20,000 steps."""

FIRST = SEED % 1_000_000 * 1_000
"""The first seed of the runs."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder in memory: these tests are not about the disk."""
    with tempfile.TemporaryDirectory(dir=DISK) as place:
        yield Path(place)


def play_many(store: str, folder: Path, record_property: Callable[[str, object], None]) -> list[Played]:
    done = [played(store, seed, folder) for seed in range(FIRST, FIRST + RUNS[store])]
    steps = Counter(step.name for one in done for step in one.steps)
    report(record_property, f"random machine on {store}", runs=len(done), steps=steps.total())
    return done


@pytest.mark.req(
    "A5", "A7", "C3", "C9", "D5", "G2", "G5", "G7", "I1", "I3", "I5", "I8", "I9", "J1", "J2", "J3"
)
def test_after_any_steps_all_readers_agree_with_the_model(
    folder: Path, record_property: Callable[[str, object], None]
) -> None:
    play_many("memory", folder, record_property)


@pytest.mark.req("C9", "D5", "G3", "I1", "J1", "J2")
def test_after_any_steps_another_process_agrees_with_the_model(
    folder: Path, record_property: Callable[[str, object], None]
) -> None:
    done = play_many("sqlite", folder, record_property)
    reader = subprocess.run(
        program("tests.properties.machine_reader"),
        input=msgspec.json.encode(
            [
                (folder.joinpath(f"{one.seed}.db"), [budget.window for budget in one.budgets], one.cap)
                for one in done
            ],
            enc_hook=str,
        ),
        env=environment(),
        capture_output=True,
        check=False,
    )
    assert reader.returncode == 0, reader.stderr.decode()
    for one, line in zip(done, reader.stdout.splitlines(), strict=True):
        view = (one.view.fields, one.view.tangents, one.view.messages, *one.view.windows)
        expected = [b64encode(part).decode() if part is not None else None for part in view]
        assert msgspec.json.decode(line) == expected, f"seed {one.seed}"


@pytest.mark.req("J4", "O3")
def test_after_any_steps_files_and_conversation_agree_with_the_model(
    folder: Path, record_property: Callable[[str, object], None]
) -> None:
    play_many("files", folder, record_property)


# Planted bugs: the machine is worth something only if it catches these; `tools/mutants.py` plants more.


newest_operation, check, effective = Timeline.newest_operation, UndoSearch.check, fold.effective


def _passes_over_exits(self: Timeline, search: UndoSearch) -> Undoable | None:
    found = newest_operation(self, search)
    while found and isinstance(found.entry, Tangent):
        found = newest_operation(self, search)
    return found


def _undoes_again(self: UndoSearch, number: int, entry: Entry | None) -> Undoable | None:
    self.last = number - 1
    return check(UndoSearch("", number), number, entry)


def _without_reverts(decisions: Iterable[Decision]) -> list[Decision]:
    return effective(one for one in decisions if not isinstance(one, Revert))


PLANTED: list[tuple[object, str, Callable[..., Any], int]] = [
    (Timeline, "newest_operation", _passes_over_exits, 22),
    (UndoSearch, "check", _undoes_again, 1),
    (Tangents, "_leave", Tangents._go_to, 13),  # a tangent is left without an entry that says so
    (Tangents, "_is_loaded", lambda *_: True, 75),  # a step may lead to what is not loaded
    (fold, "effective", _without_reverts, 37),
]
"""What is replaced by what, and the seed to try first: it catches the bug unless the steps have changed."""


def test_planted_bugs_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name, bug, first in PLANTED:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, bug)
            assert failing_seed([first, *range(300)]) is not None, f"{bug.__name__} was not caught"


def test_a_failing_run_is_made_shorter_and_can_be_played_again(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(UndoSearch, "check", _undoes_again)
    seed = failing_seed(range(300))
    assert seed is not None
    with pytest.raises(Failed, match=rf"seed {seed} on memory") as failure:
        played("memory", seed, folder)
    steps = re.findall(r"\('(\w+)', (\d+), (\d+)\)", str(failure.value))
    assert 1 <= len(steps) <= 6
    again = [(name, int(one), int(two)) for name, one, two in steps]
    with pytest.raises(Failed):
        replay("memory", seed, again)
    monkeypatch.undo()
    replay("memory", seed, again)
