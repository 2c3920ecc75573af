"""After a kill at any step of a restore, files and conversation agree at the next start."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.faults.checkpoint_setup import CheckpointSetup, Moment
from tests.faults.system_calls import Point, killing, points, watching
from tests.faults.test_restore_kills import CHANGES
from tests.harness.thoroughness import LONG, report, rng
from turnstate.checkpoints.transaction import Recovered, RestoreTransaction
from turnstate.errors import TurnstateError

QUICK = 2  # points that the quick version takes at random
OF_FILES, OF_THE_LOG = ("restore", "undo", "leave"), ("leave without files", "undo an exit")
UNDOES = {"leave without files": "tangent exit", "undo an exit": "tangent"}  # what undo undoes after it
LEFT = ["0", "1", "tangent", "2", "3", "4"]  # what is in the tangent, with the files that it leaves behind

pytestmark = [pytest.mark.req("O3"), pytest.mark.usefixtures("traced")]


class Setups:
    """The setups that the tests share: each is made once and reset before every kill."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._setups, self._points = dict[str, CheckpointSetup](), dict[str, list[Point]]()

    def of(self, operation: str) -> CheckpointSetup:
        """Return the setup of an operation, reset to the state before it."""
        if operation not in self._setups:
            self._setups[operation] = (
                cut_off(self)
                if operation == "open"
                else CheckpointSetup(self._folder / operation.replace(" ", "-"), operation)
            )
        self._setups[operation].begin()
        return self._setups[operation]

    def points(self, operation: str) -> list[Point]:
        """Return the points at which an operation can be killed."""
        if operation not in self._points:
            self._points[operation] = all_points(self.of(operation))
        return self._points[operation]

    def another(self, operation: str) -> CheckpointSetup:
        """Make one more setup, which is not shared."""
        return CheckpointSetup(self._folder / f"another {operation}", operation)


@pytest.fixture(scope="module")
def setups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setups]:
    """The setups of this module: in memory in the quick version, where a sync costs nothing."""
    memory = Path("/dev/shm")
    if LONG or not memory.is_dir():
        yield Setups(tmp_path_factory.mktemp("setups"))
        return
    with TemporaryDirectory(prefix="turnstate-", dir=memory, ignore_cleanup_errors=True) as path:
        yield Setups(Path(path))


def all_points(setup: CheckpointSetup, plant: str = "") -> list[Point]:
    """Return the calls of an operation that change something; opening a file does if it creates it."""
    setup.begin()
    with setup.worker(plant) as worker:
        with watching(worker, setup.folder / "calls", CHANGES) as calls:
            assert worker.finishes()
        counted = zip(points(calls), calls, strict=True)
        return [point for point, call in counted if point.call != "openat" or "O_CREAT" in call.arguments]


def killed_at(point: Point, setup: CheckpointSetup, plant: str = "") -> bool:
    """Kill the operation at a point; return True if it was reached."""
    setup.begin()
    with setup.worker(plant) as worker, killing(worker, point):
        return not worker.finishes()


def after_restart(setup: CheckpointSetup, operation: str) -> tuple[str, list[str]]:
    """Start again; return how the operation ended, and what was broken."""
    after = setup.moment()
    broken = [] if setup.intent is None else ["the intent is still there"]
    if after == setup.before:
        if operation in OF_THE_LOG:
            broken += broken_afterwards(setup)
        return "as before", broken
    if after != setup.target:
        return "mixed", [*broken, *disagreement(setup, after)]
    if operation == "leave" and (labels := setup.labels_left()) != LEFT:
        broken.append(f"the tangent was left with {labels}")
    if operation in OF_THE_LOG and (undone := setup.undoes()) != UNDOES[operation]:
        broken.append(f"undo goes back over a {undone}")
    if operation == "restore":
        try:
            if setup.undone() != setup.before:
                broken.append("the undo leads elsewhere")
        except TurnstateError as error:
            broken.append(f"no undo: {error}")
    return "done", broken


def broken_afterwards(setup: CheckpointSetup) -> list[str]:
    """Do the operation after a kill that left everything as before; return what is broken."""
    try:
        return [] if setup.done() == setup.target else ["it can no longer be done as before"]
    except TurnstateError as error:
        return [f"it can no longer be done: {error}"]


def disagreement(setup: CheckpointSetup, after: Moment) -> list[str]:
    sides = {
        side: "before" if now == before else "target" if now == target else "neither"
        for side, now, before, target in zip(Moment._fields, after, setup.before, setup.target, strict=True)
    }
    return [f"files and conversation disagree: {sides}"]


