"""Writing a state when things go wrong: a death, a lost reply, another writer, a handle that knew less."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import pytest

from tests.harness.thoroughness import runs
from tests.unit.session.session_fixtures import Harness, answer, asks, call, entries, everything, run, texts
from tests.unit.session.state_fixtures import BUDGET, elsewhere, plain, prompts, reloaded, said
from turnstate import Message
from turnstate.codec import decode_entry
from turnstate.context.cut import Strategy
from turnstate.conversation import ConversationState
from turnstate.entry import Tangent
from turnstate.errors import Conflict, SessionError
from turnstate.session import Session
from turnstate.stores.values import Change, Receipt, Span

ON_DISK = True

END = 2**31 - 1
MOST_WRITES = 20

Act = Callable[[], Awaitable[None]]
Leave = Callable[[ConversationState], None]

LEAVINGS = [
    pytest.param(ConversationState.exit_tangent_mode, id="with nothing"),
    pytest.param(ConversationState.exit_tangent_mode_with_tail, id="with its tail"),
    pytest.param(ConversationState.exit_tangent_mode_with_summary, id="with a summary"),
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


async def tried(session: Session, state: ConversationState) -> None:
    """Write a state, whether that works or not."""
    with contextlib.suppress(ConnectionError):
        await session.commit(state)


async def all_texts(session: Session) -> list[str]:
    """Return what was said on all branches."""
    store, at = session._writer.store, session._row.address
    logs = [await store.read(at, Span(branch.id, 1, END)) for branch in await store.branches(at)]
    found = [decode_entry(row.kind, row.body) for log in logs for row in log]
    return [entry.text for entry in found if isinstance(entry, Message)]


async def left_a_tangent(harness: Harness, leave: Leave) -> tuple[Session, ConversationState]:
    """Return a compacted session, and a state that went aside and came back; nothing of that is written."""
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "a", "b", "c", "d")
    await session.commit(state)
    await session.compact(BUDGET, strategy=Strategy(keep=1))
    state = await session.conversation()
    state.enter_tangent_mode()
    said(state, "aside 1", "aside 2")
    leave(state)
    said(state, "e")
    return session, state


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
async def test_a_handle_whose_state_undid_something_shows_what_a_new_one_shows(
    harness: Harness, clears: bool
) -> None:
    first = await (await harness.manager()).create()
    state = await first.conversation()
    said(state, "a", "b", "c", "d")
    await first.commit(state)
    before = await shown(first)
    if clears:
        state.clear()
        await first.commit(state)
    else:
        await first.compact(BUDGET, strategy=Strategy(keep=1))
    session = await elsewhere(harness, first)
    await session.snapshot()  # it holds what comes after the cut, and no more
    await session.preview(BUDGET)
    state = await session.conversation()
    state.undo()
    await session.commit(state)
    assert len((await session.snapshot()).messages) == 8
    assert await shown(session) == before
    await assert_seen_alike(harness, session)
    await assert_seen_alike(harness, first)


@pytest.mark.req("I1", "D5")
@run
async def test_a_handle_whose_state_undid_and_compacted_in_one_write_shows_what_a_new_one_shows(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, *"abcdef")
    state.clear()
    await session.commit(state)
    session = await elsewhere(harness, session)
    await shown(session)
    state = await session.conversation()
    said(state, "g")
    state.undo()
    plan = state.plan_compaction(Strategy(keep=4))
    assert plan is not None
    state.compact(plan)
    await session.commit(state)
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
    state = await session.conversation()
    one = call()
    state.set_next_user_message("Look.")
    state.push_assistant_message(asks(one))
    if answered != "no":
        state.add_tool_results([answer(one)])
    if answered == "by the assistant":
        state.push_assistant_message(Message.assistant("Nothing."))
    await session.commit(state)
    assert (await session.snapshot()).messages
    state.clear()
    await session.commit(state)
    for handle in (session, await elsewhere(harness, session)):
        assert list((await handle.snapshot()).messages) == []
    await assert_seen_alike(harness, session)


@pytest.mark.req("G6", "J2")
@pytest.mark.parametrize("leave", LEAVINGS)
@run
async def test_whoever_reads_that_a_tangent_was_left_finds_it_wherever_the_writing_broke_off(
    harness: Harness, leave: Leave
) -> None:
    for number in range(1, MOST_WRITES):
        session, state = await left_a_tangent(harness, leave)
        with Hitch(session, number, broken) as hitch:
            await tried(session, state)
        if not hitch.happened:
            return
        loaded = await reloaded(harness, session)
        while loaded.is_in_tangent_mode():
            loaded.exit_tangent_mode()
        names = {entry.name for entry in loaded.head.entries if isinstance(entry, Tangent)}
        assert {one.name for one in loaded.kept_tangents()} >= names
        if names or "aside 2" in prompts(loaded):
            assert [one.exchanges for one in loaded.kept_tangents()] == [2]
            loaded.reopen_tangent(loaded.kept_tangents()[0].name)
            assert prompts(loaded)[-2:] == ["aside 1", "aside 2"]
    pytest.fail("a commit that never ends")


async def undone(session: Session) -> list[str]:
    """Undo until there is nothing left, and say what it was."""
    found = list[str]()
    while len(found) < MOST_WRITES:
        try:
            found.append(await session.undo())
        except SessionError as error:
            assert "nothing to undo" in str(error)  # noqa: PT017
            return found
    pytest.fail("undo leads in a circle")


@pytest.mark.req("G6", "D5")
@pytest.mark.parametrize("leave", LEAVINGS)
@run
async def test_undo_never_gets_stuck_wherever_the_writing_of_a_tangent_broke_off(
    harness: Harness, leave: Leave
) -> None:
    for number in range(1, MOST_WRITES):
        session, state = await left_a_tangent(harness, leave)
        with Hitch(session, number, broken) as hitch:
            await tried(session, state)
        other = await elsewhere(harness, session)
        assert "compact" in await undone(other)
        assert (await other.conversation()).latest_summary is None
        if not hitch.happened:
            return
    pytest.fail("a commit that never ends")


@pytest.mark.req("G5", "G6")
@pytest.mark.parametrize("when_done", [False, True], ids=["before it was done", "before it was told"])
@pytest.mark.parametrize("leave", LEAVINGS)
@run
async def test_a_commit_that_broke_off_anywhere_is_given_again_and_done_once(
    harness: Harness, leave: Leave, when_done: bool
) -> None:
    for number in range(1, MOST_WRITES):
        session, state = await left_a_tangent(harness, leave)
        with Hitch(session, number, broken, when_done=when_done) as hitch:
            await tried(session, state)
        await session.commit(state)
        loaded = await reloaded(harness, session)
        assert plain(loaded) == plain(state)
        assert loaded.kept_tangents() == state.kept_tangents()
        assert await session.messages() == state.messages
        said_in_all = await all_texts(session)
        assert [said_in_all.count(one) for one in ("aside 1", "answer to aside 1", "e")] == [1, 1, 1]
        assert await session.commit(state) is None
        await assert_seen_alike(harness, session)
        if not hitch.happened:
            return
    pytest.fail("a commit that never ends")


@pytest.mark.req("G5")
@run
async def test_after_a_lost_reply_a_state_goes_on(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "a")
    with Hitch(session, 1, broken, when_done=True), pytest.raises(ConnectionError):
        await session.commit(state)
    said(state, "b")
    await session.commit(state)
    assert await texts(session) == ["a", "answer to a", "b", "answer to b"]
    assert plain(await reloaded(harness, session)) == plain(state)


@pytest.mark.req("G5")
@run
async def test_after_a_lost_reply_a_state_that_was_overtaken_is_still_refused(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "a")
    await session.commit(state)
    said(state, "b")
    with Hitch(session, 1, broken, when_done=True), pytest.raises(ConnectionError):
        await session.commit(state)
    other = await elsewhere(harness, session)
    await other.append(Message.user("meanwhile"))
    said(state, "c")
    before = await everything(other)
    with pytest.raises(Conflict):
        await session.commit(state)
    assert await everything(other) == before
    assert await texts(other) == ["a", "answer to a", "b", "answer to b", "meanwhile"]


@pytest.mark.req("G5")
@run
async def test_after_a_write_that_was_not_done_a_state_that_was_overtaken_is_still_refused(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "a")
    with Hitch(session, 1, broken), pytest.raises(ConnectionError):
        await session.commit(state)
    other = await elsewhere(harness, session)
    await other.append(Message.user("meanwhile"))
    before = await everything(other)
    with pytest.raises(SessionError):
        await session.commit(state)
    assert await everything(other) == before


@pytest.mark.req("D5", "J1")
@pytest.mark.parametrize("number", [1, 2])
@run
async def test_undoing_that_a_tangent_was_left_undoes_just_that_while_others_write(
    harness: Harness, number: int
) -> None:
    session, state = await left_a_tangent(harness, ConversationState.exit_tangent_mode)
    await session.commit(state)
    other = await elsewhere(harness, session)

    async def meanwhile() -> None:
        await other.append(Message.user("meanwhile"))

    with Hitch(session, number, meanwhile) as hitch:
        assert await session.undo() == "tangent exit"
    loaded = await reloaded(harness, session)
    assert loaded.is_in_tangent_mode()
    assert loaded.latest_summary is not None
    assert prompts(loaded)[-2:] == ["aside 1", "aside 2"]
    assert (await all_texts(session)).count("meanwhile") == hitch.happened
    await assert_seen_alike(harness, session)


@pytest.mark.req("I1", "J1")
@run
async def test_a_state_that_went_back_over_a_tangent_it_restored_can_be_written(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "a")
    state.begin_tangent()
    state.restore_moment(len(state.head.entries))
    said(state, "x")
    state.undo_restore()
    state.exit_tangent_mode()
    await session.commit(state)
    loaded = await reloaded(harness, session)
    assert plain(loaded) == plain(state)
    assert prompts(loaded) == ["a"]
    assert loaded.kept_tangents() == state.kept_tangents()


def reopened(state: ConversationState) -> list[str | None]:
    """Take the one tangent up that was left, and give what it shows."""
    (kept,) = state.kept_tangents()
    state.reopen_tangent(kept.name)
    return prompts(state)


@pytest.mark.req("J2")
@pytest.mark.parametrize("undoes", [False, True], ids=["as restored", "restore undone"])
@pytest.mark.parametrize("commits", [True, False], ids=["written in it", "written after it"])
@run
async def test_a_tangent_that_a_restore_went_back_in_is_taken_up_where_it_was_left(
    harness: Harness, commits: bool, undoes: bool
) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "a")
    state.begin_tangent()
    said(state, "t1", "t2")
    if commits:
        await session.commit(state)
    state.restore_moment(len(state.head.entries) - 2)
    said(state, "t3")
    if undoes:
        state.undo_restore()
    state.exit_tangent_mode()
    await session.commit(state)
    loaded = await reloaded(harness, session)
    assert loaded.kept_tangents() == state.kept_tangents()
    assert reopened(loaded) == reopened(state) == ["a", "t1", "t2" if undoes else "t3"]
    await session.commit(state)
    assert plain(await reloaded(harness, session)) == plain(state)


@pytest.mark.req("J2")
@run
async def test_a_tangent_that_began_with_a_restore_is_listed_the_same_when_loaded(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "a")
    await session.commit(state)
    state.begin_tangent()
    state.restore_moment(len(state.head.entries))
    said(state, "t")
    state.exit_tangent_mode()
    await session.commit(state)
    loaded = await reloaded(harness, session)
    assert [(one.exchanges, one.opening) for one in loaded.kept_tangents()] == [(1, "t")]
    assert loaded.kept_tangents() == state.kept_tangents()


@pytest.mark.req("J2")
@run
async def test_tangents_that_were_left_before_a_rewind_are_there_again_when_it_is_undone(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "a")
    state.begin_tangent()
    said(state, "early")
    state.exit_tangent_mode()
    said(state, "b")
    await session.commit(state)
    await session.rewind(to=state.messages[1].id)
    assert (await session.conversation()).kept_tangents() == []
    await session.undo()
    assert (await session.conversation()).kept_tangents() == state.kept_tangents()


@pytest.mark.req("J4", "J2")
@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
@run
async def test_very_many_nested_tangents_are_written_and_loaded(harness: Harness) -> None:
    depth = runs(300, long=600)
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "a")
    for number in range(depth):
        state.begin_tangent()
        state.append_transcript(f"level {number}")
    said(state, "deep")
    await session.commit(state)
    loaded = await reloaded(harness, session)
    assert plain(loaded) == plain(state)
    for _ in range(depth):
        assert loaded.is_in_tangent_mode()
        loaded.exit_tangent_mode()
    assert prompts(loaded) == ["a"]
    assert len(loaded.kept_tangents()) == depth


@pytest.mark.req("J2")
@run
async def test_that_a_tangent_was_left_names_the_branch_it_was_left_on(harness: Harness) -> None:
    session, state = await left_a_tangent(harness, ConversationState.exit_tangent_mode)
    await session.commit(state)
    (left,) = [entry for entry in await entries(session) if isinstance(entry, Tangent)]
    (made,) = [branch for branch in await session.branches() if branch.operation == "tangent"]
    assert (left.name, left.branch) == (made.name, made.id)


@pytest.mark.req("J2")
@run
async def test_kept_tangents_are_listed_in_the_order_of_their_beginnings_by_everybody(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "a")
    first = state.begin_tangent()
    said(state, "first")
    state.exit_tangent_mode()
    state.begin_tangent()
    said(state, "second")
    state.exit_tangent_mode()
    state.reopen_tangent(first)
    state.begin_tangent()
    said(state, "third, in the first")
    state.exit_tangent_mode()
    state.exit_tangent_mode()
    await session.commit(state)
    for one in (state, await reloaded(harness, session)):
        assert [kept.opening for kept in one.kept_tangents()] == ["first", "second", "third, in the first"]


@pytest.mark.req("J1", "J2")
@pytest.mark.parametrize("inside", [False, True], ids=["from behind it", "from inside it"])
@run
async def test_a_restore_behind_the_beginning_of_a_tangent_leaves_the_same_to_everybody(
    harness: Harness, inside: bool
) -> None:
    session = await (await harness.manager()).create()
    state = await session.conversation()
    said(state, "a")
    begun = len(state.head.entries)
    state.begin_tangent()
    said(state, "aside")
    if not inside:
        state.exit_tangent_mode()
        said(state, "b")
    state.restore_moment(begun)
    await session.commit(state)
    loaded = await reloaded(harness, session)
    assert plain(loaded) == plain(state)
    assert loaded.kept_tangents() == state.kept_tangents()
    for kept in state.kept_tangents():
        for one in (state, loaded):
            one.reopen_tangent(kept.name)
        assert prompts(loaded) == prompts(state)
        for one in (state, loaded):
            one.exit_tangent_mode()
        assert prompts(loaded) == prompts(state)


@pytest.mark.req("G6", "J2")
@pytest.mark.parametrize("restores", [False, True], ids=["as it went", "restored in between"])
@run
async def test_of_tangents_one_after_the_other_each_is_written_before_it_is_left(
    harness: Harness, restores: bool
) -> None:
    for number in range(1, MOST_WRITES):
        session = await (await harness.manager()).create()
        state = await session.conversation()
        said(state, "a")
        for name in ("first", "second"):
            state.begin_tangent()
            said(state, f"{name} 1", f"{name} 2")
            if restores:
                state.restore_moment(len(state.head.entries) - 2)
                said(state, f"{name} 3")
            state.exit_tangent_mode()
            said(state, f"after the {name}")
        state.begin_tangent()
        said(state, "third")
        with Hitch(session, number, broken) as hitch:
            await tried(session, state)
        if not hitch.happened:
            break
        loaded = await reloaded(harness, session)
        main = loaded.head
        while main.parent is not None:
            main = main.parent
        left = [entry for entry in main.entries if isinstance(entry, Tangent)]
        made = {branch.id for branch in await session.branches() if branch.operation != "create"}
        assert {one.branch for one in left} <= made
        assert {one.name for one in left} <= {timeline.name for timeline in loaded.timelines}
    else:
        pytest.fail("a commit that never ends")
    loaded = await reloaded(harness, session)
    assert loaded.kept_tangents() == state.kept_tangents()
    for kept in state.kept_tangents():
        shown = list[list[str | None]]()
        for one in (state, loaded):
            one.reopen_tangent(kept.name)
            shown.append(prompts(one))
        assert shown[0] == shown[1]
