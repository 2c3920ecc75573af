"""Tangents with files, entered and left where the log refuses, somebody else writes, or the process dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.integration.checkpoint_talk import Desk, Talk, played
from turnstate import Message, SessionManager
from turnstate.errors import Busy, CheckpointError, Conflict, SessionError
from turnstate.session import Session

pytestmark = pytest.mark.req("J4", "O3")

ASIDE, MAIN = {"a": "the tangent's\n", "mine": "user's\n"}, {"a": "main\n", "mine": "user's\n"}
MAIN_SAID = ["main", "Let me.", "", "did main"]
NOTE, LEAVE = 1, 2  # the writes of a leave: the files that the tangent leaves behind, and the leave itself


class Killed(BaseException):
    """The process is gone."""


@asynccontextmanager
async def aside(desk: Desk) -> AsyncIterator[Talk]:
    """Begin a conversation that is in a tangent, whose files are in no checkpoint yet."""
    async with desk.started() as talk:
        await talk.turn("main", {"a": MAIN["a"]})
        await talk.checkpoints.enter_tangent()
        await talk.turn("aside")
        desk.write(a=ASIDE["a"])
        yield talk


@asynccontextmanager
async def somebody_else(desk: Desk) -> AsyncIterator[Session]:
    async with await SessionManager.open(desk.url) as sessions:
        yield await sessions.open(desk.id)


class Writes:
    """Counts the writes of a conversation, and lets something happen before or after one of them."""

    def __init__(self, talk: Talk, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._store = talk.session._writer.store
        self._really, self._patch = self._store.commit, patch

    def at(self, nth: int, happens: Callable[[], Awaitable[None]], *, after: bool = False) -> None:
        async def commit(change: Any) -> Any:
            self.count += 1
            if self.count == nth and not after:
                await happens()
            receipt = await self._really(change)
            if self.count == nth and after:
                await happens()
            return receipt

        self._patch.setattr(self._store, "commit", commit)


async def killed() -> None:
    raise Killed


def told(desk: Desk) -> Callable[[], Awaitable[None]]:
    async def tell() -> None:
        async with somebody_else(desk) as session:
            await session.append(Message.user("meanwhile"))

    return tell


def left(desk: Desk) -> Callable[[], Awaitable[None]]:
    async def leave() -> None:
        async with somebody_else(desk) as session:
            state = await session.conversation()
            state.exit_tangent_mode()
            await session.commit(state)

    return leave


@pytest.mark.parametrize("bring", ["nothing", "tail", "summary"])
@played
async def test_leaving_is_one_write_behind_the_checkpoint_of_what_is_left(
    desk: Desk, bring: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aside(desk) as talk:
        writes, tangents = Writes(talk, monkeypatch), list[bool]()

        async def look() -> None:
            async with somebody_else(desk) as session:
                seen = await session.conversation()
                tangents.append(seen.is_in_tangent_mode())
                assert seen.head.checkpoints[-1][1].description == "when the tangent was left"

        writes.at(LEAVE, look)
        await talk.checkpoints.leave_tangent(bring)
        assert (writes.count, tangents) == (LEAVE, [True])
        assert desk.files == MAIN
        await talk.check()


@pytest.mark.parametrize("bring", ["nothing", "tail"])
@pytest.mark.parametrize("nth", [NOTE, LEAVE])
@played
async def test_a_leave_that_is_refused_leaves_files_and_conversation_in_the_tangent(
    desk: Desk, nth: int, bring: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aside(desk) as talk:
        Writes(talk, monkeypatch).at(nth, told(desk))
        with pytest.raises(Conflict) as refused:
            await talk.checkpoints.leave_tangent(bring)
        assert refused.value.__notes__ == ["the files were put back"]
        assert desk.files == ASIDE
        assert talk.state.is_in_tangent_mode()
        if nth == LEAVE:
            await talk.check()
    async with desk.started() as talk:
        assert talk.checkpoints.recovered is None
        assert talk.state.is_in_tangent_mode()
        assert talk.state.messages[-1].text == "meanwhile"
        assert [message.text for message in talk.state.head.parent.messages] == MAIN_SAID  # type: ignore[union-attr]
        await talk.checkpoints.leave_tangent(bring)
        assert desk.files == MAIN
        await talk.check()


@played
async def test_a_leave_that_is_refused_for_now_is_not_written_later(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aside(desk) as talk, somebody_else(desk) as other:

        async def take_the_lease() -> None:
            await other.acquire()

        Writes(talk, monkeypatch).at(LEAVE, take_the_lease)
        with pytest.raises(Busy):
            await talk.checkpoints.leave_tangent("tail")
        await other.release()
        assert desk.files == ASIDE
        talk.state.append_transcript("a notice")
        await talk.session.commit(talk.state)
        await talk.check()
        assert talk.state.is_in_tangent_mode()
        assert [message.text for message in talk.state.head.parent.messages] == MAIN_SAID  # type: ignore[union-attr]


@played
async def test_where_somebody_else_left_the_tangent_the_files_go_with_them(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aside(desk) as talk:
        Writes(talk, monkeypatch).at(LEAVE, left(desk))
        with pytest.raises(Conflict) as refused:
            await talk.checkpoints.leave_tangent("tail")
        assert "another process has completed it" in refused.value.__notes__[0]
        assert desk.files == MAIN
        assert not talk.state.is_in_tangent_mode()
        await talk.check()
    async with desk.started() as talk:
        assert talk.checkpoints.recovered is None


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("nth", [NOTE, LEAVE])
@played
async def test_killed_at_any_write_a_leave_is_finished_with_the_checkpoint_of_what_was_left(
    desk: Desk, nth: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aside(desk) as talk:
        Writes(talk, monkeypatch).at(nth, killed, after=after)
        with suppress(Killed):
            await talk.checkpoints.leave_tangent("tail")
    async with desk.started() as talk:
        assert talk.checkpoints.recovered is not None
        assert talk.checkpoints.recovered.finished
        assert desk.files == MAIN
        assert not talk.state.is_in_tangent_mode()
        assert [entry.user.prompt for entry in talk.state.history if entry.user.prompt] == ["main", "aside"]
        await talk.check()
        (kept,) = talk.state.kept_tangents()
        talk.state.reopen_tangent(kept.name)
        assert talk.labels == ["0", "1", "tangent", "2"]
        await talk.checkpoints.restore("2", conversation=False)
        assert desk.files == ASIDE


@pytest.mark.parametrize("nth", [NOTE, LEAVE])
@played
async def test_killed_and_overtaken_a_leave_is_taken_back(
    desk: Desk, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aside(desk) as talk:
        Writes(talk, monkeypatch).at(nth, killed)
        with suppress(Killed):
            await talk.checkpoints.leave_tangent()
    await told(desk)()
    async with desk.started() as talk:
        assert talk.checkpoints.recovered is not None
        assert not talk.checkpoints.recovered.finished
        assert talk.state.is_in_tangent_mode()
        assert desk.files == ASIDE


@played
async def test_where_no_file_was_touched_and_somebody_left_the_tangent_none_is_touched_later(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object, **__: object) -> None:
        raise Killed

    async with aside(desk) as talk:
        monkeypatch.setattr(talk.checkpoints.repository, "restore", dies)
        with suppress(Killed):
            await talk.checkpoints.leave_tangent()
    await left(desk)()
    desk.write(a="written since\n")
    async with desk.started() as talk:
        assert talk.checkpoints.recovered is not None
        assert not talk.checkpoints.recovered.finished
        assert desk.files["a"] == "written since\n"


@played
async def test_a_tangent_is_left_once(desk: Desk) -> None:
    async with aside(desk) as talk:
        await talk.checkpoints.enter_tangent()
        await talk.turn("deeper", {"a": "deeper\n"})
        leave = talk.checkpoints.leave_tangent
        ends = await asyncio.gather(leave(), leave(), return_exceptions=True)
        assert [type(one) for one in ends].count(CheckpointError) == 1
        assert talk.state.is_in_tangent_mode()
        assert desk.files == ASIDE
        await talk.check()


@pytest.mark.parametrize("what", ["the disk", "the log"])
@played
async def test_a_tangent_that_cannot_be_entered_is_not_entered(
    desk: Desk, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise CheckpointError("no space is left")

    async with desk.started() as talk:
        await talk.turn("main", {"a": "main\n"})
        seen = talk.seen
        if what == "the disk":
            monkeypatch.setattr(talk.checkpoints.repository, "snapshot", full)
        else:
            Writes(talk, monkeypatch).at(1, told(desk))
        with pytest.raises((CheckpointError, SessionError)):
            await talk.checkpoints.enter_tangent()
        assert talk.seen == seen
        assert not talk.state.is_in_tangent_mode()
        assert talk.state.kept_tangents() == []
    async with desk.started() as talk:
        assert not talk.state.is_in_tangent_mode()
        assert talk.labels == ["0", "1"]
