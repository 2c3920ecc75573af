from __future__ import annotations

import asyncio
import re
import threading
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import apsw
import pytest

from turnstate import Budget, Message, StateManager, ToolCallRequest, ToolCallResult, errors, formats
from turnstate.archive import adopt, archive, bundles, conversation, encode_line, is_incomplete, restore
from turnstate.log.records import recount
from turnstate.session import SessionManager
from turnstate.stores.values import Address
from turnstate.testing import conversations

pytestmark = pytest.mark.req("P3", "G6")

Scene = Callable[[SessionManager, SessionManager], Awaitable[None]]


def between(tmp_path: Path, scene: Scene) -> None:
    """Play a scene between two SQLite files."""

    async def play() -> None:
        async with (
            await SessionManager.open(f"sqlite:///{tmp_path}/one.db") as one,
            await SessionManager.open(f"sqlite:///{tmp_path}/other.db") as other,
        ):
            await scene(one, other)

    asyncio.run(play())


async def exported(sessions: SessionManager, *ids: str) -> list[bytes]:
    async def addresses() -> AsyncIterator[Address]:
        for id in ids:
            yield Address(sessions.tenant, id)

    return [encode_line(line).encode() async for line in archive(sessions.store, addresses())]


async def restored(sessions: SessionManager, lines: list[bytes], **settings: bool) -> list[str]:
    return [
        (await restore(sessions.store, sessions.tenant, bundle, now=5_000, **settings)).result
        for bundle in bundles(lines)
    ]


async def long(sessions: SessionManager, id: str = "long") -> str:
    session = await sessions.create(id=id)
    for number in range(150):
        await session.append(Message.user(f"the {number}th word"))
    return session.id


def cut_off(lines: list[bytes], error: BaseException, after: int) -> Iterator[bytes]:
    """Yield the first lines, and then fail as a disk or a person may."""
    yield from lines[:after]
    raise error


@pytest.mark.req("B1")
def test_the_counts_of_an_archive_are_those_of_the_models_in_force(tmp_path: Path) -> None:
    async def scene(one: SessionManager, other: SessionManager) -> None:
        session = await one.open(await long(one))
        for place, model in ((10, "claude-sonnet-4-5"), (140, "gpt-4")):
            await session.rewind(to=(await session.messages())[place].id)
            await session.set_model(model)
            await session.append(*(Message.user(f"the {number}th 質問") for number in range(150)))
        await session.rewind(to=(await session.messages())[5].id)
        await session.append(Message.user("under no model"))
        lines = await exported(one, "long")
        assert await restored(other, lines) == ["imported"]
        assert await exported(other, "long") == lines
        assert [found async for found in other.store.verify(repair=False, recount=recount)] == []
        await (await other.open("long")).undo()
        read = await conversation(other.store, await other.store.get(Address("default", "long")))
        assert (read.counter.name, len(read.counts), len(read.messages)) == ("cl100k_base", 150, 291)
        assert read.window().tokens == (await (await other.open("long")).window(Budget.UNLIMITED)).tokens

    between(tmp_path, scene)


def test_a_session_that_goes_on_is_exported_as_it_was_at_one_moment(tmp_path: Path) -> None:
    async def scene(one: SessionManager, other: SessionManager) -> None:
        id = await long(one)
        session = await one.open(id)

        async def growing() -> AsyncIterator[Address]:
            yield Address("default", id)

        lines = []
        async for line in archive(one.store, growing()):
            lines.append(encode_line(line).encode())
            if len(lines) % 50 == 0:
                await session.append(Message.user("meanwhile"))
                await session.fork()
        assert await restored(other, lines) == ["imported"]
        assert len(await (await other.open(id)).messages()) == 150

    between(tmp_path, scene)


def test_an_imported_session_is_used_like_any_other(tmp_path: Path) -> None:
    async def scene(one: SessionManager, other: SessionManager) -> None:
        id = await long(one)
        await restored(other, await exported(one, id))
        session = await other.open(id)
        receipt = await session.append(Message.user("one more"), expected_version=150)
        assert (receipt.last, receipt.version) == (151, 151)
        async with session.lease():
            await session.append(Message.user("alone"))
        assert [found.session async for found in other.search("149th")] == [id]

    between(tmp_path, scene)


@pytest.mark.parametrize(
    "error", [errors.InvalidPayload("bad line"), KeyboardInterrupt(), OSError("no disk")]
)
def test_an_import_that_fails_in_the_middle_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    async def scene(one: SessionManager, other: SessionManager) -> None:
        lines = await exported(one, await long(one))
        bundle = next(bundles(cut_off(lines, error, after=100)))
        with pytest.raises(type(error)):
            await restore(other.store, "default", bundle, now=5_000)
        with pytest.raises(errors.NotFound):
            await other.open("long")
        assert await restored(other, lines) == ["imported"]

    between(tmp_path, scene)


