"""A turn is a loop made durable: each step is saved, a crash is continued, and a second writer is noticed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.harness.turn_answers import check_answers
from tests.unit.session.session_fixtures import Harness, entries, everything, run, texts
from turnstate import Budget, Message, SessionManager, ToolCallRequest, ToolSpec, blocking, catalog, formats
from turnstate.entry import INTERRUPTED, Usage
from turnstate.errors import Busy, Conflict, InputError, InvalidSetting, NotFound, SessionError
from turnstate.session import Pending, Session, Turn

pytestmark = pytest.mark.req("G6")

BUDGET = Budget(8_000, output=500)
TOOLS = [ToolSpec(name="look"), ToolSpec(name="listen")]


def says(text: str) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}}], "usage": {"prompt_tokens": 9}}


def calls(*names: str) -> dict[str, Any]:
    asked = [
        {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        for n, name in enumerate(names)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": asked}
    return {"choices": [{"message": message, "finish_reason": "tool_calls"}]}


class Client:
    """A provider that checks each request, and answers from a script."""

    def __init__(self, *script: dict[str, Any]) -> None:
        self._script = list(script)
        self.requests: list[dict[str, Any]] = []

    def create(self, **request: Any) -> dict[str, Any]:
        assert formats.get("openai-chat").validate(request, request=True, strict=True) == []
        self.requests.append(request)
        return self._script.pop(0)


SCRIPT = (calls("look", "listen"), calls("look"), says("It is clear."))


async def loop(turn: Turn, client: Client) -> None:
    while request := await turn.request("openai-chat", model="m"):
        for call in await turn.reply(client.create(**request)):
            await turn.result(call, f"{call.name}: fog")


SAID = ["How is the sea?", "assistant", "tool", "tool", "assistant", "tool", "It is clear."]


@run
async def test_a_turn_runs_until_the_model_calls_no_tools(harness: Harness) -> None:
    client = Client(*SCRIPT)
    session = await (await harness.manager()).open_or_create("s1", user="u1", system="You look out.")
    async with session.turn("How is the sea?", budget=BUDGET, tools=TOOLS) as turn:
        assert turn.calls == ()
        await loop(turn, client)
        assert await turn.request("openai-chat") is None
    assert await texts(session) == SAID
    assert [len(one["messages"]) for one in client.requests] == [2, 5, 7]
    assert [one["model"] for one in client.requests] == ["m"] * 3
    assert [one["function"]["name"] for one in client.requests[0]["tools"]] == ["look", "listen"]
    assert [one.input for one in await entries(session) if isinstance(one, Usage)][-1] == 9
    assert await session.pending() is None


def test_the_same_without_await(tmp_path: Path) -> None:
    client = Client(*SCRIPT)
    with blocking.SessionManager.open(f"sqlite:///{tmp_path}/agent.db") as sessions:
        session = sessions.open_or_create("s1", user="u1")
        with session.turn("How is the sea?", budget=BUDGET, tools=TOOLS) as turn:
            while request := turn.request("openai-chat", model="m"):
                for call in turn.reply(client.create(**request)):
                    turn.result(call, f"{call.name}: fog")
        assert [message.text or message.role for message in session.messages()] == SAID
        assert session.pending() is None


@run
async def test_what_is_pending_is_the_prompt_or_the_calls(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    assert await session.pending() is None
    async with session.turn("How is the sea?", budget=BUDGET) as turn:
        waiting = await session.pending()
        assert waiting is not None
        assert waiting.prompt is not None
        assert (waiting.prompt.text, waiting.open, waiting.answered) == ("How is the sea?", (), ())
        await turn.request("openai-chat")
        first, second = await turn.reply(calls("look", "listen"))
        assert await session.pending() == Pending(open=(first, second))
        await turn.result(second, "waves")
        half = await session.pending()
        assert half is not None
        assert (half.open, [one.result for one in half.answered]) == ((first,), ["waves"])
        await turn.result(first, "fog")
        done = await session.pending()
        assert done is not None
        assert (done.prompt, done.open, [one.result for one in done.answered]) == (None, (), ["fog", "waves"])
        await turn.reply(says("Clear."))
        assert await session.pending() is None


class Crash(Exception):
    """Stands for the end of a process: everything that follows in the block is lost."""


async def broken_off(session: Session, client: Client, step: int) -> None:
    """Take the turn of the script, and end after so many saved steps."""
    async with session.turn("How is the sea?", budget=BUDGET, tools=TOOLS) as turn:
        left = step
        while request := await turn.request("openai-chat"):
            for call in await turn.reply(client.create(**request)) if left else broken():
                left -= 1
                await turn.result(call, f"{call.name}: fog") if left else broken()
            left -= 1


def broken() -> Any:
    raise Crash


@run
async def test_a_turn_is_continued_wherever_it_broke_off(harness: Harness) -> None:
    """Steps that were saved are not repeated; calls without a result are there to be run again."""
    for step in range(6):
        sessions = await harness.manager()
        session = await sessions.create(id=f"s{step}")
        client = Client(*SCRIPT)
        with pytest.raises(Crash):
            await broken_off(session, client, step)
        saved = await texts(session)
        resumed = await (await harness.manager()).open(f"s{step}")
        async with resumed.turn(budget=BUDGET, tools=TOOLS) as turn:
            for call in turn.calls:
                await turn.result(call, f"{call.name}: fog, again")
            await loop(turn, client)
        assert (await texts(resumed))[: len(saved)] == saved
        assert await texts(resumed) == SAID
        assert await resumed.pending() is None


@run
async def test_calls_that_are_left_alone_are_answered_as_interrupted(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    async with session.turn("How is the sea?", budget=BUDGET, tools=TOOLS) as turn:
        await turn.request("openai-chat")
        left, answered = await turn.reply(calls("look", "listen"))
        await turn.result(answered, "waves")
    client = Client(says("I will look again later."))
    async with session.turn(budget=BUDGET, tools=TOOLS) as turn:
        assert turn.calls == (left,)
        await loop(turn, client)
    (request,) = client.requests
    outputs = {one["tool_call_id"]: one["content"] for one in request["messages"] if one["role"] == "tool"}
    assert outputs == {"call_0": INTERRUPTED, "call_1": "waves"}


@run
async def test_a_turn_without_words_and_with_nothing_pending_is_done(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    for _ in range(2):
        async with session.turn(budget=BUDGET) as turn:
            assert await turn.request("openai-chat") is None
        await session.append(Message.user("hi"), Message.assistant("hello"))


@run
async def test_a_second_writer_is_noticed_at_the_next_step_and_nothing_is_lost(harness: Harness) -> None:
    for step in range(3):
        session = await (await harness.manager()).create(id=f"s{step}")
        other = await (await harness.manager()).open(f"s{step}")
        async with session.turn("mine", budget=BUDGET) as turn:
            await turn.request("openai-chat")
            (call,) = await turn.reply(calls("look")) if step else (None,)
            await other.append(Message.user("theirs"))
            before = await everything(session)
            late: Any = (
                lambda turn=turn: turn.reply(says("late")),
                lambda turn=turn, call=call: turn.result(call, "fog"),
                lambda turn=turn: turn.request("openai-chat"),
            )[step]
            with pytest.raises(Conflict) as caught:
                await late()
            assert caught.value.version == other.version
            assert await everything(session) == before
        async with session.turn(budget=BUDGET) as turn:
            await loop(turn, Client(says("Both of you.")))
        assert {"mine", "theirs", "Both of you."} <= set(await texts(session))


@run
async def test_with_a_lease_there_is_no_second_writer(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    other = await (await harness.manager()).open("s1")
    async with session.turn("mine", budget=BUDGET, lease=True) as turn:
        with pytest.raises(Busy):
            await other.append(Message.user("theirs"))
        await loop(turn, Client(*SCRIPT))
    await other.append(Message.user("theirs"))


@run
async def test_words_under_a_key_are_saved_once_and_the_turn_continues(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    async with session.turn("How is the sea?", budget=BUDGET, tools=TOOLS, key="r1") as turn:
        await turn.request("openai-chat")
        (call,) = await turn.reply(calls("look"))
    again = await (await harness.manager()).open("s1")
    async with again.turn("How is the sea?", budget=BUDGET, tools=TOOLS, key="r1") as turn:
        assert turn.calls == (call,)
        await turn.result(call, "fog")
        await loop(turn, Client(says("Foggy.")))
    assert await texts(again) == ["How is the sea?", "assistant", "tool", "Foggy."]


@pytest.mark.parametrize("harness", ["memory", "sqlite"], indirect=True)
@run
async def test_a_turn_has_its_own_answer_also_when_its_key_is_repeated(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")

    async def opened() -> Session:
        return await (await harness.manager()).open("s1")

    await check_answers(session, opened)


@pytest.mark.parametrize("harness", ["memory", "sqlite"], indirect=True)
@run
async def test_the_answer_of_an_earlier_turn_costs_what_the_turn_costs(harness: Harness) -> None:
    manager = await harness.manager()
    session = await manager.create(id="s1")
    async with session.turn("First?", budget=BUDGET, key="r1") as turn:
        await turn.window()
        await turn.reply(Message.assistant("First."))
    rows = list[int]()

    async def reads() -> int:
        again = await (await harness.manager()).open("s1")
        await again.pending()  # what opening costs does not count
        read, count = again._writer.read, 0

        async def watched(job: Any, **settings: Any) -> Any:
            async def counted(row: Any, log: Any) -> Any:
                nonlocal count
                original = log.read

                async def read_rows(*given: Any, **options: Any) -> list[Any]:
                    nonlocal count
                    found: list[Any] = await original(*given, **options)
                    count += len(found)
                    return found

                log.read = read_rows
                return await job(row, log)

            return await read(counted, **settings)

        again._writer.read = watched  # type: ignore[assignment]
        async with again.turn("First?", budget=BUDGET, key="r1") as turn:
            assert turn.answer is not None
            assert turn.answer.text == "First."
        return count

    for length in (20, 400):
        for n in range(length):
            await session.append(Message.user(f"question {n}"), Message.assistant(f"answer {n}"))
        rows.append(await reads())
    assert 0 < rows[0] == rows[1]


def test_the_answer_without_await(tmp_path: Path) -> None:
    with blocking.SessionManager.open(f"sqlite:///{tmp_path}/agent.db") as sessions:
        session = sessions.create(id="s1")
        for key, words in (("k1", "Paris."), ("k2", "Madrid.")):
            with session.turn(key, budget=BUDGET, key=key) as turn:
                assert turn.answer is None
                turn.request("openai-chat", model="m")
                turn.reply(says(words))
                assert turn.answer
                assert turn.answer.text == words
        with sessions.open("s1").turn("k1", budget=BUDGET, key="k1") as turn:
            assert turn.request("openai-chat", model="m") is None
            assert turn.answer
            assert turn.answer.text == "Paris."


@run
async def test_results_of_parallel_calls_come_in_any_order(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    async with session.turn("How is the sea?", budget=BUDGET, tools=TOOLS) as turn:
        await turn.request("openai-chat")
        asked = await turn.reply(calls(*["look"] * 8))

        async def work(call: ToolCallRequest, delay: int) -> None:
            for _ in range(delay):
                await asyncio.sleep(0)
            await turn.result(call, delay, is_error=delay == 3)

        await asyncio.gather(*[work(call, 8 - n) for n, call in enumerate(asked)])
        await turn.result(asked[0], 8)  # the same once more changes nothing
        await loop(turn, Client(says("Done.")))
    results = [one for message in await session.messages() for one in message.tool_results]
    assert {one.tool_call_id: one.result for one in results} == {
        call.id: 8 - n for n, call in enumerate(asked)
    }
    assert [one.result for one in results if one.is_error] == [3]


@run
async def test_a_reply_is_also_taken_as_a_message_and_as_a_stream(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    delta = {"index": 0, "delta": {"content": "It is "}, "finish_reason": None}
    end = {"index": 0, "delta": {"content": "clear."}, "finish_reason": "stop"}

    async def stream() -> Any:
        for choice in (delta, end):
            yield {"choices": [choice]}

    heard: list[str] = []
    chunks = [{"choices": [delta]}, {"choices": [end]}]
    for given in (stream(), chunks):
        async with session.turn("And?", budget=BUDGET) as turn:
            await turn.request("openai-chat")
            assert await turn.collect(given, on_text=heard.append) == ()
    assert heard == ["It is ", "clear."] * 2
    async with session.turn("And?", budget=BUDGET) as turn:
        (parsed,) = formats.get("openai-chat").parse([calls("look")["choices"][0]["message"]])
        (call,) = await turn.reply(parsed)
        await turn.result(call, "fog")
        assert await turn.request("openai-chat") is not None
    assert (await texts(session))[1:4:2] == ["It is clear."] * 2


@run
async def test_what_makes_no_sense_is_refused_and_changes_nothing(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    for words in (7, b"text", ["text"], Message.assistant("no"), Message.system("no")):
        with pytest.raises(InputError):
            session.turn(words, budget=BUDGET)
    with pytest.raises(InvalidSetting, match="Budget"):
        session.turn("hi", budget=8_000)
    async with session.turn("hi", budget=BUDGET) as turn:
        before = await everything(session)
        with pytest.raises(SessionError, match=r"turn\.request"):
            await turn.reply(says("too early"))
        await turn.request("openai-chat")
        with pytest.raises(InputError, match="of the assistant"):
            await turn.reply(Message.user("no"))
        assert await everything(session) == before
        await turn.reply(calls("look", "listen"))
        with pytest.raises(SessionError, match=r"2 calls have no result: look \(call_"):
            await turn.request("openai-chat")
        look, _ = (await session.messages())[-1].tool_calls
        await turn.result(look, "fog")
        with pytest.raises(SessionError, match=r"1 call has no result: listen \(call_"):
            await turn.request("openai-chat")


@run
async def test_the_output_reserve_is_the_longest_answer_where_a_request_names_it(harness: Harness) -> None:
    session = await (await harness.manager()).create(system="Be brief.")
    async with session.turn("hi", budget=BUDGET) as turn:
        request = await turn.request("anthropic", model="m")
        assert request is not None
        assert (request["max_tokens"], request["system"]) == (500, "Be brief.")
        request = await turn.request("anthropic", model="m", max_tokens=7)
        assert request is not None
        assert request["max_tokens"] == 7


@run
async def test_an_assumed_reserve_is_not_sent_as_the_longest_answer(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    for name, most in (("claude-sonnet-9", 20_000), ("eliza-1966", 8_192), ("claude-sonnet-5-5", 128_000)):
        async with session.turn("hi", budget=Budget.of(catalog.model(name))) as turn:
            request = await turn.request("anthropic", model=name)  # which requires one
            assert request is not None
            assert request["max_tokens"] == most


@pytest.mark.req("G4")
@run
async def test_a_session_is_opened_or_created_but_never_another_users(harness: Harness) -> None:
    sessions, others = await harness.manager(), await harness.manager()
    opened = await asyncio.gather(*[one.open_or_create("s1", user="u1") for one in (sessions, others) * 3])
    await opened[0].append(Message.user("hi"))
    assert await texts(await sessions.open_or_create("s1", user="u1", system="ignored")) == ["hi"]
    with pytest.raises(NotFound):
        await sessions.open_or_create("s1", user="u2")
    assert [(row.id, row.user) for row in await sessions.list()] == [("s1", "u1")]


def test_a_store_is_opened_by_entering_it_or_by_awaiting_it(tmp_path: Path) -> None:
    async def scene() -> None:
        url = f"sqlite:///{tmp_path}/agent.db"
        async with SessionManager.open(url) as sessions:
            await sessions.create(id="s1")
        async with await SessionManager.open(url) as sessions:
            assert (await sessions.open("s1")).id == "s1"
        sessions = await SessionManager.open(url)
        await sessions.close()
        with pytest.raises(InputError):
            async with SessionManager.open(url, tenant=""):
                pass

    asyncio.run(scene())


@pytest.mark.req("P1")
@run
async def test_a_step_that_is_cancelled_is_saved_before_the_cancellation_goes_on(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    store, begun, allowed = session._writer.store, asyncio.Event(), asyncio.Event()
    commit = store.commit

    async def slow(change: Any) -> Any:
        begun.set()
        await allowed.wait()
        return await commit(change)

    async def steps() -> None:
        async with session.turn("go", budget=Budget(8_000)) as turn:
            await turn.window()
            (call,) = await turn.reply(Message.assistant(tool_calls=[ToolCallRequest(name="ls", args={})]))
            store.commit = slow  # type: ignore[method-assign]
            await turn.result(call, "a b")

    task = asyncio.ensure_future(steps())
    await begun.wait()
    task.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    allowed.set()
    await asyncio.wait([task])
    assert task.cancelled()
    pending = await session.pending()
    assert pending is not None
    assert [one.result for one in pending.answered] == ["a b"]
