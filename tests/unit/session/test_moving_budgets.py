"""Budgets that move: a recorded cut serves as long as its window fits, live and in every other process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import cycle
from random import Random
from typing import Any

import pytest

from tests.unit.session.session_fixtures import (
    Harness,
    answer,
    answers,
    asks,
    call,
    cuts,
    entries,
    grown,
    parcels,
    rows,
    run,
)
from turnstate import Message, codec, tokens
from turnstate.context.cut import Strategy
from turnstate.context.policy import Budget, Policy
from turnstate.context.view import MOST_CUTS
from turnstate.context.window import Window
from turnstate.entry import Cut, Mask, Summary
from turnstate.log.path import WatchedLog
from turnstate.log.records import Eviction, contents
from turnstate.memory.handover import evicted
from turnstate.session import Session, SessionManager
from turnstate.testing import ScriptedModel


def agent(turns: int) -> Iterator[list[Message]]:
    """Say what an agent's log holds: short rounds, long outputs of one line, batches of parallel calls."""
    for turn in range(turns):
        yield [Message.user(f"Question {turn}: which of the disks grew, and why?")]
        for number in range(9):
            one = call(disk=turn, number=number)
            yield [asks(one), answers(answer(one, f"disk {number} of {turn}: " + "ok " * 20))]
        if turn % 16 == 7:
            batch = [call("cat", path=f"{turn}-{number}.log") for number in range(3)]
            yield [asks(*batch), *(answers(answer(one, "short")) for one in batch[1:])]
            yield [answers(answer(batch[0], f"line of {turn} " * 800))]
        yield [Message.assistant(f"Disk {turn} grew, since its logs were not rotated.")]


class Played:
    """What came of a conversation: its windows, and what is in its log."""

    def __init__(self, windows: list[Window], made: list[Any], archived: list[str]) -> None:
        self.made, self.archived = made, archived
        full = [one for one in windows if one.tokens > one.limit / 3]
        self.reuse = sum(one.reused_prefix_tokens / one.tokens for one in full) / len(full)

    def count(self, kind: type) -> int:
        return sum(isinstance(entry, kind) for entry in self.made)


async def played(
    harness: Harness, limits: Sequence[int], *, turns: int = 60, elsewhere: bool = True
) -> Played:
    """Play a conversation, one request after each question and result; other processes see the same."""
    model = ScriptedModel(*["Goal: find out which disk grew. Next: rotate the logs."] * 60)
    sessions = await harness.manager(model=model)
    session, windows = await sessions.create(), list[Window]()
    for messages in agent(turns):
        await session.append(*messages)
        if messages[-1].role not in ("user", "tool"):
            continue
        budget = Budget(limits[len(windows) % len(limits)])
        windows.append(await session.window(budget))
        assert windows[-1].tokens <= budget.limit
        await sessions.settled()  # a model's summary is in before the next request
        if elsewhere and len(windows) % 25 == 0:
            await check_elsewhere(harness, session, budget)
    return Played(windows, await entries(session), await archived(sessions, session))


async def check_elsewhere(harness: Harness, session: Session, budget: Budget) -> None:
    """Assert that a new handle decides nothing and shows the same bytes."""
    fresh = await (await harness.manager()).open(session.id)
    there, here = await fresh.window(budget), await session.window(budget)
    assert there.decisions == here.decisions == ()
    assert codec.dump(there.messages) == codec.dump(here.messages)
    assert there.tokens == here.tokens


async def archived(sessions: SessionManager, session: Session) -> list[str]:
    """Return the ids of all messages in the parcels of cuts, each as often as it is there."""
    store, found = sessions.store, list[str]()
    row = await store.get(session._row.address)
    for parcel in await parcels(store, "archive"):
        eviction = contents(parcel)
        assert isinstance(eviction, Eviction)
        if parcel.session == session.id:
            gone = await evicted(store, row, parcel.id, eviction)
            found += [message.id async for message in gone.messages]
    return found


def check_archived_once(scene: Played) -> None:
    """Assert that everything before the last place that a cut kept is in one parcel, and nothing twice."""
    order = [entry.id for entry in scene.made if isinstance(entry, Message)]
    most = max(order.index(cut.kept_from) for cut in scene.made if isinstance(cut, Cut))
    assert Counter(scene.archived) == Counter(order[:most])


@pytest.mark.req("C8", "D2", "F3")
@run
async def test_a_budget_that_moves_by_a_twentieth_costs_no_cut_and_no_cache(harness: Harness) -> None:
    rng = Random(5)
    around = [rng.uniform(0.95, 1.05) for _ in range(1_000)]
    for size in (20_000, 16_384):  # the latter crosses a power of two, of which outputs have shares
        least = await played(harness, [int(0.95 * size)], elsewhere=False)
        moving = await played(harness, [int(share * size) for share in around])
        assert 1 < moving.count(Cut) <= least.count(Cut)
        assert moving.count(Mask) > 1
        assert moving.count(Summary) > 1
        assert moving.reuse >= 0.98
        assert moving.reuse >= least.reuse - 0.005
        check_archived_once(moving)


@pytest.mark.req("C8", "F3")
@run
async def test_one_token_more_or_less_changes_nothing_and_budgets_that_take_turns_have_a_cut_each(
    harness: Harness,
) -> None:
    constant = await played(harness, [16_000], elsewhere=False)
    moving = await played(harness, [16_000, 16_001], elsewhere=False)
    assert [moving.count(kind) for kind in (Cut, Mask)] == [constant.count(kind) for kind in (Cut, Mask)]
    assert abs(moving.reuse - constant.reuse) < 0.001
    small = await played(harness, [8_000], elsewhere=False)
    in_turns = await played(harness, [8_000, 16_000])
    assert 2 < in_turns.count(Cut) <= small.count(Cut) + constant.count(Cut)
    assert in_turns.reuse > 0.95
    check_archived_once(in_turns)


