"""Killed at any step of going back, files and conversation agree at the next start, and nothing is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_desk import Desk, Moment
from system_calls import Point, killing, points, watching
from test_restore_kills import CHANGES
from thoroughness import LONG, rng, tell

from holdfast.checkpoints.carrying import Carrier
from holdfast.errors import HoldfastError

QUICK = {"restore": 6, "undo": 3, "leave": 3, "open": 3}  # points that the quick version takes at random

pytestmark = [pytest.mark.req("O3"), pytest.mark.usefixtures("traced")]


def all_points(desk: Desk, plant: str = "") -> list[Point]:
    """List the changing calls of the act without a fault; opening changes something where it creates."""
    desk.begin()
    with desk.worker(plant) as worker:
        with watching(worker, desk.folder / "calls", CHANGES) as calls:
            assert worker.finishes()
        counted = zip(points(calls), calls, strict=True)
        return [point for point, call in counted if point.call != "openat" or "O_CREAT" in call.arguments]


def killed_at(point: Point, desk: Desk, plant: str = "") -> bool:
    """Kill the act at a point; tell whether it was reached."""
    desk.begin()
    with desk.worker(plant) as worker, killing(worker, point):
        return not worker.finishes()


def aftermath(desk: Desk, act: str) -> tuple[str, list[str]]:
    """Start again; tell how the act ended, and what was broken."""
    after = desk.moment()
    broken = [] if desk.intent is None else ["the intent is still there"]
    if after == desk.before:
        return "as before", broken
    if after != desk.target:
        return "mixed", [*broken, *disagreement(desk, after)]
    if act == "restore":
        try:
            if desk.undone() != desk.before:
                broken.append("the undo leads elsewhere")
        except HoldfastError as error:
            broken.append(f"no undo: {error}")
    return "done", broken


def disagreement(desk: Desk, after: Moment) -> list[str]:
    sides = {
        side: "before" if now == before else "target" if now == target else "neither"
        for side, now, before, target in zip(Moment._fields, after, desk.before, desk.target, strict=True)
    }
    return [f"files and conversation disagree: {sides}"]


def some(found: list[Point], act: str) -> list[Point]:
    return found if LONG else rng(f"checkpoint kills {act}").sample(found, min(QUICK[act], len(found)))


@pytest.mark.parametrize("act", ["restore", "undo", "leave"])
def test_killed_at_any_system_call_files_and_conversation_agree_at_the_next_start(
    act: str, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    desk = Desk(folder, act)
    assert desk.before.files != desk.target.files
    assert desk.before.conversation != desk.target.conversation
    ends, broken = Counter[str](), list[str]()
    for point in some(all_points(desk), act):
        if not killed_at(point, desk):
            ends["not met"] += 1
            continue
        end, wrong = aftermath(desk, act)
        ends[end] += 1
        broken += [f"{point}: {what}" for what in wrong]
    counts = {end.replace(" ", "_"): count for end, count in ends.items()}
    tell(record_property, f"killed in {act} of files and conversation", **counts)
    assert broken == []
    assert ends["done"] > 0 or not LONG  # the quick version may have met the first calls only
    assert ends["done"] + ends["as before"] > 0


def cut_off(folder: Path, act: str = "restore") -> Desk:
    """Give a desk where an act was killed when all files were in place, and nothing was in the log."""
    desk = Desk(folder, act)
    found = all_points(desk)
    drafts = [place for place, point in enumerate(found) if point.call == "rename"]
    for place in reversed(drafts):  # the last name that is given is that of the intent, `placed`
        if killed_at(found[place + 1], desk) and desk.intent is not None:
            return desk
    raise AssertionError("no such point")


def test_a_second_kill_while_the_first_is_settled_changes_nothing(
    folder: Path, record_property: Callable[[str, object], None]
) -> None:
    desk = cut_off(folder)
    desk.cut_off()
    ends, broken = Counter[str](), list[str]()
    for point in some(all_points(desk), "open"):
        if killed_at(point, desk):
            end, wrong = aftermath(desk, "restore")
            ends[end] += 1
            broken += [f"{point}: {what}" for what in wrong]
    tell(record_property, "killed while a restore that was killed is settled", **ends)
    assert broken == []
    assert set(ends) == {"done"}


def test_where_somebody_went_on_meanwhile_the_files_are_put_back(folder: Path) -> None:
    desk = cut_off(folder)
    desk.append("I am somebody else")
    after = desk.moment()
    assert desk.intent is None
    assert after.files == desk.before.files
    assert b"I am somebody else" in after.conversation


def test_the_next_start_says_what_became_of_it(folder: Path) -> None:
    import asyncio

    async def recovered() -> object:
        async with desk.opened() as (_, checkpoints):
            return checkpoints.recovered

    desk = cut_off(folder)
    told = asyncio.run(recovered())
    assert (told.label, told.finished) == ("1", True)  # type: ignore[attr-defined]
    assert asyncio.run(recovered()) is None


@pytest.mark.parametrize("plant", ["no intent", "forgets the intent too early"])
def test_a_planted_bug_is_caught(plant: str, folder: Path) -> None:
    desk = Desk(folder, "restore")
    late = [
        point for point in reversed(all_points(desk, plant)) if point.call.startswith(("rename", "pwrite"))
    ]
    broken = (
        what for point in late if killed_at(point, desk, plant) for what in aftermath(desk, "restore")[1]
    )
    assert "files and conversation disagree" in next(broken)


def test_an_undo_that_is_taken_again_is_caught(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> bool:
        return False

    desk = Desk(folder, "restore")
    late = [point for point in reversed(all_points(desk)) if point.call == "unlink"]
    monkeypatch.setattr(Carrier, "_is_kept", never)
    broken = (what for point in late if killed_at(point, desk) for what in aftermath(desk, "restore")[1])
    assert next(broken) == "the undo leads elsewhere"
