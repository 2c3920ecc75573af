"""Operations of several handles at once: none is lost, and none is done where it was not meant."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.session.session_fixtures import Harness, entries, everything, run, texts
from tests.unit.session.state_fixtures import elsewhere, prompts, reloaded, said
from turnstate import Message
from turnstate.context.cut import Strategy
from turnstate.conversation import FileLineTracker
from turnstate.entry import Note, SettingsChange
from turnstate.errors import Conflict, NotFound, NothingToUndo
from turnstate.session import Session
from turnstate.stores.values import Change, Receipt

ON_DISK = True

Operation = Callable[[Session], Awaitable[object]]

A = FileLineTracker(sha256="a", lines=1)
B = FileLineTracker(sha256="b", lines=2)


class Overtaken:
    """Lets another writer be faster than the next write of a session."""

    def __init__(self, session: Session, faster: Callable[[], Awaitable[object]]) -> None:
        self._store, self._faster = session._writer.store, faster
        self._commit = self._store.commit

    async def commit(self, change: Change) -> Receipt:
        self._store.commit = self._commit  # type: ignore[method-assign]
        await self._faster()
        return await self._commit(change)

    def __enter__(self) -> None:
        self._store.commit = self.commit  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        assert self._store.commit == self._commit, "nothing was written"


AT_THIS_HEAD: dict[str, Operation] = {
    "begin_tangent": lambda session: session.begin_tangent(),
    "leave_tangent": lambda session: session.leave_tangent(),
    "leave_tangent with the tail": lambda session: session.leave_tangent("tail"),
    "reopen_tangent": lambda session: _reopen(session),
    "clear": lambda session: session.clear(),
    "undo": lambda session: session.undo(),
}
"""Operations that were meant for the branch of the head."""

ANYWHERE: dict[str, Operation] = {
    "change_settings": lambda session: session.change_settings(extra={"by": "me"}),
    "record_lines": lambda session: session.record_lines({"/a": A}),
    "set_model": lambda session: session.set_model("gpt-4o"),
    "fork": lambda session: session.fork(),
    "note": lambda session: session.note("mine"),
    "set_system": lambda session: session.set_system("mine"),
}
"""Operations that hold wherever the head is."""


async def _reopen(session: Session) -> None:
    await session.reopen_tangent((await session.tangents())[0].name)


async def in_a_tangent(harness: Harness) -> Session:
    """Return a session in a tangent, with another one that was left and something to undo."""
    session = await (await harness.manager()).create()
    await said(session, "a", "b")
    await session.begin_tangent()
    await said(session, "left")
    await session.leave_tangent()
    await session.begin_tangent()
    await said(session, "aside")
    return session


@pytest.mark.req("G5")
@pytest.mark.parametrize("operation", [*AT_THIS_HEAD, *ANYWHERE])
@run
async def test_an_operation_that_was_overtaken_on_its_branch_is_done_after_what_the_other_wrote(
    harness: Harness, operation: str
) -> None:
    session = await in_a_tangent(harness)
    other = await elsewhere(harness, session)
    with Overtaken(session, lambda: other.append(Message.user("faster"))):
        await {**AT_THIS_HEAD, **ANYWHERE}[operation](session)
    branches = [branch for branch in await session.branches() if branch.operation == "tangent"]
    assert "faster" in [one.text for one in await session.messages(branch=branches[1].id)]
    view, fresh = await session.conversation(last=99), await reloaded(harness, session, last=99)
    assert (view.messages, view.history) == (fresh.messages, fresh.history)
    assert await session.tangents() == fresh.kept_tangents()


@pytest.mark.req("G5")
@pytest.mark.parametrize("operation", AT_THIS_HEAD)
@run
async def test_an_operation_is_refused_if_the_head_is_on_another_branch_by_then(
    harness: Harness, operation: str
) -> None:
    session = await in_a_tangent(harness)
    other = await elsewhere(harness, session)
    log = list[object]()

    async def faster() -> None:
        await other.fork(at=(await other.messages())[1].id)
        log.append(await everything(other))

    with Overtaken(session, faster), pytest.raises(Conflict):
        await AT_THIS_HEAD[operation](session)
    assert [await everything(session)] == log
    assert await texts(session) == ["a", "answer to a"]
    assert await session.undo() == "fork"  # the handle goes on where the head is
    assert (await texts(session))[-1] == "answer to aside"


@pytest.mark.req("G5")
@pytest.mark.parametrize("operation", ANYWHERE)
@run
async def test_what_holds_anywhere_is_written_where_the_head_is(harness: Harness, operation: str) -> None:
    session = await in_a_tangent(harness)
    other = await elsewhere(harness, session)

    async def faster() -> None:
        await other.rewind((await other.messages())[1].id)

    with Overtaken(session, faster):
        await ANYWHERE[operation](session)
    view = await reloaded(harness, session)
    assert prompts(view) == ["a"]
    match operation:
        case "change_settings":
            assert view.extra == {"by": "me"}
        case "record_lines":
            assert view.file_line_tracker == {"/a": A} == await session.lines() == await other.lines()
        case "set_model":
            assert view.model_info == await session.model() == await other.model()
        case "fork":
            assert await other.undo() == "fork"
        case "note":
            assert view.transcript[-1] == "mine"
        case "set_system":
            assert view.system == "mine"


@pytest.mark.req("G5")
@run
async def test_changes_of_settings_that_race_are_both_kept(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    handles = [session, *[await elsewhere(harness, session) for _ in range(3)]]
    changes: list[dict[str, Any]] = [{"mcp_enabled": False}, {"extra": {"n": 1}}, {"tools": {}}]
    for change in changes:
        await asyncio.gather(*(handle.change_settings(**change) for handle in handles))
    view = await reloaded(harness, session)
    assert (view.mcp_enabled, view.extra) == (False, {"n": 1})
    assert len([entry for entry in await entries(session) if isinstance(entry, SettingsChange)]) == 2
    await asyncio.gather(
        handles[0].change_settings(mcp_enabled=True), handles[1].change_settings(extra={"n": 2})
    )
    view = await reloaded(harness, session)
    assert (view.mcp_enabled, view.extra) == (True, {"n": 2})


@pytest.mark.req("G5")
@run
async def test_notes_and_lines_of_many_handles_are_all_kept(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    handles = [session, *[await elsewhere(harness, session) for _ in range(3)]]

    async def write(number: int, handle: Session) -> None:
        for round in range(5):
            await handle.note(f"{number}.{round}")
            await handle.record_lines({f"/{number}": FileLineTracker(sha256="x", lines=round)})
            assert (await handle.lines())[f"/{number}"].lines == round

    await asyncio.gather(*(write(number, handle) for number, handle in enumerate(handles)))
    notes = [entry.text for entry in await entries(session) if isinstance(entry, Note)]
    assert sorted(notes) == sorted(f"{number}.{round}" for number in range(4) for round in range(5))
    for handle in handles:
        assert {path: one.lines for path, one in (await handle.lines()).items()} == {
            f"/{number}": 4 for number in range(4)
        }


@pytest.mark.req("G5", "J1")
@run
async def test_of_two_that_leave_a_tangent_at_once_one_leaves_it(harness: Harness) -> None:
    session = await in_a_tangent(harness)
    other = await elsewhere(harness, session)
    outcomes = await asyncio.gather(
        session.leave_tangent("tail"), other.leave_tangent("tail"), return_exceptions=True
    )
    names = [one for one in outcomes if isinstance(one, str)]
    assert len(names) == 1
    assert all(one is None or isinstance(one, Conflict | str) for one in outcomes)
    assert await texts(session) == ["a", "answer to a", "b", "answer to b", "aside", "answer to aside"]
    assert [one.opening for one in await session.tangents()] == ["left", "aside"]


@pytest.mark.req("G5", "D5")
@run
async def test_of_two_that_undo_at_once_each_undoes_one_thing_or_is_refused(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await said(session, *"abcd")
    await session.compact(strategy=Strategy(keep=2), model=False)
    await session.clear()
    other = await elsewhere(harness, session)
    assert sorted(await asyncio.gather(session.undo(), other.undo())) == ["clear", "compact"]
    with pytest.raises(NothingToUndo):
        await session.undo()
    assert prompts(await reloaded(harness, session)) == [*"abcd"]


@pytest.mark.parametrize("harness", ["memory"], indirect=True)  # whose reads can be held up
@run
async def test_lines_that_are_read_while_the_head_moves_are_those_of_one_branch(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await said(session, "a")
    await session.record_lines({"/a": A})
    await session.lines()
    other = await elsewhere(harness, session)
    await session.record_lines({"/b": B})
    log = session._writer.log
    begun, go_on, read = asyncio.Event(), asyncio.Event(), log.read

    async def slow(*given: Any, **limits: Any) -> Any:
        found = await read(*given, **limits)
        log.read = read  # type: ignore[method-assign]
        begun.set()
        await go_on.wait()
        return found

    log.read = slow  # type: ignore[method-assign]
    first = asyncio.create_task(session.lines())
    await begun.wait()
    await other.rewind((await other.messages())[1].id)
    await session.record_lines({"/c": B})
    here = await session.lines()
    go_on.set()
    assert await first == {"/a": A, "/b": B}
    assert await session.lines() == await (await elsewhere(harness, session)).lines() == here == {"/c": B}


@pytest.mark.req("I8")
@run
async def test_clearing_says_whether_anything_was_shown(harness: Harness) -> None:
    session = await (await harness.manager()).create(system="You help.")
    before = await everything(session)
    assert not await session.clear()
    assert await everything(session) == before
    await said(session, "a")
    await session.append(Message.user("waiting"))
    assert await session.clear()
    view = await reloaded(harness, session)
    assert (view.history, view.next_message) == ([], None)
    before = await everything(session)
    assert not await session.clear()
    assert await everything(session) == before
    await session.note("not a message")
    assert not await session.clear()
    assert await session.undo() == "clear"
    view = await reloaded(harness, session)
    assert prompts(view) == ["a"]
    assert view.next_message is not None


@pytest.mark.req("J1")
@run
async def test_a_tangent_begins_on_the_path_only_and_before_a_round_of_calls(harness: Harness) -> None:
    session = await in_a_tangent(harness)
    inside = (await session.messages())[-1].id
    await session.leave_tangent()
    before = await everything(session)
    with pytest.raises(NotFound, match="on this path"):
        await session.begin_tangent(at=inside)
    assert await everything(session) == before
    await session.begin_tangent(at=(await session.messages())[1].id)
    assert await texts(session) == ["a", "answer to a"]


@pytest.mark.parametrize("name", ["commit", "catch_up"])
@run
async def test_a_call_that_is_gone_names_those_that_replace_it(harness: Harness, name: str) -> None:
    session = await (await harness.manager()).create()
    with pytest.raises(AttributeError, match=rf"session\.{name}\(state\) is gone.*(append|conversation)"):
        getattr(session, name)
    with pytest.raises(AttributeError, match="no attribute 'unheard_of'"):
        session.unheard_of  # noqa: B018
