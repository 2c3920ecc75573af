"""Tangents with files, entered and left where the log refuses, somebody else writes, or the process dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.integration.checkpoint_talk import Desk, Talk, played
from turnstate import Message
from turnstate.errors import Busy, CheckpointError, Conflict, InputError

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
        async with desk.somebody_else() as session:
            await session.append(Message.user("meanwhile"))

    return tell


def left(desk: Desk) -> Callable[[], Awaitable[None]]:
    async def leave() -> None:
        async with desk.somebody_else() as session:
            await session.leave_tangent()

    return leave


@pytest.mark.parametrize("bring", ["nothing", "tail", "summary"])
@played
async def test_leaving_is_one_write_behind_the_checkpoint_of_what_is_left(
    desk: Desk, bring: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aside(desk) as talk:
        writes, tangents = Writes(talk, monkeypatch), list[bool]()

        async def look() -> None:
            async with desk.somebody_else() as session:
                tangents.append((await session.conversation()).is_in_tangent_mode())
                *_, kept = await session.entries(kinds=["checkpoint"])
                assert kept.entry.description == "when the tangent was left"

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
        assert await talk.is_aside()
        if nth == LEAVE:
            await talk.check()
    async with desk.started() as talk:
        assert talk.checkpoints.recovered is None
        assert await talk.is_aside()
        assert (await talk.session.messages(last=1))[0].text == "meanwhile"
        assert [message.text for message in await talk.session.messages(branch=1)] == MAIN_SAID
        await talk.checkpoints.leave_tangent(bring)
        assert desk.files == MAIN
        await talk.check()


@played
async def test_a_leave_that_is_refused_for_now_is_not_written_later(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aside(desk) as talk, desk.somebody_else() as other:

        async def take_the_lease() -> None:
            await other.acquire()

        Writes(talk, monkeypatch).at(LEAVE, take_the_lease)
        with pytest.raises(Busy):
            await talk.checkpoints.leave_tangent("tail")
        await other.release()
        assert desk.files == ASIDE
        await talk.session.note("a notice")
        await talk.check()
        assert await talk.is_aside()
        assert [message.text for message in await talk.session.messages(branch=1)] == MAIN_SAID


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
        assert not await talk.is_aside()
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
        assert not await talk.is_aside()
        prompts = [entry.user.prompt for entry in (await talk.state()).history]
        assert [prompt for prompt in prompts if prompt] == ["main", "aside"]
        await talk.check()
        (kept,) = await talk.session.tangents()
        await talk.session.reopen_tangent(kept.name)
        assert await talk.labels() == ["0", "1", "tangent", "2"]
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
        assert await talk.is_aside()
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
        assert await talk.is_aside()
        assert desk.files == ASIDE
        await talk.check()


@pytest.mark.parametrize("what", ["the disk", "the log"])
@played
async def test_a_tangent_that_cannot_be_entered_is_not_entered(
    desk: Desk, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise CheckpointError("no space is left")

    async with desk.started() as talk, desk.somebody_else() as other:
        await talk.turn("main", {"a": "main\n"})
        seen = await talk.seen()
        if what == "the disk":
            monkeypatch.setattr(talk.checkpoints.repository, "snapshot", full)
        else:
            await other.acquire()
        with pytest.raises((CheckpointError, Busy)):
            await talk.checkpoints.enter_tangent()
        assert await talk.seen() == seen
        assert not await talk.is_aside()
        assert await talk.session.tangents() == []
    async with desk.started() as talk:
        assert not await talk.is_aside()
        assert await talk.labels() == ["0", "1"]


@played
async def test_a_tangent_that_is_entered_while_somebody_writes_begins_after_their_words(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk.started() as talk:
        await talk.turn("main", {"a": MAIN["a"]})
        Writes(talk, monkeypatch).at(1, told(desk))
        await talk.checkpoints.enter_tangent()
        assert await talk.is_aside()
        assert (await talk.session.messages(last=1))[0].text == "meanwhile"
        desk.write(a=ASIDE["a"])
        await talk.checkpoints.leave_tangent()
        assert desk.files == MAIN
        await talk.check()


@pytest.mark.parametrize(
    ("bring", "summary"),
    [("everything", None), (None, None), ("tail", "words"), ("nothing", "words"), ("summary", 5)],
)
@played
async def test_what_cannot_be_brought_back_is_refused_before_any_file_is_touched(
    desk: Desk, bring: Any, summary: Any
) -> None:
    async with aside(desk) as talk:
        seen = await talk.seen()
        with pytest.raises(InputError):
            await talk.checkpoints.leave_tangent(bring, summary=summary)
        assert (await talk.seen(), desk.files) == (seen, ASIDE)
    async with desk.started() as talk:
        assert talk.checkpoints.recovered is None
        await talk.checkpoints.leave_tangent("summary", summary="words")
        assert desk.files == MAIN