def some(found: list[Point], operation: str) -> list[Point]:
    return found if LONG else rng(f"checkpoint kills {operation}").sample(found, min(QUICK, len(found)))


@pytest.mark.parametrize("operation", [*OF_FILES, *OF_THE_LOG])
def test_after_a_kill_at_any_system_call_files_and_conversation_agree_at_the_next_start(
    operation: str, setups: Setups, record_property: Callable[[str, object], None]
) -> None:
    setup = setups.of(operation)
    assert (setup.before.files != setup.target.files) == (operation in OF_FILES)
    assert setup.before.conversation != setup.target.conversation
    ends, broken = Counter[str](), list[str]()
    for point in some(setups.points(operation), operation):
        if not killed_at(point, setup):
            ends["not met"] += 1
            continue
        end, wrong = after_restart(setup, operation)
        ends[end] += 1
        broken += [f"{point}: {what}" for what in wrong]
    counts = {end.replace(" ", "_"): count for end, count in ends.items()}
    report(record_property, f"killed in {operation} of files and conversation", **counts)
    assert broken == []
    assert ends["done"] > 0 or not LONG  # the quick version may have met the first calls only
    assert ends["done"] + ends["as before"] > 0


def cut_off(setups: Setups) -> CheckpointSetup:
    """Return a setup in which a restore was killed after placing all files and before writing to the log."""
    setup, found = setups.another("restore"), setups.points("restore")
    assert killed_at(found[last_named(found) + 1], setup)
    assert setup.intent is not None
    assert b'"placed":true' in setup.intent.read_bytes()
    setup.cut_off()
    return setup


def last_named(found: list[Point]) -> int:
    """Return the index of the last rename: that of the intent which says that the files are in place."""
    return max(place for place, point in enumerate(found) if point.call == "renameat")


def test_a_second_kill_during_recovery_changes_nothing(
    setups: Setups, record_property: Callable[[str, object], None]
) -> None:
    setup, ends, broken = setups.of("open"), Counter[str](), list[str]()
    for point in some(setups.points("open"), "open"):
        if killed_at(point, setup):
            end, wrong = after_restart(setup, "restore")
            ends[end] += 1
            broken += [f"{point}: {what}" for what in wrong]
    report(record_property, "killed while a restore that was killed is settled", **ends)
    assert broken == []
    assert set(ends) == {"done"}


def test_if_the_conversation_went_on_meanwhile_the_files_are_put_back(setups: Setups) -> None:
    setup = setups.of("open")
    setup.append("I am somebody else")
    after = setup.moment()
    assert setup.intent is None
    assert after.files == setup.before.files
    assert b"I am somebody else" in after.conversation


def test_the_next_start_reports_the_recovery(setups: Setups) -> None:
    async def recovered() -> Recovered | None:
        async with setup.opened() as (_, checkpoints):
            return checkpoints.recovered

    setup = setups.of("open")
    told = asyncio.run(recovered())
    assert told is not None
    assert (told.label, told.finished) == ("1", True)
    assert asyncio.run(recovered()) is None


@pytest.mark.parametrize("plant", ["no intent", "forgets the intent too early"])
def test_a_planted_bug_is_caught(plant: str, setups: Setups) -> None:
    setup = setups.of("restore")
    found = all_points(setup, plant)
    placed = max(place for place, point in enumerate(found) if point.call == "rename")
    written = [
        point for point in found[placed:] if point.call == "pwrite64"
    ]  # by the log, once files are there
    broken = (
        what
        for point in written
        if killed_at(point, setup, plant)
        for what in after_restart(setup, "restore")[1]
    )
    assert "files and conversation disagree" in next(broken)


@pytest.mark.parametrize("operation", OF_THE_LOG)
def test_an_operation_in_two_changes_is_caught(operation: str, setups: Setups) -> None:
    setup = setups.of(operation)
    written = [point for point in all_points(setup, "two changes") if point.call == "pwrite64"]
    broken = (
        what
        for point in written
        if killed_at(point, setup, "two changes")
        for what in after_restart(setup, operation)[1]
    )
    assert next(broken).startswith(("files and conversation disagree", "it can no longer be done"))


def test_an_undo_that_is_recorded_twice_is_caught(setups: Setups, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> bool:
        return False

    setup, found = setups.of("restore"), setups.points("restore")
    late = [point for point in reversed(found[: last_named(found)]) if point.call == "unlink"]
    monkeypatch.setattr(RestoreTransaction, "_has_restored", never)
    broken = (
        what for point in late if killed_at(point, setup) for what in after_restart(setup, "restore")[1]
    )
    assert next(broken) == "the undo leads elsewhere"
