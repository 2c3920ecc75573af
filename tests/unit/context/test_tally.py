"""Running totals grow at both ends and count nothing twice."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.unit.context.scripts import talk
from turnstate import Message
from turnstate.context import evidence
from turnstate.context.digest import digest
from turnstate.context.evidence import Evidence
from turnstate.context.manager import StateManager
from turnstate.context.policy import Budget
from turnstate.context.tally import Ledger, Places
from turnstate.testing import conversations


def test_any_range_is_the_sum_of_its_costs_whatever_is_asked_first() -> None:
    rng = Random(7)
    for _ in range(50):
        costs = [rng.randrange(100) for _ in range(40)]
        ledger = Ledger(rng.randrange(41), costs.__getitem__)
        for _ in range(30):
            start = rng.randrange(41)
            end = rng.randrange(start, 41)
            assert ledger.between(start, end) == sum(costs[start:end])
            assert ledger.exceeds(start, end, 500) == (sum(costs[start:end]) > 500)


def test_each_cost_is_asked_for_once_and_only_where_needed() -> None:
    asked: list[int] = []

    def cost(index: int) -> int:
        asked.append(index)
        return 10

    ledger = Ledger(100, cost)
    assert ledger.exceeds(0, 100, 45)
    assert sorted(asked) == [95, 96, 97, 98, 99]
    assert ledger.between(97, 100) == 30
    assert ledger.between(97, 102) == 50
    assert sorted(asked) == [95, 96, 97, 98, 99, 100, 101]


# Messages are found by id, wherever the list grew, and no more of it is read than it takes.


class Watched(list[Message]):
    """A list that tells which of its places were read."""

    def __init__(self, messages: Sequence[Message]) -> None:
        super().__init__(messages)
        self.read: list[int] = []

    def __getitem__(self, index: int) -> Message:  # type: ignore[override]
        self.read.append(index)
        return super().__getitem__(index)


def test_every_message_is_found_whatever_is_asked_first_and_however_the_list_grew() -> None:
    messages = talk("U " * 40)
    for seed in range(50):
        rng = Random(seed)
        items = messages[: rng.randrange(41)]
        places = Places(items, rng.choice((0, len(items))))
        for _ in range(30):
            items += messages[len(items) : len(items) + rng.randrange(3)]
            wanted = rng.randrange(40)
            assert places.of(messages[wanted].id) == (wanted if wanted < len(items) else None)


def test_each_id_is_read_once_and_from_the_newest_back_as_far_as_it_takes() -> None:
    items = Watched(talk("U " * 10))
    places = Places(items, 10)
    assert places.of("m7") == 7
    assert items.read == [9, 8, 7]
    assert places.of("m8") == 8
    assert places.of("unknown") is None
    assert items.read == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]


def lists(found: Evidence) -> list[object]:
    outcomes = [(one.call, one.result, one.said, one.failed) for one in found.outcomes]
    names = (name for name in evidence._LISTS if name != "outcomes")
    return [found.messages, outcomes, *(list(getattr(found, name)) for name in names)]


def test_evidence_is_that_of_the_messages_whatever_was_asked_before() -> None:
    rng = Random(3)
    for messages in conversations.many(20, kind=lambda seed: conversations.valid(seed, turns=8)):
        tally = StateManager().tally(messages, Budget(2_000))
        whole = list(tally.items)
        for _ in range(12):
            start = rng.choice(tally.groups)
            end = rng.choice([one for one in (*tally.groups, len(tally.items)) if one >= start])
            assert lists(tally.evidence(start, end)) == lists(Evidence().read(whole[start:end]))
            tally.total(rng.randrange(len(tally.items)))  # reduces what is counted


def test_a_cut_that_is_planned_again_while_a_conversation_grows_has_the_digest_of_what_left() -> None:
    manager, budget, cuts = StateManager(), Budget(1_500), 0
    for messages in conversations.many(10, kind=lambda seed: conversations.valid(seed, turns=10)):
        tally = manager.tally([], budget)
        for message in messages:
            tally.add(message)
            pending = manager.window(tally, budget).pending_cut
            if pending and not tally.whole:
                assert pending.cut.digest == digest(pending.evicted).to_json()
                cuts += 1
    assert cuts > 20
