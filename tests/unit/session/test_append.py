"""What may be added to a conversation, in which order, and what a repeated request comes to."""

from __future__ import annotations

import asyncio
from itertools import accumulate
from random import Random
from types import NoneType
from typing import Any
from unittest.mock import patch

import pytest

from tests.harness.thoroughness import runs
from tests.unit.session.session_fixtures import (
    Harness,
    answer,
    answers,
    asks,
    call,
    everything,
    grown,
    rows,
    run,
    texts,
)
from turnstate import Message, StateManager
from turnstate.catalog import ModelInfo
from turnstate.context.policy import Budget
from turnstate.errors import (
    AlreadyExists,
    Conflict,
    EpochEnded,
    Fenced,
    InputError,
    InvalidMessage,
    KeyReused,
)
from turnstate.log.records import recount
from turnstate.message import ToolCallRequest
from turnstate.session import Session, SessionManager
from turnstate.stores.memory import MemoryStore
from turnstate.stores.values import KEY_LIFE, Change, Receipt, Row
from turnstate.testing import FixedClock


async def refused(session: Session, error: type[Exception], *messages: Any, **asked: Any) -> Exception:
    """Assert that an append is refused and changes nothing, and give the error."""
    before = await everything(session)
    with pytest.raises(error) as caught:
        await session.append(*messages, **asked)
    assert await everything(session) == before
    return caught.value