@pytest.mark.req("C8", "B2")
@run
async def test_a_budget_that_calibration_moves_costs_no_cut(harness: Harness) -> None:
    rng, learned, limits = Random(7), tokens.Calibrated(), list[int]()
    for _ in range(1_000):
        learned = learned.observe(10_000, int(12_500 * rng.uniform(0.95, 1.05)))
        limits.append(learned.budget(20_000))
    assert len(set(limits)) > 50
    constant = await played(harness, [min(limits)], elsewhere=False)
    moving = await played(harness, limits, elsewhere=False)
    assert moving.count(Cut) <= constant.count(Cut)
    assert moving.reuse >= 0.98


@pytest.mark.req("C8", "C9")
@run
async def test_a_much_larger_budget_brings_history_back_and_the_small_one_finds_its_cut_again(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create(id="s1")
    said = await grown(session, 300)
    small = await session.window(Budget(8_000))
    large = await session.window(Budget(128_000))
    assert [message.id for message in large.messages] == [message.id for message in said]
    again = await session.window(Budget(8_000))
    assert codec.dump(again.messages) == codec.dump(small.messages)
    assert large.decisions == again.decisions == ()
    for size in (8_000, 128_000):
        await check_elsewhere(harness, session, Budget(size))


@pytest.mark.req("C8", "C9")
@run
async def test_a_cut_for_a_larger_budget_is_found_behind_many_for_a_smaller_one(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    await grown(session, 400)
    large = await session.window(Budget(16_000))
    assert large.pending_cut
    for _ in range(12):
        await grown(session, 5)
        await session.window(Budget(700))
    fresh = await (await harness.manager()).open("s1")
    await fresh.window(Budget(700))  # it has loaded what that needs, and no more
    for handle in (session, fresh):
        again = await handle.window(Budget(16_000))
        assert again.decisions == ()
        assert again.messages[: len(large.messages)] == large.messages
    for size in (700, 16_000):
        await check_elsewhere(harness, session, Budget(size))


@pytest.mark.req("H1")
@run
async def test_a_snapshot_shows_what_the_newest_cut_kept_whatever_was_loaded_for_a_window(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create(id="s1")
    await grown(session, 400)
    for size in (700, 16_000):
        assert (await session.window(Budget(size))).pending_cut
    fresh = await (await harness.manager()).open("s1")
    await fresh.window(Budget(700))
    taken = [await handle.snapshot() for handle in (session, fresh)]
    assert taken[0].messages == taken[1].messages
    assert len(taken[0].messages) > 100


@pytest.mark.req("B1", "C8")
@run
async def test_a_cut_made_under_another_counter_or_policy_is_used_while_it_fits(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    await grown(session, 60)
    window = await session.window(Budget(2_000))
    for settings in (
        {"policy": Policy(lock_turns=2, summary_tokens=500, low_water=0.7)},
        {"counter": "cl100k_base"},
        {"counter": "estimate:claude"},
    ):
        fresh = await (await harness.manager(**settings)).open("s1")
        again = await fresh.window(Budget(2_000))
        assert (again.decisions, again.messages) == ((), window.messages)
        assert len(fresh._handle.windows.known.messages) < 120  # type: ignore[union-attr]


class CountedLog(WatchedLog):
    """Counts the rows that are read."""

    rows = 0

    async def read(self, *args: Any, **settings: Any) -> Any:
        found = await super().read(*args, **settings)
        self.rows += len(found)
        return found

    async def find(self, *args: Any) -> Any:
        found = await super().find(*args)
        self.rows += len(found)
        return found

    async def newest(self, *args: Any) -> Any:
        found = await super().newest(*args)
        self.rows += len(found)
        return found


@pytest.mark.req("C9", "G2")
@pytest.mark.parametrize("harness", ["memory"], indirect=True)
@run
async def test_opening_reads_a_bounded_number_of_rows_behind_five_hundred_cuts(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    sizes, made = cycle([300, 600, 300, 1_200, 300, 2_400]), 0
    while made < 500:
        await grown(session, 1, words=100)
        made += bool((await session.window(Budget(next(sizes)))).pending_cut)
    assert max(len(cut.beside) for cut in await cuts(session)) <= MOST_CUTS
    for size in (300, 600, 1_200, 2_400):
        fresh = await (await harness.manager()).open("s1")
        log = fresh._writer.log = CountedLog(fresh._writer.store, fresh._writer.damage)
        shown = await fresh.window(Budget(size))
        assert log.rows < len(shown.messages) + 60
    assert len(await rows(session)) > 1_500


@pytest.mark.req("D5", "C8")
@run
async def test_undo_of_a_compaction_brings_back_the_cuts_of_all_budgets_before_it(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    await grown(session, 200)
    sizes = (6_000, 2_000, 700)
    before = {size: codec.dump((await session.window(Budget(size))).messages) for size in sizes}
    await session.compact(Budget(2_000), strategy=Strategy(keep=4))
    said = await grown(session, 1)
    for size in sizes:
        window = await session.window(Budget(size))
        assert (window.decisions, len(window.messages)) == ((), 1 + 8 + 2)
    await check_elsewhere(harness, session, Budget(700))
    await session.undo()
    for handle in (session, await (await harness.manager()).open("s1")):
        for size in sizes:
            window = await handle.window(Budget(size))
            assert window.decisions == ()
            assert codec.dump(window.messages[:-2]) == before[size]
            assert list(window.messages[-2:]) == said
