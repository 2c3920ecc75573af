"""Windows of a session: decisions are written once, on the path they were made for, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import deepcopy

import pytest

from tests.unit.session.session_fixtures import (
    Harness,
    answer,
    answers,
    asks,
    call,
    cuts,
    decisions,
    everything,
    grown,
    parcels,
    rows,
    run,
    say,
    texts,
)
from turnstate import Message, codec
from turnstate.context.manager import StateManager
from turnstate.context.policy import Budget, Policy, Reduction
from turnstate.context.preface import Preface
from turnstate.context.window import Window
from turnstate.entry import Mask
from turnstate.errors import ContextOverflow
from turnstate.log.records import Eviction, contents
from turnstate.memory.handover import evicted
from turnstate.session import Session, SessionManager
from turnstate.stores.memory import MemoryStore
from turnstate.stores.values import Address
from turnstate.testing import FixedClock
from turnstate.toolspec import ToolSpec

NARROW, WIDE = Budget(700), Budget(100_000)


def as_bytes(window: Window) -> bytes:
    return codec.dump(window.messages)


async def reopened(harness: Harness, **settings: object) -> Session:
    return await (await harness.manager(**settings)).open("s1")


async def pure(
    session: Session, budget: Budget, policy: Policy | None = None, counter: str = "o200k_base"
) -> Window:
    """Make the window of the whole list, under the decisions that are recorded."""
    manager = StateManager(counter, policy)
    recorded = await decisions(session)
    tally = manager.tally(await session.messages(), budget, stored=True, decisions=recorded)
    return manager.window(tally, budget, preface=Preface(), decisions=recorded)


@run
async def test_a_window_follows_to_the_branch_that_another_handle_began(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    first = Message.user("first")
    await session.append(first, Message.assistant("dropped"))
    await session.window(WIDE)
    other = await reopened(harness)
    await other.rewind(to=first.id)
    await other.append(Message.assistant("instead"))
    await session.append(Message.user("more"))  # its number is the next one on both branches
    shown = [message.text for message in (await session.window(WIDE)).messages]
    assert shown == ["first", "instead", "more"]


@pytest.mark.req("C8", "C9", "G5")
@run
async def test_a_cut_is_written_once_and_found_by_every_handle(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    said = await grown(session, 30)
    version = session.version
    window = await session.window(NARROW)
    assert [cut.id for cut in await cuts(session)] == [one.id for one in window.decisions]  # type: ignore[union-attr]
    assert session.version == version
    for handle in (session, await reopened(harness)):
        again = await handle.window(NARROW)
        assert again.decisions == ()
        assert as_bytes(again) == as_bytes(window) == as_bytes(await pure(session, NARROW))
    assert await session.messages() == said


@pytest.mark.req("C9")
@run
async def test_a_preview_shows_the_window_and_writes_nothing(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    await grown(session, 30)
    before = await everything(session)
    preview = await session.preview(NARROW)
    assert preview.decisions
    assert await everything(session) == before
    assert as_bytes(await session.window(NARROW)) == as_bytes(preview)


@pytest.mark.req("G5", "C8")
@run
async def test_handles_that_need_a_cut_at_once_leave_one(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    await grown(session, 30)
    handles = [session] + [await reopened(harness) for _ in range(3)]
    windows = await asyncio.gather(*[handle.window(NARROW) for handle in handles])
    assert len(await cuts(session)) == 1
    assert len({as_bytes(window) for window in windows}) == 1


@pytest.mark.req("G5")
@run
async def test_windows_and_appends_of_two_handles_never_get_in_each_others_way(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    other, version = await reopened(harness), 0

    async def talk() -> None:
        nonlocal version
        for number in range(60):
            message = Message.user(f"question {number} " + "word " * 30)
            version = (await session.append(message, expected_version=version)).version

    async def look() -> None:
        while version < 60:
            await other.window(NARROW)
            await asyncio.sleep(0)

    await asyncio.gather(talk(), look())
    assert len(await texts(session)) == 60
    assert as_bytes(await session.window(NARROW)) == as_bytes(await other.window(NARROW))
    assert [row.seq for row in await rows(session)] == list(range(1, len(await rows(session)) + 1))


@pytest.mark.req("G1")
@run
async def test_windows_that_are_asked_for_at_once_on_one_handle_are_alike(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    other = await reopened(harness)
    await grown(session, 4)
    await other.window(WIDE)
    for _ in range(5):
        await grown(session, 2)
        windows = await asyncio.gather(*[other.window(WIDE) for _ in range(4)])
        assert {as_bytes(window) for window in windows} == {as_bytes(await session.window(WIDE))}
    assert (await other.window(WIDE)).report.repairs == ()


@pytest.mark.req("G1", "G5")
@run
async def test_a_decision_is_not_written_on_a_path_that_grew_while_it_was_made_ready(
    harness: Harness,
) -> None:
    """Many decisions at once are made ready in a thread; what is appended meanwhile makes them old."""
    session = await (await harness.manager()).create(id="s1")
    await session.append(Message.user("go"), asks(*[call(number=number) for number in range(300)]))
    await session.append(Message.user("stop"))
    window, _ = await asyncio.gather(session.window(WIDE), session.append(Message.user("meanwhile")))
    written = await rows(session)
    first = next(row.seq for row in written if row.kind == "answer")
    seen = [row for row in written if row.kind == "message" and row.seq < first]
    assert seen[-1].id == window.messages[-1].id
    assert as_bytes(await session.window(WIDE)) == as_bytes(await (await reopened(harness)).window(WIDE))


@pytest.mark.req("C1")
@run
async def test_another_budget_is_planned_anew_and_the_old_cut_is_not_used(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    said = await grown(session, 30)
    await session.window(NARROW)
    for handle in (session, await reopened(harness)):
        assert [message.id for message in (await handle.window(WIDE)).messages] == [
            message.id for message in said
        ]
    partly = await reopened(harness)
    await partly.window(NARROW)  # it has loaded from the cut on
    assert [message.id for message in (await partly.window(WIDE)).messages] == [
        message.id for message in said
    ]
    small = await session.window(Budget(400))
    assert small.tokens <= 400
    assert as_bytes(await (await reopened(harness)).window(Budget(400))) == as_bytes(small)


@pytest.mark.req("C1", "C10")
@run
async def test_old_output_is_hidden_under_another_budget_than_that_of_the_last_cut(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    for number in range(6):
        one = call(number=number)
        await session.append(
            Message.user(f"look {number}"), asks(one), answers(answer(one, "line of output " * 120))
        )
        await session.append(Message.assistant("seen"))
    await session.window(Budget(800))
    assert await cuts(session)
    await grown(session, 6, words=100)
    window = await session.window(Budget(2_500))
    assert any(isinstance(decision, Mask) for decision in window.decisions)
    assert window.tokens <= 2_500
    assert as_bytes(await (await reopened(harness)).window(Budget(2_500))) == as_bytes(window)


@pytest.mark.req("B1", "C1", "E4")
@pytest.mark.parametrize("size", [200, 2_000, 3_500, 6_000, 40_000])
@run
async def test_a_count_that_was_stored_under_another_policy_misleads_nobody(
    harness: Harness, size: int
) -> None:
    sparing = Policy(reduction=Reduction(soft_tokens=60, hard_tokens=60))
    session = await (await harness.manager(policy=sparing)).create(id="s1")
    one = call()
    await session.append(
        Message.user("go"), asks(one), answers(answer(one, ("word " * 3 + "\n") * (size // 16)))
    )
    for policy in (Policy(), sparing, Policy(reduction=Reduction(soft_tokens=500, hard_tokens=900))):
        window = await (await reopened(harness, policy=policy)).window(WIDE)
        assert window.tokens == StateManager(policy=policy).count(window.messages).tokens
        assert as_bytes(window) == as_bytes(await pure(session, WIDE, policy))


@pytest.mark.req("B1", "B2", "E2")
@pytest.mark.parametrize("text", ["a1", "1a,", "\n  \n", "é", "日本"])
@pytest.mark.parametrize("counter", ["estimate:claude", "o200k_base"])
@run
async def test_a_stored_count_is_used_only_where_nothing_can_be_reduced(
    harness: Harness, text: str, counter: str
) -> None:
    session = await (await harness.manager(counter=counter)).create(id="s1")
    for size in (1_300, 1_500, 1_700, 1_900, 2_300):
        one = call(size=size)
        await session.append(Message.user("go"), asks(one), answers(answer(one, text * (size // len(text)))))
        window = await session.window(Budget(8_000))
        whole = await pure(session, Budget(8_000), counter=counter)
        assert (as_bytes(window), window.tokens) == (as_bytes(whole), whole.tokens)


@pytest.mark.req("C5")
@run
async def test_a_window_that_cannot_fit_raises_and_the_session_stays_usable(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    await session.append(Message.user("word " * 2_000))
    before = await everything(session)
    with pytest.raises(ContextOverflow):
        await session.window(Budget(100))
    assert await everything(session) == before
    await session.append(Message.assistant("go on"))
    assert len((await session.window(WIDE)).messages) == 2


@pytest.mark.req("B3")
@run
async def test_tools_context_and_memory_stand_in_the_window_and_not_in_the_log(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1", system="You help.")
    await session.append(Message.user("go"))
    plain = await session.window(WIDE)
    tool = ToolSpec(name="ls", description="List files.", input_schema={"type": "object"})
    full = await session.window(WIDE, tools=[tool], context="a file", memory="a fact")
    assert [message.text for message in full.messages] == ["You help.", "a file", "a fact", "go"]
    assert full.tokens > plain.tokens + 10
    assert [row.kind for row in await rows(session)] == ["prompt", "message"]
    assert as_bytes(await session.window(WIDE)) == as_bytes(plain)


@pytest.mark.req("F3")
@run
async def test_each_cut_leaves_a_parcel_of_what_left_with_it(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create(id="s1", user="u1")
    said, left = list[Message](), list[str]()
    for _ in range(4):
        said += await grown(session, 12)
        await session.window(NARROW)
    made = await cuts(session)
    assert len(made) >= 3
    for parcel in await parcels(sessions.store, "archive"):
        eviction = contents(parcel)
        assert isinstance(eviction, Eviction)
        row = await sessions.store.get(session._row.address)
        gone = await evicted(sessions.store, row, parcel.id, eviction)
        left += [message.id async for message in gone.messages]
    kept = [message.id for message in said]
    assert sorted(left) == sorted(kept[: kept.index(made[-1].kept_from)])


@pytest.mark.req("F3")
@run
async def test_cuts_under_changing_budgets_leave_nothing_unarchived(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create(id="s1")
    said, left = list[Message](), set[str]()
    for size in (700, 2_000, 500, 1_200, 700):
        said += await grown(session, 15)
        await session.window(Budget(size))
    for parcel in await parcels(sessions.store, "archive"):
        eviction = contents(parcel)
        assert isinstance(eviction, Eviction)
        row = await sessions.store.get(session._row.address)
        gone = await evicted(sessions.store, row, parcel.id, eviction)
        left |= {message.id async for message in gone.messages}
    kept = [message.id for message in said]
    assert left >= set(kept[: kept.index((await cuts(session))[-1].kept_from)])


@pytest.mark.req("C9")
@run
async def test_a_session_that_lives_long_holds_no_more_than_it_shows(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    for _ in range(16):
        await session.append(*[Message.user(f"word {number}") for number in range(100)])
        await session.window(NARROW)
    loaded = session._handle.windows.known
    assert loaded is None or len(loaded.messages) < 1_300
    window = await session.window(NARROW)
    assert as_bytes(window) == as_bytes(await (await reopened(harness)).window(NARROW))


@pytest.mark.req("C3", "C8")
@run
async def test_a_cut_that_begins_with_a_late_result_is_opened_as_it_was(harness: Harness) -> None:
    """What is kept first is then a text that stands for a result, and has no entry of its own."""
    sessions = await harness.manager(policy=Policy(lock_turns=1, lock_turns_at_most=1, hard_lock=1))
    session = await sessions.create(id="s1")
    lost = [call(number=number) for number in range(12)]
    await session.append(Message.user("go"), asks(*lost))
    await session.append(Message.user("never mind"))
    notes = 0
    for number, one in enumerate(lost):
        await session.append(answers(answer(one, f"late {number} " + "word " * 60)))
        window = await session.window(Budget(400))
        fresh = await (await harness.manager(policy=sessions.policy)).open("s1")
        assert as_bytes(await fresh.window(Budget(400))) == as_bytes(window)
        known, part = {message.id for message in await session.messages()}, fresh._handle.windows.known
        assert part is not None
        if part.cut and part.cut.kept_from not in known:
            notes += 1
            assert not part.whole
    assert notes


@pytest.mark.req("C8")
@run
async def test_the_reused_prefix_begins_anew_with_each_handle(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1", system="You help.")
    await grown(session, 3)
    first = await session.window(WIDE)
    assert first.reused_prefix_tokens == 0
    await grown(session, 1)
    second = await session.window(WIDE)
    assert second.reused_prefix_tokens == first.tokens - 3
    fresh = await reopened(harness)
    assert (await fresh.window(WIDE)).reused_prefix_tokens == 0
    assert (await fresh.window(WIDE)).reused_prefix_tokens == second.tokens
    await session.rewind(to=(await session.messages())[2].id)
    assert (await session.window(WIDE)).reused_prefix_tokens == 0


def test_a_session_manager_takes_the_policy_of_whoever_opens_it() -> None:
    async def scene() -> None:
        async with await SessionManager.open("memory:", policy=Policy(strict=True)) as sessions:
            assert sessions.policy.strict

    asyncio.run(scene())


class ForgetfulStore(MemoryStore):
    """A store that can be set back, like a server that synced too late, and that reports it."""

    def keep(self) -> None:
        self._kept = deepcopy(self._state.sessions)

    def go_back(self) -> None:
        self._state.sessions = deepcopy(self._kept)

    def lost(self, at: Address) -> str:
        return f"entry 3 of {at.session} is missing"


@pytest.mark.req("G6")
@pytest.mark.parametrize("later", [(), ("x",), ("x", "y"), ("x", "y", "z")])
def test_a_window_does_not_show_what_was_lost_whatever_was_written_since(later: Sequence[str]) -> None:
    async def write_over() -> None:
        store, clock = ForgetfulStore(), FixedClock()
        session = await SessionManager(store, clock=clock).create(id="s1")
        await say(session, "a")
        store.keep()
        await say(session, "b", "c")
        await session.window(WIDE)
        store.go_back()
        clock.advance(1)
        other = await SessionManager(store, clock=clock).open("s1")
        await say(other, *later)
        window = await session.window(WIDE)
        assert [message.text for message in window.messages] == ["a", *later]

    asyncio.run(write_over())


@pytest.mark.req("G6")
def test_what_a_store_reports_as_lost_is_a_notice() -> None:
    async def notices() -> None:
        session = await SessionManager(ForgetfulStore()).create(id="s1")
        (notice,) = session.notices
        assert "lost acknowledged data: entry 3 of s1 is missing" in notice
        assert (await SessionManager(MemoryStore()).create(id="s1")).notices == ()

    asyncio.run(notices())
