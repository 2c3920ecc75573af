"""Operations when things go wrong: a death, a lost reply, another writer, a handle that knew less."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import pytest

from tests.harness.thoroughness import runs
from tests.unit.session.session_fixtures import Harness, answer, answers, asks, call, entries, run
from tests.unit.session.state_fixtures import BUDGET, elsewhere, plain, prompts, reloaded, restored, said
from turnstate import Message
from turnstate.codec import decode_entry
from turnstate.context.cut import Strategy
from turnstate.entry import Restore, Tangent
from turnstate.errors import InputError, NothingToUndo
from turnstate.log.tangents import Bring
from turnstate.log.undo import undo_restore
from turnstate.session import Session
from turnstate.stores.values import Change, Receipt, Span

ON_DISK = True

END = 2**31 - 1
MOST_WRITES = 20

Act = Callable[[], Awaitable[None]]

BRINGS = [
    pytest.param(None, id="with nothing"),
    pytest.param("tail", id="with its tail"),
    pytest.param("summary", id="with a summary"),
]


class Hitch:
    """Steps in at one write of a session's store: before it is done, or when it is done and not yet told."""

    def __init__(self, session: Session, number: int, act: Act, *, when_done: bool = False) -> None:
        self.happened, self._write = False, session._writer.store.commit
        self._number, self._act, self._when_done = number, act, when_done
        self._store = session._writer.store

    def __enter__(self) -> Hitch:
        self._store.commit = self._commit  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self._store.commit = self._write  # type: ignore[method-assign]

    async def _commit(self, change: Change) -> Receipt:
        self._number -= 1
        if self._number:
            return await self._write(change)
        self.happened = True
        receipt = await self._write(change) if self._when_done else None
        await self._act()
        return receipt or await self._write(change)


async def broken() -> None:
    raise ConnectionError("the connection broke")


async def tried(work: Awaitable[object]) -> None:
    """Do something, whether it breaks off, or what was done before it did."""
    with contextlib.suppress(ConnectionError, InputError):
        await work


async def all_texts(session: Session) -> list[str]:
    """Return what was said on all branches."""
    store, at = session._writer.store, session._row.address
    logs = [await store.read(at, Span(branch.id, 1, END)) for branch in await store.branches(at)]
    found = [decode_entry(row.kind, row.body) for log in logs for row in log]
    return [entry.text for entry in found if isinstance(entry, Message)]


async def in_a_tangent(harness: Harness) -> Session:
    """Return a compacted session with an open tangent of two exchanges."""
    session = await (await harness.manager()).create()
    await said(session, "a", "b", "c", "d")
    await session.compact(BUDGET, strategy=Strategy(keep=1))
    await session.begin_tangent()
    await said(session, "aside 1", "aside 2")
    return session


async def shown(session: Session) -> list[Message]:
    return list((await session.preview(BUDGET)).messages)


async def assert_seen_alike(harness: Harness, session: Session) -> None:
    """Fail if a handle shows something else than one that was opened just now."""
    fresh = await elsewhere(harness, session)
    assert await shown(session) == await shown(fresh)
    assert (await session.snapshot()).messages == (await fresh.snapshot()).messages


@pytest.mark.req("I1", "D5")
@pytest.mark.parametrize("clears", [False, True], ids=["compaction", "clearing"])
@run
async def test_a_handle_that_undid_something_shows_what_a_new_one_shows(
    harness: Harness, clears: bool
) -> None:
    first = await (await harness.manager()).create()
    await said(first, "a", "b", "c", "d")
    before = await shown(first)
    await (first.clear() if clears else first.compact(BUDGET, strategy=Strategy(keep=1)))
    session = await elsewhere(harness, first)
    await session.snapshot()  # it holds what comes after the cut, and no more
    await session.preview(BUDGET)
    await session.undo()
    assert len((await session.snapshot()).messages) == 8
    assert await shown(session) == before
    await assert_seen_alike(harness, session)
    await assert_seen_alike(harness, first)


