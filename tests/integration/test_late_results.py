"""A call that the core answered may still get its real result: on every store, however late it comes."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest

from tests.harness.postgres_server import fresh_url
from tests.harness.valkey_server import fresh_server
from turnstate import Budget, Message, SessionManager, StateManager, ToolCallRequest, ToolCallResult, formats
from turnstate.archive import archived, conversation, encode_line
from turnstate.checkpoints import CheckpointManager
from turnstate.codec import kind_of
from turnstate.context.window import Window
from turnstate.conversation import amazon_q
from turnstate.entry import ABANDONED, CANCELLED, INTERRUPTED, LEFT, Answer
from turnstate.errors import InvalidMessage
from turnstate.formats import rendered
from turnstate.formats.exports import markdown
from turnstate.home import Home
from turnstate.log.path import entry_of, path_to
from turnstate.session import Session
from turnstate.stores.memory import MemoryStore
from turnstate.stores.port import Store

pytestmark = pytest.mark.req("A5", "C3", "H3")

WIDE, NARROW = Budget(100_000), Budget(900)


class Stores:
    """One store, and as many managers on it as a test needs."""

    def __init__(self, url: str) -> None:
        self._url, self._memory = url, MemoryStore()

    @asynccontextmanager
    async def process(self) -> AsyncIterator[SessionManager]:
        """Open the store as a new process does."""
        if self._url == "memory:":
            yield SessionManager(self._memory)
            return
        async with await SessionManager.open(self._url) as sessions:
            yield sessions


@pytest.fixture(params=["memory", "sqlite", "postgres", "valkey"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    match request.param:
        case "postgres":
            with fresh_url() as url:
                yield Stores(url)
        case "valkey":
            yield Stores(fresh_server())
        case kind:
            yield Stores("memory:" if kind == "memory" else f"sqlite:///{tmp_path}/agent.db")


def played(test: Callable[[Stores], Awaitable[None]]) -> Callable[[Stores], None]:
    @functools.wraps(test)
    def play(stores: Stores) -> None:
        async def bounded() -> None:
            await asyncio.wait_for(test(stores), 60)

        asyncio.run(bounded())

    return play


def call(name: str = "ls") -> ToolCallRequest:
    return ToolCallRequest(name=name, args={}, provider_id=f"theirs_{name}")


def result(of: ToolCallRequest, value: Any) -> Message:
    return Message.tool([ToolCallResult(tool_call_id=of.id, result=value)])


def plain(window: Window) -> bytes:
    return msgspec.json.encode(window.messages)


def shown(window: Window) -> list[str]:
    """Return the role of each message; a result that is shown as text is a note."""
    note = "[Tool result that no open call awaits"
    return ["note" if message.text.startswith(note) else message.role for message in window.messages]


async def checked(session: Session, stores: Stores, budget: Budget = WIDE) -> Window:
    """Return a window that all providers accept and that a new process makes with the same bytes."""
    window = await session.window(budget)
    for name in formats.names():
        one = formats.get(name)
        assert one.validate(one.render(window.messages)) == [], name
    assert plain(await session.window(budget)) == plain(window)
    async with stores.process() as sessions:
        again = await (await sessions.open(session.id)).window(budget)
        assert plain(again) == plain(window)
        assert again.tokens == window.tokens
    return window


async def kinds(store: Store, session: Session) -> list[str]:
    row = await store.get(session._row.address)
    path = await path_to(store, row.address, row.head)
    rows = [one for span in reversed(path) for one in await store.read(row.address, span)]
    return [kind_of(entry) for one in rows if (entry := entry_of(one))]


async def refused(session: Session, message: Message) -> None:
    before = await session.messages()
    with pytest.raises(InvalidMessage, match="already has a different result"):
        await session.append(message)
    assert await session.messages() == before


async def begun(sessions: SessionManager, *calls: ToolCallRequest) -> Session:
    session = await sessions.create(id="s", system="You keep a lighthouse.")
    await session.append(Message.user("go"), Message.assistant("on it", tool_calls=calls))
    return session


async def talked(session: Session, turns: int = 30) -> None:
    for turn in range(turns):
        await session.append(
            Message.user(f"question {turn} " + "word " * 30), Message.assistant(f"yes {turn}")
        )


@played
async def test_the_real_result_of_an_interrupted_call_is_logged_and_shown_as_text(stores: Stores) -> None:
    one, two = call("one"), call("two")
    async with stores.process() as sessions:
        session = await begun(sessions, one, two)
        await session.append(result(one, "first"))
    async with stores.process() as sessions:
        session = await sessions.restore("s")
        assert (await kinds(sessions.store, session))[-1] == "answer"
        (last,) = await session.messages(last=1)
        assert [(r.tool_call_id, r.result, r.is_error) for r in last.tool_results] == [
            (two.id, INTERRUPTED, True)
        ]
        before = await checked(session, stores)
        assert shown(before)[-3:] == ["assistant", "tool", "tool"]
        await session.append(result(two, "the real one"))
        after = await checked(session, stores)
        assert plain(after).startswith(plain(before)[:-1])  # no byte that was sent changes
        assert shown(after)[-4:] == ["assistant", "tool", "tool", "note"]
        assert after.messages[-1].text.endswith("the real one")
    async with stores.process() as sessions:
        session = await sessions.restore("s")
        count = len(await session.messages())
        await session.append(result(two, "the real one"))
        assert len(await session.messages()) == count
        await refused(session, result(two, "another"))
        await refused(session, result(one, "another"))


@played
async def test_a_late_result_is_known_by_the_providers_id(stores: Stores) -> None:
    one = call("one")
    async with stores.process() as sessions:
        await begun(sessions, one)
        session = await sessions.restore("s")
        theirs = ToolCallResult(tool_call_id=one.provider_id, result="late")
        await session.append(Message.tool([theirs]))
        assert (await session.messages())[-1].tool_results[0].tool_call_id == one.id
        await refused(session, result(one, "another"))


@played
async def test_a_restore_answers_each_call_once_however_many_processes_restore(stores: Stores) -> None:
    calls = [call(name) for name in "abc"]
    async with stores.process() as sessions:
        await begun(sessions, *calls)
    async with stores.process() as here, stores.process() as there:
        await asyncio.gather(*(sessions.restore("s") for sessions in (here, there) * 3))
        session = await here.restore("s")
        assert (await kinds(here.store, session)).count("answer") == 3
        await checked(session, stores)


@played
async def test_a_late_result_is_taken_across_a_cut_and_a_compaction(stores: Stores) -> None:
    one, two = call("one"), call("two")
    async with stores.process() as sessions:
        await begun(sessions, one, two)
    async with stores.process() as sessions:
        session = await sessions.restore("s")
        await checked(session, stores)
        await session.append(result(one, "before the cut"))
        await session.append(Message.assistant("I see."))
        await talked(session)
        assert "cut" in (await checked(session, stores, NARROW), await kinds(sessions.store, session))[1]
    async with stores.process() as sessions:
        session = await sessions.restore("s")
        await refused(session, result(one, "another"))
        before = await checked(session, stores, NARROW)
        await session.append(result(two, "behind the cut"))
        after = await checked(session, stores, NARROW)
        assert shown(after)[-1] == "note"
        assert plain(after).startswith(plain(before)[:-1])
        await session.append(result(two, "behind the cut"))
        await refused(session, result(two, "another"))
        await session.append(Message.assistant("Now I know."))
        await session.compact(NARROW, model=False)
        await checked(session, stores, NARROW)
    async with stores.process() as sessions:
        session = await sessions.open("s")
        await refused(session, result(two, "another"))
        assert await session.undo() == "compact"
        await checked(session, stores, NARROW)


@played
async def test_a_user_who_did_not_wait_still_gets_the_result(stores: Stores) -> None:
    one, two = call("one"), call("two")
    async with stores.process() as sessions:
        session = await begun(sessions, one, two)
        await session.append(Message.user("never mind"))
        before = await checked(session, stores)
        given = [one for message in before.messages for one in message.tool_results]
        assert [(r.result, r.is_error) for r in given] == [(ABANDONED, True)] * 2
        await session.append(result(one, "late"))
        after = await checked(session, stores)
        assert shown(after)[-2:] == ["user", "note"]
        assert plain(after).startswith(plain(before)[:-1])
    async with stores.process() as sessions:
        session = await sessions.open("s")
        count = len(await session.messages())
        await session.append(result(one, "late"))
        assert len(await session.messages()) == count
        await refused(session, result(one, "another"))
        await session.append(result(two, "later"), Message.assistant("thanks"))
        await refused(session, result(two, "another"))
        assert shown(await checked(session, stores))[-3:] == ["note", "note", "assistant"]


@played
async def test_a_result_that_comes_after_a_clearing_is_shown_behind_it(stores: Stores) -> None:
    one = call("one")
    async with stores.process() as sessions:
        session = await begun(sessions, one)
        assert await session.clear()
        assert (await session.messages())[-1].tool_results[0].result == CANCELLED
        await session.append(result(one, "late"))
        assert shown(await checked(session, stores)) == ["system", "note"]
        snapshot = await session.snapshot()
        assert [message.role for message in snapshot.messages] == ["system", "tool"]
        await refused(session, result(one, "another"))


@played
async def test_an_answer_of_the_core_has_an_id_that_one_can_go_back_to(stores: Stores) -> None:
    async with stores.process() as sessions:
        await begun(sessions, call("one"))
        session = await sessions.restore("s")
        (last,) = await session.messages(last=1)
        await session.append(Message.assistant("too bad"))
        await session.rewind(to=last.id)
        assert (await session.messages())[-1] == last
        await checked(session, stores)


@pytest.mark.req("O3")
@played
async def test_a_call_that_a_checkpoint_restore_answered_still_gets_its_result(stores: Stores) -> None:
    with TemporaryDirectory(prefix="turnstate-") as folder:
        tree, home = Path(folder, "work"), Home(Path(folder, "home"))
        tree.mkdir()
        async with stores.process() as sessions:
            session = await sessions.create(id="s", system="You work.")
            checkpoints = await CheckpointManager.open(session, tree, home=home)
            ran, cut_off = calls = [call("write"), call("test")]
            await session.append(Message.user("go"), Message.assistant("on it", tool_calls=calls))
            (tree / "a").write_text("one")
            kept = await checkpoints.tool_finished("write", call=ran.id)
            assert kept is not None
            (tree / "a").write_text("two")
            await checkpoints.restore(kept.label)
            assert (await kinds(sessions.store, session)).count("answer") == 2
            before = await checked(session, stores)
            await session.append(result(ran, "wrote it"))
            await session.append(result(cut_off, "it works"))
            after = await checked(session, stores)
            assert shown(after)[-2:] == ["note", "note"]
            assert plain(after).startswith(plain(before)[:-1])
        async with stores.process() as sessions:
            session = await sessions.restore("s")
            await session.append(result(ran, "wrote it"), result(cut_off, "it works"))
            await refused(session, result(ran, "another"))
            await refused(session, result(cut_off, "another"))
            assert plain(await checked(session, stores)) == plain(after)


@played
async def test_a_call_that_came_back_from_a_tangent_unanswered_still_gets_its_result(stores: Stores) -> None:
    async with stores.process() as sessions:
        session = await sessions.create(id="s")
        await session.append(Message.user("hello"), Message.assistant("hi"))
        await session.begin_tangent()
        asked = Message.assistant("on it", tool_calls=[call("one"), call("two")])
        await session.append(Message.user("look"), asked)
        await session.append(Message.tool([ToolCallResult(tool_call_id="theirs_one", result="here")]))
        again = Message.assistant("again", tool_calls=[call("three")])
        await session.append(Message.user("never mind"), again)
        await session.leave_tangent("tail")
        before = await checked(session, stores)
        given = [one.result for message in before.messages for one in message.tool_results]
        assert given == ["here", LEFT, LEFT]
        await session.append(Message.tool([ToolCallResult(tool_call_id="theirs_three", result="late")]))
        after = await checked(session, stores)
        assert shown(after)[-1] == "note"
        assert plain(after).startswith(plain(before)[:-1])


@played
async def test_snapshots_archives_and_exports_show_the_answer_and_are_valid(stores: Stores) -> None:
    one, two, three = call("one"), call("two"), call("three")
    async with stores.process() as sessions:
        session = await begun(sessions, one, two)
        await session.append(result(one, "first"))
        session = await sessions.restore("s")
        await session.append(result(two, "late"))
        await session.append(Message.assistant("again", tool_calls=[three]), Message.user("never mind"))
        await session.append(result(three, "later"), Message.assistant("well"))
        window = await checked(session, stores)
        snapshot = await session.snapshot()
        given = [one.result for message in snapshot.messages for one in message.tool_results]
        assert given == ["first", INTERRUPTED, "late", ABANDONED, "later"]
        assert snapshot.token_count == StateManager().count(snapshot.messages).tokens
        again = StateManager().window(snapshot.messages, WIDE)
        assert plain(again) == plain(window)

        found = await conversation(sessions.store, session._row)
        assert INTERRUPTED in markdown(found.all_messages)
        assert ABANDONED in markdown(found.all_messages)
        for name in formats.names():
            target = formats.get(name)
            assert INTERRUPTED in str(rendered(found.valid_messages(), target))

        lines = [encode_line(line) async for line in archived(sessions.store, session._row.address)]
        assert any('"answer"' in line and INTERRUPTED in line for line in lines)

        document = amazon_q.write(await session.conversation())
        uses = list[str]()
        for entry in document["history"]:
            content = next(iter(entry["user"]["content"].values()))
            answered = [one["tool_use_id"] for one in content.get("tool_use_results", [])]
            assert sorted(answered) == sorted(uses)
            ((kind, body),) = entry["assistant"].items()
            uses = [one["id"] for one in body["tool_uses"]] if kind == "ToolUse" else []
        for word in (INTERRUPTED, "late", ABANDONED, "later"):
            assert word in str(document["history"])


def test_an_answer_without_a_sound_message_is_refused() -> None:
    with pytest.raises(InvalidMessage):
        Answer(call=call().id, text="x", id="m", timestamp="yesterday")  # type: ignore[arg-type]


DOCUMENTS: dict[str, list[dict[str, Any]]] = {
    "openai-chat": [
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "name": "look", "content": "fog"},
    ],
    "openai-responses": [
        {"role": "user", "content": "Look."},
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}", "id": "fc_1"},
        {
            "type": "function_call_output",
            "call_id": "a",
            "output": "fog",
            "id": "fco_1",
            "status": "completed",
        },
    ],
    "anthropic": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "content": "fog",
                    "cache_control": {"type": "ephemeral"},
                }
            ],
        },
    ],
    "bedrock": [
        {"role": "user", "content": [{"text": "Look."}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "name": "look", "input": {}}}]},
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "a", "content": [{"text": "fog"}], "status": "success"}}
            ],
        },
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "Look."}]},
        {
            "role": "model",
            "parts": [{"functionCall": {"name": "look", "args": {}}, "thoughtSignature": "cw=="}],
        },
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"sky": "fog"}}}]},
    ],
}


@played
async def test_a_result_that_comes_later_than_its_call_keeps_its_providers_fields(stores: Stores) -> None:
    for name, document in DOCUMENTS.items():
        format = formats.get(name)
        async with stores.process() as sessions:
            session = await sessions.create(id=name)
            await session.append(*format.parse(document[:2]))
            await session.append(*format.parse(document[2:]))
        async with stores.process() as sessions:
            session = await sessions.open(name)
            assert format.render(await session.messages())[format.list_key] == document, name
            sent = (await session.window(WIDE)).render(format, request=True)
            assert sent[format.list_key] == document, name
