"""Messages that a format parsed get ids of their own when they join a session; a receipt says which."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.session.session_fixtures import Harness, entries, run
from turnstate import Budget, Message, formats, ids
from turnstate.archive import adopt
from turnstate.entry import Usage
from turnstate.errors import KeyReused
from turnstate.session import Session

pytestmark = pytest.mark.req("A4", "A5", "G5")

CHAT = formats.get("openai-chat")
WIDE = Budget(window=1_000_000)


def asking(number: int = 0) -> dict[str, Any]:
    """Return an assistant's wire message with two calls, whose ids are the same every time."""
    calls = [
        {
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": "look", "arguments": f'{{"n": {number}}}'},
        }
        for n in range(2)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def answering(n: int, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{n}", "content": content}


OK = {"role": "assistant", "content": "OK"}


async def pairs(session: Session) -> list[tuple[Any, Any]]:
    """Return the arguments of each call with its result."""
    messages = await session.messages()
    results = {one.tool_call_id: one.result for message in messages for one in message.tool_results}
    return [(call.args["n"], results.get(call.id)) for message in messages for call in message.tool_calls]


async def valid(session: Session) -> None:
    window = await session.window(WIDE)
    for name in formats.names():
        formats.get(name).request([*window.messages, Message.user("And now?")])
    messages = await session.messages()
    named = [message.id for message in messages] + [call.id for one in messages for call in one.tool_calls]
    assert len(set(named)) == len(named)
    assert not any(map(ids.is_derived, named))


@run
async def test_each_wire_message_can_be_parsed_and_appended_by_itself(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    for number in range(200):
        for wire in (
            {"role": "user", "content": "go on"},
            asking(number),
            answering(1, f"b{number}"),
            answering(0, f"a{number}"),
            OK,
        ):
            await session.append(*CHAT.parse([wire]))
    assert await pairs(session) == [(n, f"{which}{n}") for n in range(200) for which in "ab"]
    await valid(session)


@run
async def test_the_whole_list_can_be_parsed_again_each_turn(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create(id="s1")
    history: list[dict[str, Any]] = []
    done = 0
    for number in range(25):
        for more in (
            [{"role": "user", "content": "go on"}, asking(number)],
            [answering(0, f"a{number}")],
            [answering(1, f"b{number}"), OK],
        ):
            history += more
            session = await sessions.open("s1")  # as another process would: nothing is known of the list
            await session.append(*CHAT.parse(history)[done:])
            done = len(history)
    assert await pairs(session) == [(n, f"{which}{n}") for n in range(25) for which in "ab"]
    assert CHAT.render(await session.messages()) == {"messages": history}
    await valid(session)


@run
async def test_a_retry_under_its_key_gets_the_first_ids_before_and_after_the_answer(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await session.append(Message.user("go"))
    said = CHAT.parse([asking()])
    first = await session.append(*said, key="asked")
    assert set(first.ids) == {said[0].id, *(call.id for call in said[0].tool_calls)}
    # Parsed again at another place of a list, the same message has other derived ids.
    again = CHAT.parse([OK, asking()])[1:]
    for _ in range(2):
        receipt = await session.append(*again, key="asked")
        assert receipt.repeated
        assert [receipt.ids[call.id] for call in again[0].tool_calls] == [
            first.ids[call.id] for call in said[0].tool_calls
        ]
        assert receipt.ids[again[0].id] == first.ids[said[0].id]
        results = CHAT.parse([asking(), answering(1, "b"), answering(0, "a")])[1:]
        answered = await session.append(*results, key="answered")
    assert answered.repeated
    moved = CHAT.parse([OK, asking(), answering(1, "b"), answering(0, "a")])[2:]
    assert (await session.append(*moved, key="answered")).ids[moved[1].id] == answered.ids[results[1].id]
    assert await pairs(session) == [(0, "a"), (0, "b")]
    with pytest.raises(KeyReused):
        await session.append(*CHAT.parse([asking(7)]), key="asked")
    stored = {message.id for message in await session.messages()}
    assert {answered.ids[one.id] for one in results} <= stored


@run
async def test_calls_and_results_of_one_request_change_together(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    document = [{"role": "user", "content": "go"}, asking(), answering(1, "b"), answering(0, "a"), OK]
    for _ in range(2):
        given = CHAT.parse(document)
        receipt = await session.append(*given)
        stored = await session.messages(last=len(given))
        assert [receipt.ids[one.id] for one in given] == [one.id for one in stored]
        assert all(one.timestamp > "2020" for one in stored)
    assert await pairs(session) == [(0, "a"), (0, "b")] * 2
    await valid(session)


@run
async def test_ids_that_were_not_derived_stay(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    said = Message.user("mine", id="my-own-id", timestamp="1970-01-01T00:00:00Z")
    assert (await session.append(said)).ids == {"my-own-id": "my-own-id"}
    assert await session.messages() == [said]


@run
async def test_a_reply_brings_its_usage_as_an_entry_after_it(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    response = {
        "id": "chatcmpl-1",
        "model": "m",
        "choices": [{"message": OK, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2},
    }
    await session.append(Message.user("go"))
    for _ in range(2):  # the same reply twice is two messages
        reply = CHAT.reply(response)
        receipt = await session.append(reply)
        assert receipt.ids == {reply.id: reply.id}
    *_, message, usage = await entries(session)
    assert message == reply.without_usage
    assert (
        usage
        == reply.usage
        == Usage(
            input=7,
            output=2,
            model="m",
            details={"id": "chatcmpl-1", "finish_reason": "stop", "usage": response["usage"]},
        )
    )
    assert len(await session.messages()) == 3
    await valid(session)


@run
async def test_an_import_keeps_its_ids_and_the_conversation_goes_on_from_there(harness: Harness) -> None:
    sessions = await harness.manager()
    history = [{"role": "user", "content": "go"}, asking()]
    document = CHAT.parse(history)
    await adopt(sessions.store, sessions.tenant, document, id="s1", now=harness.clock())
    session = await sessions.open("s1")
    assert await session.messages() == document
    history += [answering(0, "a"), answering(1, "b"), asking(1), answering(0, "c")]
    await session.append(*CHAT.parse(history)[2:5])
    await session.append(*CHAT.parse(history)[5:])
    assert await pairs(session) == [(0, "a"), (0, "b"), (1, "c"), (1, None)]
    await session.append(*CHAT.parse([answering(1, "d")]))
    assert (await pairs(session))[-1] == (1, "d")