@pytest.mark.req("I1", "D5")
@run
async def test_a_handle_that_undid_and_compacted_shows_what_a_new_one_shows(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await said(session, *"abcdef")
    await session.clear()
    session = await elsewhere(harness, session)
    await shown(session)
    await said(session, "g")
    await session.undo()
    await session.compact(BUDGET, strategy=Strategy(keep=4))
    kept = [message.text for message in await shown(session) if message.role == "user"]
    assert kept == ["d", "e", "f", "g"]
    await assert_seen_alike(harness, session)


@pytest.mark.req("I1", "I8")
@pytest.mark.parametrize("answered", ["no", "by the tool", "by the assistant"])
@run
async def test_a_snapshot_after_a_clearing_is_the_same_on_every_handle(
    harness: Harness, answered: str
) -> None:
    session = await (await harness.manager()).create()
    one = call()
    await session.append(Message.user("Look."), asks(one))
    if answered != "no":
        await session.append(answers(answer(one)))
    if answered == "by the assistant":
        await session.append(Message.assistant("Nothing."))
    assert (await session.snapshot()).messages
    await session.clear()
    for handle in (session, await elsewhere(harness, session)):
        assert list((await handle.snapshot()).messages) == []
        assert await shown(handle) == []
    await assert_seen_alike(harness, session)


@pytest.mark.req("G5", "G6", "J1", "J2")
@pytest.mark.parametrize("when_done", [False, True], ids=["before it was done", "before it was told"])
@pytest.mark.parametrize("bring", BRINGS)
@run
async def test_leaving_a_tangent_is_one_write_and_can_be_repeated(
    harness: Harness, bring: Bring | None, when_done: bool
) -> None:
    session = await in_a_tangent(harness)
    (made,) = [branch for branch in await session.branches() if branch.operation == "tangent"]
    with Hitch(session, 1, broken, when_done=when_done), pytest.raises(ConnectionError):
        await session.leave_tangent(bring)
    other = await reloaded(harness, session, last=100)
    assert other.is_in_tangent_mode() is not when_done
    assert [one.opening for one in other.kept_tangents()] == ["aside 1"] * when_done
    await assert_seen_alike(harness, session)
    with Hitch(session, 2, broken):  # there is no second write
        assert await session.leave_tangent(bring) == (None if when_done else made.name)
    assert [one.opening for one in await session.tangents()] == ["aside 1"]
    (left,) = [entry for entry in await entries(session) if isinstance(entry, Tangent)]
    assert (left.name, left.branch) == (made.name, made.id)
    said_in_all = await all_texts(session)
    assert said_in_all.count("aside 2") == (2 if bring == "tail" else 1)
    await assert_seen_alike(harness, session)
    await session.reopen_tangent(made.name)
    assert prompts(await reloaded(harness, session))[-2:] == ["aside 1", "aside 2"]


@pytest.mark.req("G5", "G6", "D5", "J1")
@pytest.mark.parametrize("when_done", [False, True], ids=["before it was done", "before it was told"])
@run
async def test_undoing_an_exit_is_one_write_and_never_loses_the_tangent(
    harness: Harness, when_done: bool
) -> None:
    session = await in_a_tangent(harness)
    inside = plain(await session.conversation())
    await session.leave_tangent()
    with Hitch(session, 1, broken, when_done=when_done), pytest.raises(ConnectionError):
        await session.undo()
    other = await reloaded(harness, session, last=100)
    assert other.is_in_tangent_mode() is when_done
    assert [one.opening for one in other.kept_tangents()] == ["aside 1"] * (not when_done)
    if not when_done:
        with Hitch(session, 2, broken):  # there is no second write
            assert await session.undo() == "tangent exit"
    assert plain(await reloaded(harness, session)) == inside
    assert await undone(await elsewhere(harness, session)) == ["tangent", "compact"]


async def undone(session: Session) -> list[str]:
    """Undo until there is nothing left, and say what it was."""
    found = list[str]()
    while len(found) < MOST_WRITES:
        try:
            found.append(await session.undo())
        except NothingToUndo:
            return found
    pytest.fail("undo leads in a circle")


@pytest.mark.req("G5", "G6", "D5")
@pytest.mark.parametrize("when_done", [False, True], ids=["before it was done", "before it was told"])
@pytest.mark.parametrize("bring", BRINGS)
@run
async def test_undo_never_gets_stuck_wherever_the_writing_broke_off(
    harness: Harness, bring: Bring | None, when_done: bool
) -> None:
    for number in range(1, MOST_WRITES):
        session = await in_a_tangent(harness)
        before = [message.id for message in (await session.messages())[:8]]
        with Hitch(session, number, broken, when_done=when_done) as hitch:
            await tried(said(session, "aside 3"))
            await tried(session.leave_tangent(bring))
            await tried(session.undo(only="tangent exit"))
            await tried(session.begin_tangent())
            await tried(said(session, "nested"))
            await tried(session.leave_tangent(bring))
            await tried(session.leave_tangent(bring))
            await tried(session.clear())
        await assert_seen_alike(harness, session)
        other = await elsewhere(harness, session)
        assert (await undone(other))[-1] == "compact"
        assert [message.id for message in (await other.messages())[:8]] == before
        assert (await other.conversation()).latest_summary is None
        await assert_seen_alike(harness, session)
        if not hitch.happened:
            assert number > 8  # every write was broken once
            return
    pytest.fail("a script that never ends")


@pytest.mark.req("D5", "J1")
@pytest.mark.parametrize("on", ["its branch", "main"])
@run
async def test_undoing_an_exit_undoes_just_that_while_others_write(harness: Harness, on: str) -> None:
    session = await in_a_tangent(harness)
    await session.leave_tangent()
    other = await elsewhere(harness, session)

    async def meanwhile() -> None:
        if on == "main":
            await other.append(Message.user("meanwhile"))
        else:  # the tangent goes on elsewhere, and is left again
            assert await other.undo() == "tangent exit"
            await said(other, "meanwhile")
            await other.leave_tangent()

    with Hitch(session, 1, meanwhile) as hitch:
        assert await session.undo() == "tangent exit"
    assert hitch.happened
    loaded = await reloaded(harness, session)
    assert loaded.is_in_tangent_mode()
    assert prompts(loaded)[-2:] == (["aside 1", "aside 2"] if on == "main" else ["aside 2", "meanwhile"])
    assert (await all_texts(session)).count("meanwhile") == 1
    await assert_seen_alike(harness, session)
    assert await undone(other) == ["tangent", "compact"]


async def newest_restore(session: Session) -> int:
    """Return the number of the newest restore of the path."""
    return max(one.seq for one in await session.entries(kinds=["restore"]))


@pytest.mark.req("I1", "J1")
@run
async def test_a_restore_at_the_beginning_of_a_tangent_is_undone(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await said(session, "a")
    await session.begin_tangent()
    await session.operate(restored(session.info.seq))
    await said(session, "x")
    await session.operate(undo_restore(await newest_restore(session)))
    assert (await session.conversation()).is_in_tangent_mode()
    await session.leave_tangent()
    loaded = await reloaded(harness, session, last=100)
    assert prompts(loaded) == ["a"]
    assert not any(isinstance(entry, Tangent | Restore) for entry in await entries(session))


@pytest.mark.req("J2")
@pytest.mark.parametrize("undoes", [False, True], ids=["as restored", "restore undone"])
@run
async def test_a_tangent_that_a_restore_went_back_in_is_taken_up_where_it_was_left(
    harness: Harness, undoes: bool
) -> None:
    session = await (await harness.manager()).create()
    await said(session, "a")
    name = await session.begin_tangent()
    await said(session, "t1", "t2")
    await session.operate(restored(session.info.seq - 2))
    await said(session, "t3")
    if undoes:
        await session.operate(undo_restore(await newest_restore(session)))
    inside = plain(await session.conversation())
    await session.leave_tangent()
    other = await elsewhere(harness, session)
    assert [(one.name, one.opening) for one in await other.tangents()] == [(name, "t1")]
    await other.reopen_tangent(name)
    assert prompts(await other.conversation()) == ["a", "t1", "t2" if undoes else "t3"]
    assert plain(await reloaded(harness, session)) == inside


@pytest.mark.req("J2")
@run
async def test_a_tangent_that_began_with_a_restore_is_listed_by_its_first_words(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await said(session, "a")
    await session.begin_tangent()
    await session.operate(restored(session.info.seq))
    await said(session, "t")
    await session.leave_tangent()
    assert [one.opening for one in (await reloaded(harness, session, last=9)).kept_tangents()] == ["t"]


@pytest.mark.req("J2")
@run
async def test_tangents_that_were_left_before_a_rewind_are_there_again_when_it_is_undone(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create()
    await said(session, "a")
    await session.begin_tangent()
    await said(session, "early")
    await session.leave_tangent()
    await said(session, "b")
    kept = await session.tangents()
    await session.rewind(to=(await session.messages())[1].id)
    assert await session.tangents() == []
    await session.undo()
    assert await session.tangents() == kept
    assert [one.opening for one in kept] == ["early"]


@pytest.mark.req("J4", "J2")
@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
@run
async def test_very_many_nested_tangents_are_left_one_by_one(harness: Harness) -> None:
    depth = runs(100, long=600)
    session = await (await harness.manager()).create()
    await said(session, "a")
    for number in range(depth):
        await session.begin_tangent()
        await session.note(f"level {number}")
    await said(session, "deep")
    loaded = await reloaded(harness, session)
    assert (prompts(loaded), len(loaded.open_tangents)) == (["a", "deep"], depth)
    assert loaded.tangent_state is not None
    assert [one.user.prompt for one in loaded.tangent_state.main_history] == ["a"]
    for _ in range(depth):
        assert await session.leave_tangent("tail")
    assert await session.leave_tangent() is None
    assert prompts(await session.conversation()) == ["a", "deep"]
    assert len(await session.tangents()) == depth


@pytest.mark.req("J2")
@run
async def test_kept_tangents_are_listed_in_the_order_of_their_beginnings_by_everybody(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create()
    await said(session, "a")
    first = await session.begin_tangent()
    await said(session, "first")
    await session.leave_tangent()
    await session.begin_tangent()
    await said(session, "second")
    await session.leave_tangent()
    await session.reopen_tangent(first)
    await session.begin_tangent()
    await said(session, "third, in the first")
    await session.leave_tangent()
    await session.leave_tangent()
    for handle in (session, await elsewhere(harness, session)):
        assert [kept.opening for kept in await handle.tangents()] == [
            "first",
            "second",
            "third, in the first",
        ]


@pytest.mark.req("J1", "J2")
@pytest.mark.parametrize("inside", [False, True], ids=["from behind it", "from inside it"])
@run
async def test_a_restore_behind_the_beginning_of_a_tangent_leads_out_of_it(
    harness: Harness, inside: bool
) -> None:
    session = await (await harness.manager()).create()
    await said(session, "a")
    begun, before = session.info.seq, plain(await session.conversation())
    name = await session.begin_tangent()
    await said(session, "aside")
    if not inside:
        await session.leave_tangent()
        await said(session, "b")
    await session.operate(restored(begun))
    loaded = await reloaded(harness, session)
    assert plain(loaded) == before
    assert not loaded.is_in_tangent_mode()
    await session.operate(undo_restore(await newest_restore(session)))
    if not inside:
        await session.reopen_tangent(name)
    assert prompts(await reloaded(harness, session)) == ["a", "aside"]