@pytest.mark.req("A7", "G5")
@run
async def test_messages_stand_in_the_order_in_which_they_were_appended(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    late = Message.user("first", timestamp="2030-01-01T00:00:00Z")
    early = Message.user("second", timestamp="2020-01-01T00:00:00Z")
    await session.append(late, early)
    await session.append(Message.assistant("third"))
    assert await texts(session) == ["first", "second", "third"]
    assert (await session.messages())[:2] == [late, early]


@pytest.mark.req("G5")
@run
async def test_each_append_makes_the_version_grow_by_one_and_says_where_its_messages_stand(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create(system="You help.")
    assert session.version == 0
    receipts = [
        await session.append(*[Message.user("a")] * 1),
        await session.append(Message.user("b"), Message.user("c")),
    ]
    assert [(one.version, one.first, one.last, one.repeated) for one in receipts] == [
        (1, 2, 2, False),
        (2, 3, 4, False),
    ]
    assert session.version == 2


@pytest.mark.req("G5")
@run
async def test_tasks_of_one_handle_do_not_refuse_each_other(harness: Harness) -> None:
    session, asked = await (await harness.manager()).create(), 0
    store = session._writer.store
    commit = store.commit

    async def counted(change: Change) -> Receipt:
        nonlocal asked
        asked += 1
        return await commit(change)

    await session.append(Message.user("the counter is loaded"))
    with patch.object(store, "commit", counted):
        receipts = await asyncio.gather(*(session.append(Message.user(f"{n}")) for n in range(40)))
    assert asked == 40
    assert [receipt.first for receipt in receipts] == list(range(2, 42))


@pytest.mark.req("B1", "G5")
@run
async def test_whatever_tasks_and_rivals_do_each_append_is_counted_at_its_place(harness: Harness) -> None:
    """Tasks of a handle, another handle, changes of model, repeated keys, cancelled tasks, at random."""
    sessions, rng = await harness.manager(), Random(7)
    session = await sessions.create(id="s1")
    rival, said = await sessions.open("s1"), set[str]()

    async def append(one: Session, text: str, key: str | None = None) -> None:
        await one.append(Message.user(text), key=key)
        said.add(text)

    for number in range(25):
        tasks = [asyncio.ensure_future(append(session, f"{number} {n}")) for n in range(rng.randrange(1, 8))]
        tasks += [asyncio.ensure_future(append(session, f"key {number % 3}", key=f"{number % 3}"))]
        if rng.random() < 0.3:
            tasks.insert(1, asyncio.ensure_future(append(rival, f"rival {number}")))
        if rng.random() < 0.3:
            model = rng.choice(["gpt-4", "gpt-4o"])
            tasks.insert(1, asyncio.ensure_future(rng.choice([session, rival]).set_model(model)))
        if rng.random() < 0.3:
            await asyncio.sleep(0)
            rng.choice(tasks).cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(outcome, ModelInfo | asyncio.CancelledError | NoneType), outcome
    kept = [one for one in await rows(session) if one.kind == "message"]
    found = await texts(session)
    assert said <= set(found)
    assert len(found) == len(set(found)) == len(kept)
    again = await sessions.open("s1")
    assert (again.total, again.version) == (kept[-1].total, len(kept))
    assert [one.total for one in kept] == list(accumulate(one.tokens for one in kept))
    assert [one async for one in session._writer.store.verify(repair=False, recount=recount)] == []


@pytest.mark.req("G5")
@run
async def test_appends_of_many_handles_at_once_are_ordered_and_none_is_lost(harness: Harness) -> None:
    handles = [await (await harness.manager()).create(id="s1")]
    handles += [await (await harness.manager()).open("s1") for _ in range(3)]
    messages = [Message.user(f"{number}") for number in range(40)]
    receipts = await asyncio.gather(*[handles[i % 4].append(one) for i, one in enumerate(messages)])
    assert sorted(receipt.last for receipt in receipts) == list(range(1, 41))
    stored = await handles[0].messages()
    assert [stored[receipt.last - 1].id for receipt in receipts] == [message.id for message in messages]
    assert [row.seq for row in await rows(handles[0])] == list(range(1, 41))


@pytest.mark.req("G5", "B3")
@run
async def test_an_append_that_lost_a_race_knows_version_and_total(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    other = await (await harness.manager()).open("s1")
    for number in range(3):
        await other.append(Message.user(f"one more {number} " * number))
        await session.append(Message.user("c"))
        fresh = await (await harness.manager()).open("s1")
        assert (session.version, session.total) == (fresh.version, fresh.total)


@pytest.mark.req("G5")
@run
async def test_an_append_that_expects_another_version_is_told_where_the_session_is(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create(id="s1")
    other = await (await harness.manager()).open("s1")
    await session.append(Message.user("a"), expected_version=0)
    await other.append(Message.user("b"), expected_version=1)
    conflict = await refused(session, Conflict, Message.user("c"), expected_version=1)
    assert isinstance(conflict, Conflict)
    assert (conflict.version, conflict.head) == (2, (1, 2))
    await session.append(Message.user("c"), expected_version=conflict.version)
    assert await texts(session) == ["a", "b", "c"]


@pytest.mark.req("G5")
@run
async def test_results_that_expect_another_version_are_told_so_too(harness: Harness) -> None:
    session, one = await (await harness.manager()).create(), call()
    await session.append(Message.user("go"), asks(one))
    await refused(session, Conflict, answers(answer(one)), expected_version=0)
    await session.append(answers(answer(one)), expected_version=1)
    assert await texts(session) == ["go", "assistant", "tool"]


@pytest.mark.req("G5")
@run
async def test_of_many_that_expect_one_version_one_wins(harness: Harness) -> None:
    handles = [await (await harness.manager()).create(id="s1")]
    handles += [await (await harness.manager()).open("s1") for _ in range(3)]
    tries = [handle.append(Message.user("me"), expected_version=0) for handle in handles * 2]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 7
    assert await texts(handles[0]) == ["me"]


@pytest.mark.req("G6")
@run
async def test_one_bad_message_refuses_all_that_came_with_it(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    known = Message.user("known")
    await session.append(known)
    await refused(session, AlreadyExists, Message.user("new"), known)
    twice = Message.user("twice")
    await refused(session, AlreadyExists, twice, Message.user("between"), twice)
    await refused(session, InvalidMessage, Message.user("new"), Message.system("Obey."))
    await refused(session, InvalidMessage, Message.user("new"), answers(answer("nobody")))
    await refused(session, AlreadyExists, Message.user("keyed"), known, key="k")
    await session.append(Message.user("the key is free"), key="k")


@pytest.mark.req("A1", "G6")
@pytest.mark.parametrize("kind", ["prompt", "bootstrap", "summary", "foreign"])
@run
async def test_a_system_message_of_any_kind_is_refused(harness: Harness, kind: Any) -> None:
    session = await (await harness.manager()).create()
    error = await refused(session, InvalidMessage, Message.system("Obey.", kind=kind))
    assert "set_system" in str(error)


@pytest.mark.parametrize("messages", [[], ["text"], [None], [{"role": "user", "content": "hi"}]])
@run
async def test_what_is_no_message_is_refused(harness: Harness, messages: list[Any]) -> None:
    await refused(await (await harness.manager()).create(), InputError, *messages)


def rebuilt(message: Message) -> Message:
    """Return a message as a program would build it again after a crash: new ids, another time."""
    calls = tuple(
        ToolCallRequest(name=one.name, args=one.args, provider_id=one.provider_id)
        for one in message.tool_calls
    )
    new = Message.user("")
    return message.replace(id=new.id, timestamp="2031-01-01T00:00:00Z", tool_calls=calls)


@pytest.mark.req("G5")
@pytest.mark.parametrize(
    "message",
    [Message.user("pay"), Message.assistant("ok", tool_calls=[call("pay", amount=5)])],
    ids=["user", "assistant"],
)
@run
async def test_a_repeated_request_gets_the_first_receipt_and_adds_nothing(
    harness: Harness, message: Message
) -> None:
    session = await (await harness.manager()).create()
    first = await session.append(message, key="k")
    await session.append(Message.user("meanwhile"))
    before = await everything(session)
    for again in (message, rebuilt(message)):
        for asked in ({}, {"expected_version": 0}, {"expected_version": 77}):
            receipt = await session.append(again, key="k", **asked)
            assert receipt.repeated
            assert (receipt.version, receipt.first, receipt.last) == (first.version, first.first, first.last)
    assert await everything(session) == before


@pytest.mark.req("G5")
@run
async def test_a_repeated_request_is_answered_whoever_holds_the_lease(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create(id="s1")
    first = await session.append(Message.user("pay"), key="k")
    await (await sessions.open("s1")).acquire(seconds=60)
    assert (await session.append(Message.user("pay"), key="k")).last == first.last
    zombie = await sessions.open("s1")
    harness.clock.advance(60_000)
    await zombie.acquire(seconds=1)
    harness.clock.advance(1_000)
    await (await sessions.open("s1")).acquire(seconds=60)
    assert (await zombie.append(Message.user("pay"), key="k")).repeated
    with pytest.raises(Fenced):
        await zombie.append(Message.user("more"))


@pytest.mark.req("G5", "G7")
@run
async def test_the_epoch_is_looked_at_before_the_key(harness: Harness) -> None:
    sessions = await harness.manager()
    old, session = await sessions.create(id="s1"), await sessions.open("s1")
    await old.append(Message.user("pay"), key="k")
    session = await session.reset()
    with pytest.raises(EpochEnded):
        await old.append(Message.user("pay"), key="k")


@pytest.mark.req("G5")
@pytest.mark.parametrize(
    "other",
    [
        [Message.user("pay twice")],
        [Message.assistant("pay")],
        [Message.user("pay"), Message.user("pay")],
        [Message.assistant("pay", tool_calls=[call("pay")])],
    ],
)
@run
async def test_a_key_that_comes_with_another_request_is_refused(
    harness: Harness, other: list[Message]
) -> None:
    session = await (await harness.manager()).create()
    await session.append(Message.user("pay"), key="k")
    await refused(session, KeyReused, *other, key="k")
    await session.append(*other, key="k2")


@pytest.mark.req("G5")
@run
async def test_args_in_another_order_are_the_same_request_and_other_args_are_not(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await session.append(asks(call("pay", a=1, b={"x": 1, "y": 2})), key="k")
    assert (await session.append(asks(call("pay", b={"y": 2, "x": 1}, a=1)), key="k")).repeated
    await refused(session, KeyReused, asks(call("pay", a=1, b={"x": 1, "y": 3})), key="k")
    await refused(session, KeyReused, asks(call("pay", provider_id="p", a=1, b={"x": 1, "y": 2})), key="k")


@pytest.mark.req("G5")
@run
async def test_a_round_that_is_built_again_as_a_whole_is_the_same_request(harness: Harness) -> None:
    session = await (await harness.manager()).create()

    def round() -> list[Message]:
        one, two = call("a"), call("b")
        return [asks(one, two), answers(answer(two, 2), answer(one, 1))]

    first = await session.append(*round(), key="k")
    again = await session.append(*round(), key="k")
    assert again.repeated
    assert again.last == first.last
    one, two = call("a"), call("b")
    await refused(session, KeyReused, asks(one, two), answers(answer(one, 2), answer(two, 1)), key="k")


@pytest.mark.req("G5", "A5")
@run
async def test_keyed_results_are_taken_once_however_often_they_come(harness: Harness) -> None:
    sessions, one, two = await harness.manager(), call(), call()
    session = await sessions.create(id="s1")
    await session.append(Message.user("go"), asks(one, two))
    first = await session.append(answers(answer(one, 1)), key="r1")
    second = await session.append(answers(answer(two, 2)), key="r2")
    await session.append(Message.assistant("done"))
    before = await everything(session)
    for handle in (session, await (await harness.manager()).open("s1")):
        for key, result, receipt in [("r1", answer(one, 1), first), ("r2", answer(two, 2), second)]:
            again = await handle.append(answers(result), key=key, expected_version=0)
            assert (again.repeated, again.version, again.last) == (True, receipt.version, receipt.last)
    assert await everything(session) == before
    await refused(session, KeyReused, answers(answer(two, 2)), key="r1")


@pytest.mark.req("G5", "A5")
@run
async def test_keyed_results_that_were_refused_stay_refused(harness: Harness) -> None:
    session, one = await (await harness.manager()).create(), call()
    await session.append(Message.user("go"), asks(one))
    await refused(session, InvalidMessage, answers(answer("nobody")), key="k")
    await session.append(answers(answer(one, 1)))
    await refused(session, InvalidMessage, answers(answer(one, 2)), key="k")


@pytest.mark.req("G5", "A5")
@run
async def test_known_results_under_a_new_key_add_nothing_and_the_key_is_kept(harness: Harness) -> None:
    session, one = await (await harness.manager()).create(), call()
    await session.append(Message.user("go"), asks(one))
    await session.append(answers(answer(one, 1)))
    version = session.version
    first = await session.append(answers(answer(one, 1)), key="k")
    again = await session.append(answers(answer(one, 1)), key="k")
    assert (first.version, again.version, again.repeated) == (version, version, True)
    assert first.first == first.last + 1
    assert await texts(session) == ["go", "assistant", "tool"]


@pytest.mark.req("G5")
@run
async def test_a_key_is_forgotten_after_seven_days(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await session.append(Message.user("pay"), key="k")
    harness.clock.advance(KEY_LIFE - 1)
    assert (await session.append(Message.user("pay"), key="k")).repeated
    harness.clock.advance(1)
    assert not (await session.append(Message.user("pay"), key="k")).repeated
    assert await texts(session) == ["pay", "pay"]


@pytest.mark.req("G5", "G8")
@run
async def test_a_clock_that_jumps_ahead_by_years_forgets_no_key(harness: Harness) -> None:
    steady = FixedClock(0)
    sessions = await harness.manager(monotonic=steady)
    session, other = await sessions.create(), await sessions.create()
    await session.append(Message.user("pay"), key="k")
    harness.clock.advance(150 * KEY_LIFE)
    for hours in (0, 1, 24, 5 * 24):  # in each of them, other keys are written and old ones are forgotten
        steady.advance(hours * 3_600_000)
        harness.clock.advance(hours * 3_600_000)
        await other.append(Message.user("hello"), key=f"at {hours}")
        await session.set_system(f"It is {hours} o'clock.")
        assert (await session.append(Message.user("pay"), key="k")).repeated, hours
    for clock in (steady, harness.clock):  # seven days after the jump, everything before it is that old
        clock.advance(KEY_LIFE)
    assert not (await session.append(Message.user("pay"), key="k")).repeated


@pytest.mark.req("G5")
@run
async def test_one_key_serves_two_sessions(harness: Harness) -> None:
    sessions = await harness.manager()
    for session in (await sessions.create(), await sessions.create()):
        assert not (await session.append(Message.user(session.id), key="k")).repeated


@pytest.mark.req("A6", "G5")
@pytest.mark.parametrize("key", ["", "a\0b", "\ud800", "x" * 501, 5, b"k"], ids=repr)
@run
async def test_a_key_that_cannot_be_kept_is_refused(harness: Harness, key: Any) -> None:
    await refused(await (await harness.manager()).create(), InputError, Message.user("pay"), key=key)


@pytest.mark.req("A5", "G5")
@run
async def test_results_that_race_for_one_call_leave_one_answer(harness: Harness) -> None:
    handles, one = [await (await harness.manager()).create(id="s1")], call()
    handles += [await (await harness.manager()).open("s1") for _ in range(3)]
    await handles[0].append(Message.user("go"), asks(one))
    tries = [handle.append(answers(answer(one, number))) for number, handle in enumerate(handles)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(outcome, InvalidMessage) for outcome in outcomes) == 3
    assert await texts(handles[0]) == ["go", "assistant", "tool"]


@pytest.mark.req("A5", "G5")
@run
async def test_results_of_one_batch_come_from_many_workers_and_none_is_lost(harness: Harness) -> None:
    calls = [call(number=number) for number in range(16)]
    handles = [await (await harness.manager()).create(id="s1")]
    handles += [await (await harness.manager()).open("s1") for _ in range(3)]
    await handles[0].append(Message.user("go"), asks(*calls))
    await asyncio.gather(*[handles[i % 4].append(answers(answer(one, i))) for i, one in enumerate(calls)])
    messages = await handles[0].messages()
    given = {result.tool_call_id: result.result for message in messages for result in message.tool_results}
    assert given == {one.id: number for number, one in enumerate(calls)}
    assert len(messages) == 18


@pytest.mark.req("A5", "G5")
@run
async def test_results_are_held_against_the_path_as_it_is_not_as_a_handle_knew_it(harness: Harness) -> None:
    mine, one, two, three = await (await harness.manager()).create(id="s1"), call(), call(), call()
    other = await (await harness.manager()).open("s1")
    await mine.append(Message.user("go", id="m1"), asks(one, two))
    await mine.append(answers(answer(one)))
    await other.append(answers(answer(two, "theirs")), asks(three))
    await refused(mine, InvalidMessage, answers(answer(two, "mine")))
    await mine.append(answers(answer(three)))
    await other.rewind(to="m1")
    await refused(mine, InvalidMessage, answers(answer(three, "late")))
    assert await texts(other) == ["go"]


class UnreadStore(MemoryStore):
    """A store whose entries must not be read."""

    async def read(self, *asked: Any, **options: Any) -> list[Row]:
        raise AssertionError("an entry was read")

    find = newest = branches = read  # type: ignore[assignment]


@pytest.mark.req("A5", "G7")
def test_results_of_the_calls_that_a_handle_wrote_last_are_accepted_without_reading_the_log() -> None:
    async def appended() -> None:
        session = await SessionManager(UnreadStore()).create()
        for turn in range(3):
            one, two = call(number=turn), call("cat", provider_id="toolu_1")
            await session.append(Message.user("go"), asks(one, two))
            await session.append(answers(answer(two, turn)))
            await session.append(answers(answer(one, turn)))
            await session.append(Message.assistant("done"))

    asyncio.run(appended())


@pytest.mark.req("A5", "G5")
@run
async def test_a_late_result_is_held_against_calls_before_the_newest(harness: Harness) -> None:
    session, early, late = await (await harness.manager()).create(), call(), call()
    await session.append(Message.user("go"), asks(early))
    await session.append(Message.user("wait"), asks(late))
    await session.append(answers(answer(early, "first")))
    await refused(session, InvalidMessage, answers(answer(early, "second")))
    await session.append(answers(answer(late)))
    assert (await session.append(answers(answer(late)))).repeated
    await refused(session, InvalidMessage, answers(answer(call())))


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"leaf": True}
    for _ in range(depth - 1):
        value = {"in": value}
    return value


@pytest.mark.req("A2", "A6")
@run
async def test_very_large_and_very_deep_messages_come_back_as_they_were(harness: Harness) -> None:
    sessions = await harness.manager()
    session, one = await sessions.create(id="s1"), call(**nested(180))
    big = Message.user("x" * runs(1_000_000, long=5_000_000) + "日本" * runs(200_000, long=1_000_000))
    said = [big, asks(one), answers(answer(one, nested(180))), Message.user("\0\u2028<|endoftext|>")]
    await session.append(*said)
    other = await (await harness.manager()).open("s1")
    assert await other.messages() == said
    window = await other.window(Budget(20_000_000))
    assert window.messages[0] == big


@pytest.mark.req("B1")
@run
async def test_a_message_is_counted_once_as_it_is_sent_and_the_total_runs_along(harness: Harness) -> None:
    session, one = await (await harness.manager()).create(), call()
    long = "\n".join(f"line {number} of a very long output" for number in range(2_000))
    await session.append(Message.user("go"), asks(one))
    await session.append(answers(answer(one, long)))
    stored, manager = await rows(session), StateManager(session._row.counter)
    window = await session.window(Budget(1_000_000))
    assert [row.tokens for row in stored] == [manager.count([one]).tokens - 3 for one in window.messages]
    assert stored[-1].tokens < 4_000 < manager.count(await session.messages()).tokens
    assert [row.total for row in stored] == [sum(row.tokens for row in stored[: end + 1]) for end in range(3)]
    assert (await session._writer.store.get(session._row.address)).total == stored[-1].total


@pytest.mark.req("G5")
@run
async def test_an_append_goes_on_where_decisions_were_written_meanwhile(harness: Harness) -> None:
    sessions = await harness.manager()
    session, other = await sessions.create(id="s1"), await sessions.open("s1")
    await grown(session, 30)
    version = session.version
    window = await other.window(Budget(600))
    assert window.decisions
    await session.append(Message.user("next"), expected_version=version)
    assert (await texts(session))[-1] == "next"


@pytest.mark.req("G5")
@run
async def test_a_repeated_result_gets_its_first_answer_after_its_call_left_the_path(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    question, one = Message.user("look"), call()
    await session.append(question, asks(one))
    first = await session.append(answers(answer(one, 1)), key="r1")
    await session.rewind(to=question.id)
    again = await session.append(answers(answer(one, 1)), key="r1")
    assert (again.repeated, again.branch, again.last) == (True, first.branch, first.last)
    await refused(session, InvalidMessage, answers(answer(one, 1)))
    await refused(session, InvalidMessage, answers(answer(one, 1)), key="r2")
