"""One random machine for conversations: any operations, in any order, with or without a session.

`machine` says what must hold after a step, `machine_steps` has the steps, `machine_model` is what is
expected, `machine_process` is another process, and `machine_runs` makes a failing list of steps shorter and
plays it again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness.postgres_server import fresh_url
from tests.harness.thoroughness import SEED, report, runs
from tests.harness.valkey_server import fresh_server
from tests.properties.machine_process import Process
from tests.properties.machine_runs import DISK, Failed, Place, failing_seed, played, replay
from turnstate.conversation.shown import ShownConversation
from turnstate.entry import Decision, Entry, Revert
from turnstate.log import fold, tangents, undo
from turnstate.log.operations import Effect, Here, Steps
from turnstate.session.writer import SessionWriter
from turnstate.stores.values import BranchRow, Receipt

RUNS = {
    "memory": runs(136, long=400),
    "sqlite": runs(40, long=240),
    "postgres": runs(9, long=60),
    "valkey": runs(9, long=60),
    "files": runs(6, long=40),
}
"""200 runs; in the long version 800, of 20,000 steps."""

FIRST = SEED % 1_000_000 * 1_000
"""The first seed of the runs."""


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    with Process() as another:
        yield another


@contextmanager
def empty_store(store: str, folder: Path) -> Iterator[str]:
    """Yield the URL of an empty store."""
    match store:
        case "sqlite":
            yield f"sqlite:///{folder / 'agent.db'}"
        case "valkey":
            yield fresh_server()
        case _:
            with fresh_url() as url:
                yield url


def play_many(store: str, place: Place, record_property: Callable[[str, object], None]) -> None:
    done = [played(place, seed) for seed in range(FIRST, FIRST + RUNS[store])]
    steps = Counter(step.name for one in done for step in one)
    report(record_property, f"random machine on {store}", runs=len(done), steps=steps.total())


@pytest.mark.req(
    "A5", "A7", "C3", "C9", "D5", "G2", "G5", "G7", "I1", "I3", "I5", "I8", "I9", "J1", "J2", "J3"
)
def test_after_any_steps_all_readers_agree_with_the_model(
    record_property: Callable[[str, object], None],
) -> None:
    play_many("memory", Place(), record_property)


@pytest.mark.req("C9", "D5", "G3", "I1", "J1", "J2")
@pytest.mark.parametrize("store", ["sqlite", "postgres", "valkey"])
def test_after_any_steps_another_process_agrees_with_the_model(
    store: str, tmp_path: Path, process: Process, record_property: Callable[[str, object], None]
) -> None:
    with empty_store(store, tmp_path) as url:
        play_many(store, Place(url, process=process), record_property)


@pytest.mark.req("J4", "O3")
def test_after_any_steps_files_and_conversation_agree_with_the_model(
    record_property: Callable[[str, object], None],
) -> None:
    play_many("files", Place(tree=DISK), record_property)


# Planted bugs: the machine is worth something only if it catches these; `tools/mutants.py` plants more.


find, left, commit, effective = undo._newest_operation, tangents.left, SessionWriter.commit, fold.effective


def _passes_over_exits(here: Here, known: Mapping[int, BranchRow], branch: BranchRow) -> Steps[Any]:
    found = yield from find(here, known, branch)
    return None if isinstance(found, undo._Exit) else found


def _forgets_the_mark(*_: Any) -> Steps[bool]:
    yield from ()
    return False


def _loses_the_question(*_: Any) -> Steps[list[Any]]:
    yield from ()
    return []


def _leaves_without_a_trace(*given: Any, **more: Any) -> Steps[Effect]:
    effect = yield from left(*given, **more)
    return Effect(effect.result, effect.entries[1:], None, effect.select, effect.after)


async def _writes_anywhere(self: SessionWriter, **change: Any) -> Receipt:
    return await commit(self, **{**change, "expected_head": None})


def _forgets_what_is_in_force(self: ShownConversation, entry: Entry) -> None:
    self.recalled.append(entry)


def _without_reverts(decisions: Iterable[Decision]) -> list[Decision]:
    return effective(one for one in decisions if not isinstance(one, Revert))


PLANTED: list[tuple[object, str, Callable[..., Any]]] = [
    (undo, "_newest_operation", _passes_over_exits),
    (undo, "_is_undone", _forgets_the_mark),
    (tangents, "_question", _loses_the_question),
    (tangents, "left", _leaves_without_a_trace),
    (SessionWriter, "commit", _writes_anywhere),
    (ShownConversation, "recall", _forgets_what_is_in_force),
    (fold, "effective", _without_reverts),
]
"""What is replaced by what."""


@pytest.mark.parametrize(
    ("owner", "name", "bug"), PLANTED, ids=[bug.__name__.strip("_") for _, _, bug in PLANTED]
)
def test_a_planted_bug_is_caught(
    owner: object, name: str, bug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)
    assert failing_seed(range(300)) is not None


def test_a_failing_run_is_made_shorter_and_can_be_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tangents, "left", _leaves_without_a_trace)
    seed = failing_seed(range(300))
    assert seed is not None
    with pytest.raises(Failed, match=rf"seed {seed} on memory") as failure:
        played(Place(), seed)
    steps = re.findall(r"\('(\w+)', (\d+), (\d+)\)", str(failure.value))
    assert 1 <= len(steps) <= 6
    again = [(name, int(one), int(two)) for name, one, two in steps]
    with pytest.raises(Failed):
        replay(seed, again)
    monkeypatch.undo()
    replay(seed, again)