class Paused:
    """An import in a thread of its own that waits in the middle of a session until it is let go."""

    def __init__(self, url: str, lines: list[bytes], then: list[bytes]) -> None:
        self._url, self._lines, self._then = url, lines, then
        self._reached, self._let_go = threading.Event(), threading.Event()

    async def begun(self) -> asyncio.Task[None]:
        task = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(self._import())))
        await asyncio.to_thread(self._reached.wait)
        return task

    def let_go(self) -> None:
        self._let_go.set()

    async def _import(self) -> None:
        async with await SessionManager.open(self._url) as sessions:
            await restore(sessions.store, "default", next(bundles(self._paused())), now=5_000)

    def _paused(self) -> Iterator[bytes]:
        yield from self._lines[:100]
        self._reached.set()
        self._let_go.wait()
        yield from self._then


@pytest.mark.parametrize("broken", [False, True])
def test_an_import_that_is_under_way_keeps_others_out_and_gives_way_to_a_later_one(
    tmp_path: Path, broken: bool
) -> None:
    async def scene(one: SessionManager, other: SessionManager) -> None:
        lines = await exported(one, await long(one))
        then = [b"broken"] if broken else lines[100:]
        paused = Paused(f"sqlite:///{tmp_path}/other.db", lines, then)
        task = await paused.begun()
        try:
            session = await other.open("long")
            assert is_incomplete(session._row)
            with pytest.raises(errors.Busy):
                await session.append(Message.user("me too"))
            with pytest.raises(errors.Busy):
                await session.acquire()
            with pytest.raises(errors.Busy):
                await session.reset()
            with pytest.raises(errors.Busy, match="being imported"):
                await exported(other, "long")
            bundle = next(bundles(lines))
            assert (await restore(other.store, "default", bundle, now=6_000)).result == "imported"
        finally:
            paused.let_go()
        with pytest.raises(errors.MalformedJSON if broken else errors.Busy):
            await task
        assert await exported(other, "long") == lines

    between(tmp_path, scene)


def test_another_session_of_the_same_id_is_left_alone(tmp_path: Path) -> None:
    async def scene(one: SessionManager, other: SessionManager) -> None:
        lines = await exported(one, await long(one))
        mine = await other.create(id="long")
        await mine.append(Message.user("mine"))
        with pytest.raises(errors.AlreadyExists, match="another session long"):
            await restored(other, lines)
        assert await restored(other, lines, skip_existing=True) == ["skipped"]
        assert [message.text for message in await mine.messages()] == ["mine"]

    between(tmp_path, scene)


def test_a_session_that_went_on_since_its_import_is_another_one(tmp_path: Path) -> None:
    async def scene(one: SessionManager, other: SessionManager) -> None:
        lines = await exported(one, await long(one))
        await restored(other, lines)
        session = await other.open("long")
        await session.rename("The same with a title")
        assert await restored(other, lines) == ["known"]
        await session.append(Message.user("and on"))
        with pytest.raises(errors.AlreadyExists):
            await restored(other, lines)

    between(tmp_path, scene)


def damage(path: Path, statement: str) -> None:
    db = apsw.Connection(str(path))
    db.execute(statement)
    db.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entry SET body = CAST(replace(body, 'the 7th', 'the 8th') AS BLOB) WHERE seq = 8",
        "DELETE FROM entry WHERE seq = 8",
        "DELETE FROM entry WHERE seq = 150",
    ],
)
def test_a_note_stands_in_the_place_of_an_entry_that_was_damaged(tmp_path: Path, statement: str) -> None:
    async def scene(one: SessionManager, other: SessionManager) -> None:
        id = await long(one)
        damage(tmp_path / "one.db", statement)
        lines = await exported(one, id)
        assert sum(b'"damaged":true' in line for line in lines) == 1
        assert await restored(other, lines) == ["imported"]
        session = await other.open(id)
        texts = [message.text for message in await session.messages()]
        assert len(texts) == 149
        assert texts.count("the 8th word") == 1
        assert (await session.append(Message.user("and on"))).last == 151
        assert [finding async for finding in other.store.verify(repair=False)] == []
        assert await restored(one, lines) == ["known"]

    between(tmp_path, scene)


@pytest.mark.req("A1")
def test_a_foreign_conversation_becomes_a_session(tmp_path: Path) -> None:
    said = [
        Message.system("You help."),
        Message.system("Be brief."),
        Message.user("hello"),
        Message.system("The user is tired."),
        Message.assistant("hi"),
    ]

    async def scene(one: SessionManager, _: SessionManager) -> None:
        for result in ("imported", "known"):
            assert (await adopt(one.store, "default", said, id="s", now=1, user="anna")).result == result
        session = await one.open("s", user="anna")
        assert await session.messages() == said[2:]
        found = await conversation(one.store, session._row)
        assert found.all_messages[0].text == "You help.\n\nBe brief."
        await session.append(Message.user("and on"))
        assert (await adopt(one.store, "default", said, id="s", now=1)).result == "known"
        with pytest.raises(errors.AlreadyExists):
            await adopt(one.store, "default", [Message.user("another")], id="s", now=1)

    between(tmp_path, scene)


