from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.unit.memory.offload import (
    HERE,
    STORES,
    Scene,
    begin,
    cut,
    end,
    evict,
    records,
    said,
    scene,
    summary,
    with_output,
)
from turnstate.entry import Answer, Bootstrap, Prompt
from turnstate.ids import CallId
from turnstate.log.records import Ending, Eviction, contents
from turnstate.memory import Evicted, SessionRecord, handover
from turnstate.message import Message
from turnstate.stores.values import Address, Change, Fork, Parcel, Position, Record, Row, Span

pytestmark = pytest.mark.req("F2", "F3")


@pytest.fixture(params=STORES)
def run(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[Callable[[Scene], Awaitable[None]]], None]:
    """Run a test on every store."""

    def run(test: Callable[[Scene], Awaitable[None]]) -> None:
        async def inside() -> None:
            async with scene(request.param, tmp_path) as here:
                await test(here)

        asyncio.run(inside())

    return run


Run = Callable[[Callable[[Scene], Awaitable[None]]], None]


async def record(here: Scene, parcel: Parcel) -> SessionRecord:
    inside = contents(parcel)
    assert isinstance(inside, Ending)
    return await handover.record(here.store, await here.store.get(HERE), parcel.id, inside)


async def evicted(here: Scene, parcel: Parcel) -> Evicted:
    inside = contents(parcel)
    assert isinstance(inside, Eviction)
    return await handover.evicted(here.store, await here.store.get(HERE), parcel.id, inside)


async def walked(handed: SessionRecord | Evicted) -> list[Message]:
    return [message async for message in handed.messages]


def test_a_record_has_every_message_once_in_order_evicted_ones_included(run: Run) -> None:
    async def test(here: Scene) -> None:
        first, second = said("one", "two", "three", "four"), said("five", "six", prefix="n")
        await begin(here.store, [*first, cut("m3", covers=("m1", "m2"), summary="One, two."), *second])
        told = await record(here, await end(here.store, reason="idle"))
        assert await walked(told) == [*first, *second]
        assert (told.key, told.tenant, told.session, told.user, told.epoch) == (
            "ingest:default:s1:1:last-7", "default", "s1", "u1", 1,
        )  # fmt: skip
        assert (told.reason, told.started, told.ended, told.summary) == ("idle", 1, 2_000, "One, two.")

    run(test)


def test_outputs_are_handed_over_as_they_came(run: Run) -> None:
    async def test(here: Scene) -> None:
        messages = with_output("line\n" * 50_000)
        await begin(here.store, messages)
        assert await walked(await record(here, await end(here.store))) == messages

    run(test)


def test_only_what_was_said_is_handed_over(run: Run) -> None:
    async def test(here: Scene) -> None:
        messages = said("one", "two")
        others = [
            Prompt("You help."),
            Bootstrap("They like tea."),
            Answer(call=CallId("c"), text="Cancelled."),
        ]
        await begin(here.store, [*others, *messages])
        assert await walked(await record(here, await end(here.store))) == messages

    run(test)


def test_the_messages_can_be_walked_twice(run: Run) -> None:
    async def test(here: Scene) -> None:
        await begin(here.store, said("one", "two"))
        told = await record(here, await end(here.store))
        assert await walked(told) == await walked(told) == said("one", "two")

    run(test)


def test_a_record_follows_the_path_over_forks_and_leaves_other_branches_out(run: Run) -> None:
    async def test(here: Scene) -> None:
        await begin(here.store, said("one", "two", "three"))
        other = said("instead of three", prefix="n")
        fork = Fork(parent=1, seq=2, operation="rewind")
        await here.store.commit(Change(at=HERE, now=5, fork=fork, records=records(other)))
        told = await record(here, await end(here.store))
        assert await walked(told) == [*said("one", "two"), *other]

    run(test)


def test_a_record_is_the_epoch_that_ended_though_the_next_has_begun(run: Run) -> None:
    async def test(here: Scene) -> None:
        await begin(here.store, said("one", "two"))
        first = await end(here.store)
        await here.store.commit(Change(at=HERE, now=5, records=records(said("anew", prefix="n"))))
        second = await end(here.store, now=3_000)
        assert await walked(await record(here, first)) == said("one", "two")
        assert await walked(await record(here, second)) == said("anew", prefix="n")

    run(test)


