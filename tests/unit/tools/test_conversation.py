"""The built-in tools for what left the window, run as an agent runs them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstate import (
    Budget,
    Message,
    Session,
    SessionManager,
    Strategy,
    ToolCallRequest,
    ToolCallResult,
)
from turnstate.tools import (
    CONVERSATION_TOOLS,
    MEMORY_TOOLS,
    Approvals,
    Rule,
    ToolManager,
    session_tools,
)

LONG = "\n".join(f"line {number}: quiet night on the rock" for number in range(1, 3_001))


async def result(session: Session | None, name: str, **args: Any) -> ToolCallResult:
    manager = ToolManager([*CONVERSATION_TOOLS, *MEMORY_TOOLS], approvals=Approvals([Rule("*", "allow")]))
    calls = [ToolCallRequest(name=name, args=args)]
    (found,) = [one async for one in manager.run(calls, session=session)]
    return found


def on_session(test: Callable[[Session], Any]) -> Callable[[], None]:
    async def opened() -> None:
        async with SessionManager.open("memory:") as sessions:
            await test(await sessions.create())

    def run() -> None:
        asyncio.run(opened())

    run.__name__ = test.__name__
    return run


async def ask(session: Session, *outputs: object) -> None:
    calls = [ToolCallRequest(name="look", args={}) for _ in outputs]
    results = [
        ToolCallResult(tool_call_id=call.id, result=one) for call, one in zip(calls, outputs, strict=True)
    ]
    await session.append(Message.user("Look."), Message.assistant(tool_calls=calls), Message.tool(results))


def shown_ids(message: Message) -> list[str]:
    return re.findall(r"\[Full output: (.+?)\]", str([one.result for one in message.tool_results]))


@pytest.mark.req("E4", "L3")
@on_session
async def test_an_output_is_read_by_the_id_that_its_shortened_form_shows(session: Session) -> None:
    await ask(session, LONG, {"nights": [{"night": number, "fog": "none"} for number in range(9_000)]})
    window = await session.window(Budget(100_000))
    text, table = shown_ids(window.messages[-1])
    read = (await result(session, "read_output", id=text, first_line=1_500, lines=2)).result
    assert read.splitlines() == [
        "[lines 1,500-1,501 of 3,000]",
        "line 1500: quiet night on the rock",
        "line 1501: quiet night on the rock",
    ]
    read = (await result(session, "read_output", id=table, first_line=3, lines=2)).result
    assert '"night": 0' in read
    assert (await result(session, "read_output", id=text, first_line=9_999)).result == (
        "[the output has 3,000 lines]"
    )


@pytest.mark.req("L3")
@on_session
async def test_a_wrong_id_of_an_output_says_what_to_do(session: Session) -> None:
    await ask(session, "one", "two")
    user, _, both = await session.messages()
    for wrong in ("", "nonsense", user.id, f"{both.id}/nonsense"):
        failed = await result(session, "read_output", id=wrong)
        assert failed.is_error
        assert "copy it from [Full output: …]" in failed.result
    several = await result(session, "read_output", id=both.id)
    assert several.is_error
    assert f"{both.id}/{both.tool_results[1].tool_call_id}" in several.result


@pytest.mark.req("L3")
@on_session
async def test_the_conversation_is_searched_also_where_it_is_hidden(session: Session) -> None:
    await session.append(Message.user("The password of the lamp room is heron."), Message.assistant("Noted."))
    await ask(session, "a heron was seen on the gallery " + "x " * 1_000)
    await session.compact(Budget(8_000), strategy=Strategy(keep=0), model=False)
    found = (await result(session, "search_conversation", query="heron")).result.splitlines()
    assert ["tool output" in line for line in found] == [True, False]
    assert all("heron" in line and len(line) < 400 for line in found)
    assert (await result(session, "search_conversation", query="albatross")).result == "[no hit]"
    assert (await result(session, "search_conversation", query="!")).is_error
    assert "there is no session" in (await result(None, "search_conversation", query="heron")).result


@pytest.mark.req("L3")
def test_memory_is_offered_only_by_a_session_that_has_one(tmp_path: Path) -> None:
    async def remembered() -> None:
        async with SessionManager.open(f"sqlite:///{tmp_path}/a.db", memory="builtin") as sessions:
            nobody = await sessions.create()
            assert session_tools(nobody) == CONVERSATION_TOOLS
            assert "has no long-term memory" in (await result(nobody, "recall", query="tea")).result
            session = await sessions.create(user="ann")
            assert session_tools(session) == (*CONVERSATION_TOOLS, *MEMORY_TOOLS)
            assert (await result(session, "recall", query="tea")).result == "[nothing is remembered of that]"
            assert (
                await result(session, "remember", text="Ann drinks tea with milk.")
            ).result == "Remembered."
            other = await sessions.create(user="ann")
            assert "tea with milk" in (await result(other, "recall", query="tea")).result
            changed = await result(other, "correct", fact="tea with milk", value="Ann drinks tea.")
            assert changed.result == "Corrected. note: Ann drinks tea."
            unknown = await result(other, "forget", fact="coffee")
            assert unknown.is_error
            assert "no such fact is known" in str(unknown.result)
            assert "note: Ann drinks tea." in str(unknown.result)
            gone = await result(other, "forget", fact="Ann drinks tea.")
            assert gone.result == "Forgotten. note: Ann drinks tea."
            assert await other.facts() == []

    asyncio.run(remembered())