@pytest.mark.req("D1", "D3")
def test_the_summary_of_a_foreign_conversation_is_that_of_the_session_and_folded_by_its_next_cut(
    tmp_path: Path,
) -> None:
    manager, said = StateManager(), [Message.system("You help.")]
    for number in range(60):
        said += [Message.user(f"What of ship {number}?"), Message.assistant("It went by. " * 20)]
    document = formats.get("openai-chat").render(manager.window(said, Budget(2_000)).messages)

    async def scene(one: SessionManager, _: SessionManager) -> None:
        await adopt(one.store, "default", formats.get("openai-chat").parse(document), id="s", now=1)
        session = await one.open("s")
        for limit in (2_000, 100_000):
            window = await session.window(Budget(limit))
            assert [message.kind for message in window.messages[:3]] == ["prompt", "summary", None]
            assert formats.get("openai-chat").render(window.messages) == document
        await session.append(*[Message.user("And this? " * 40) for _ in range(20)])
        (text,) = [m.text for m in (await session.window(Budget(2_000))).messages if m.kind == "summary"]
        assert "ship 0" in text

    between(tmp_path, scene)


@pytest.mark.req("A8")
def test_a_conversation_with_open_calls_is_made_sound(tmp_path: Path) -> None:
    call = ToolCallRequest(name="ls", args={})

    async def scene(one: SessionManager, _: SessionManager) -> None:
        session = await one.create(system="You help.")
        assert (await conversation(one.store, session._row)).valid_messages()
        await session.append(Message.user("look"), Message.assistant(None, tool_calls=[call]))
        found = await conversation(one.store, (await one.open(session.id))._row)
        assert [message.role for message in found.all_messages] == ["system", "user", "assistant"]
        assert [message.role for message in found.valid_messages()] == ["system", "user", "assistant", "tool"]

    between(tmp_path, scene)


@pytest.mark.req("C9")
def test_a_sound_conversation_is_whole(tmp_path: Path) -> None:
    async def scene(one: SessionManager, _: SessionManager) -> None:
        for seed in range(30):
            messages = [message for message in conversations.valid(seed) if message.role != "system"]
            session = await one.create(system="You help.")
            for message in messages:
                await session.append(message)
            found = await conversation(one.store, (await one.open(session.id))._row)
            sound = found.valid_messages()[1:]  # results are in the order of their calls
            assert [message.role for message in sound] == [message.role for message in messages]
            assert {message.id: message for message in sound} == {message.id: message for message in messages}

    between(tmp_path, scene)


LIES = {"zero": 0, "one": 1, "the largest": (1 << 53) - 1}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
@pytest.mark.req("B1")
def test_token_counts_are_computed_again_on_import(tmp_path: Path, lie: int) -> None:
    async def scene(one: SessionManager, other: SessionManager) -> None:
        session = await one.create(id="s", system="Be brief.")
        call = ToolCallRequest(name="ls", args={})
        await session.append(Message.user("word " * 9_000), Message.assistant("", tool_calls=[call]))
        await session.append(Message.tool([ToolCallResult(tool_call_id=call.id, result="line\n" * 9_000)]))
        truth = await exported(one, "s")
        lines = [re.sub(rb'"tokens":\d+', b'"tokens":%d' % lie, line) for line in truth]
        assert lines != truth
        assert await restored(other, lines) == ["imported"]
        assert await exported(other, "s") == truth
        with pytest.raises(errors.ContextOverflow):
            await (await other.open("s")).window(Budget(7_000))

    between(tmp_path, scene)


@pytest.mark.parametrize("claimed", [1 << 30, (1 << 52), (1 << 53) - 1])
def test_an_archive_costs_what_it_holds_whatever_it_claims(tmp_path: Path, claimed: int) -> None:
    async def scene(one: SessionManager, other: SessionManager) -> None:
        await one.create(id="s")
        lines = await exported(one, "s")
        lines[2] = re.sub(rb'"entries":\d+', b'"entries":%d' % claimed, lines[2])
        assert b"%d" % claimed in lines[2]
        tracemalloc.start()
        try:
            with pytest.raises(errors.InvalidPayload, match="line 4"):
                await restored(other, lines)
            assert tracemalloc.get_traced_memory()[1] < 10 << 20
        finally:
            tracemalloc.stop()
        with pytest.raises(errors.NotFound):
            await other.open("s")

    between(tmp_path, scene)