def test_a_models_summary_of_the_newest_cut_is_the_summary(run: Run) -> None:
    async def test(here: Scene) -> None:
        digest = cut("m2", covers=("m1", "m1"), summary="Digest.")
        await begin(here.store, [*said("one", "two"), digest, summary("A model's words.")])
        assert (await record(here, await end(here.store))).summary == "A model's words."

    run(test)


def test_a_summary_of_an_older_cut_is_not(run: Run) -> None:
    async def test(here: Scene) -> None:
        older = cut("m2", covers=("m1", "m1"), summary="Digest.")
        newer = cut("m3", covers=("m1", "m2"), summary="Newer digest.", id="cut2")
        await begin(here.store, [*said("one", "two", "three"), older, summary("Of the older."), newer])
        assert (await record(here, await end(here.store))).summary == "Newer digest."

    run(test)


def test_without_a_cut_there_is_no_summary(run: Run) -> None:
    async def test(here: Scene) -> None:
        await begin(here.store, said("one"))
        assert (await record(here, await end(here.store))).summary == ""

    run(test)


def test_an_eviction_has_the_messages_from_its_first_to_its_last(run: Run) -> None:
    async def test(here: Scene) -> None:
        messages = said("one", "two", "three", "four", "five")
        await begin(here.store, messages)
        told = await evicted(here, await evict(here.store, "m2", "m4", head=Position(1, 5)))
        assert await walked(told) == messages[1:4]
        assert (told.key, told.user) == ("archive:default:s1:1:cut1", "u1")

    run(test)


def test_an_eviction_whose_ends_are_lost_has_all_up_to_the_cut(run: Run) -> None:
    async def test(here: Scene) -> None:
        messages = said("one", "two", "three", "four")
        await begin(here.store, messages)
        told = await evicted(here, await evict(here.store, "lost", "gone", head=Position(1, 3)))
        assert await walked(told) == messages[:3]

    run(test)


class Watched:
    """A log that counts what is read of it at once, and may hand out damaged rows."""

    def __init__(self, here: Scene, *, damaged: str = "") -> None:
        self._store, self._damaged = here.store, damaged
        self.reads: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def read(self, at: Address, span: Span, **which: Any) -> list[Row]:
        rows = await self._store.read(at, span, **which)
        self.reads.append(len(rows))
        return [
            structs.replace(row, damaged=True, body=b"?") if row.id == self._damaged else row for row in rows
        ]


def test_a_long_session_is_read_in_pages(run: Run) -> None:
    async def test(here: Scene) -> None:
        messages = said(*(f"text {number}" for number in range(1_201)))
        await begin(here.store, messages)
        inside = contents(await end(here.store))
        log = Watched(here)
        assert isinstance(inside, Ending)
        told = await handover.record(log, await here.store.get(HERE), "key", inside)  # type: ignore[arg-type]
        assert await walked(told) == messages
        assert log.reads == [1_000, 201]

    run(test)


def test_a_damaged_message_is_left_out_and_told(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test(here: Scene) -> None:
        await begin(here.store, said("one", "two", "three"))
        inside = contents(await end(here.store))
        assert isinstance(inside, Ending)
        log = Watched(here, damaged="m2")
        told = await handover.record(log, await here.store.get(HERE), "key", inside)  # type: ignore[arg-type]
        assert [message.id for message in await walked(told)] == ["m1", "m3"]
        assert "session s1: message m2 is damaged and left out" in caplog.text

    run(test)


def test_an_entry_that_is_no_message_after_all_is_left_out_and_told(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(here: Scene) -> None:
        await begin(here.store, said("one"))
        odd = Record(id="m2", kind="message", body=b'{"role":"parrot"}')
        await here.store.commit(Change(at=HERE, now=5, records=(odd,)))
        told = await record(here, await end(here.store))
        assert await walked(told) == said("one")
        assert "message m2 is damaged and left out" in caplog.text

    run(test)


def test_a_session_without_messages_has_none_to_hand_over(run: Run) -> None:
    async def test(here: Scene) -> None:
        await begin(here.store, [])
        assert await walked(await record(here, await end(here.store))) == []

    run(test)
