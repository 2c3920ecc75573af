"""Keys in SQLite age by the time in which the store was used."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random

import apsw
import pytest
from msgspec import structs

from turnstate.stores.sqlite.keys import (
    FORGET_EVERY,
    FORGET_MOST,
    LONGEST_STEP,
    forget_keys,
    keep_key,
    known_key,
)
from turnstate.stores.sqlite.queries import MIGRATIONS
from turnstate.stores.values import KEY_LIFE, Change, Key, Receipt
from turnstate.testing.contract.scenes import HERE, NOW

RECEIPT = Receipt(epoch=1, version=1, branch=1, first=1, last=1)
BEGIN = NOW - NOW % FORGET_EVERY
YEAR = 365 * 24 * LONGEST_STEP


def change(now: int, name: str = "") -> Change:
    return Change(at=HERE, now=now, key=Key(name or str(now), b"1"))


def write(db: apsw.Connection, *times: int) -> None:
    for now in times:
        keep_key(db, 1, change(now), RECEIPT)


def remembered(db: apsw.Connection, now: int, *times: int) -> list[bool]:
    return [known_key(db, 1, change(now, str(time))) is not None for time in times]


def ages(times: list[int], now: int) -> dict[int, int]:
    """Return how old each key is by the rule in words: gaps add up, and none counts for more than an hour."""
    steps = [min(later - earlier, LONGEST_STEP) for earlier, later in pairwise([*times, now])]
    return {time: sum(steps[number:]) for number, time in enumerate(times)}


@pytest.fixture
def db() -> Iterator[apsw.Connection]:
    with apsw.Connection(":memory:") as db:
        for step in MIGRATIONS:
            db.execute(step)
        yield db


def test_with_a_keyed_write_an_hour_a_key_is_forgotten_after_seven_days(db: apsw.Connection) -> None:
    write(db, *range(BEGIN, BEGIN + KEY_LIFE, LONGEST_STEP))
    assert remembered(db, BEGIN + KEY_LIFE - 1, BEGIN) == [True]
    assert remembered(db, BEGIN + KEY_LIFE, BEGIN, BEGIN + LONGEST_STEP) == [False, True]


def test_an_idle_store_remembers_its_keys_until_it_was_used_for_seven_days(db: apsw.Connection) -> None:
    write(db, BEGIN)
    assert remembered(db, BEGIN + YEAR, BEGIN) == [True]
    uses = [BEGIN + YEAR + number * 24 * LONGEST_STEP for number in range(168)]
    write(db, *uses)
    assert remembered(db, uses[-1], BEGIN, uses[0]) == [False, True]


@pytest.mark.parametrize("seed", range(20))
def test_a_key_is_as_old_as_the_gaps_since_add_up_to(db: apsw.Connection, seed: int) -> None:
    random = Random(seed)
    gaps = [
        random.choice([1, 60_000, LONGEST_STEP - 1, LONGEST_STEP + 1, 10 * LONGEST_STEP]) for _ in range(900)
    ]
    times = [BEGIN + sum(gaps[:number]) for number in range(len(gaps))]
    write(db, *times, times[-1] + YEAR)  # by a clock that is ahead
    now = times[-1] + random.randrange(2 * LONGEST_STEP)
    now -= now % FORGET_EVERY
    expected = [age < KEY_LIFE for age in ages(times, now).values()]
    assert remembered(db, now, *times) == expected
    forget_keys(db, change(now), added=5)  # what is deleted decides nothing
    assert remembered(db, now, *times) == expected
    assert db.execute("SELECT count(*) FROM key").get == sum(expected) + 1


def test_keys_are_deleted_a_few_at_a_time_and_not_by_every_write(db: apsw.Connection) -> None:
    write(db, *range(BEGIN - 3 * KEY_LIFE, BEGIN + 1, LONGEST_STEP))
    there = db.execute("SELECT count(*) FROM key").get
    for now, deleted in ((BEGIN + 1, 0), (BEGIN, FORGET_MOST), (BEGIN, 337)):
        forget_keys(db, change(now), added=1)
        assert db.execute("SELECT count(*) FROM key").get == there - deleted
    forget_keys(db, structs.replace(change(BEGIN + KEY_LIFE), trusts_clock=False), added=1)
    assert db.execute("SELECT count(*) FROM key").get == there - 337
