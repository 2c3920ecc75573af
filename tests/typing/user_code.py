"""Code as a user would write it: it must type-check strictly as it stands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from turnstate import (
    Budget,
    Message,
    Session,
    SessionManager,
    ToolCallRequest,
    ToolCallResult,
    ToolSpec,
    errors,
    fit,
    formats,
)
from turnstate.conversation import ConversationState, FileLineTracker, ToolOrigin
from turnstate.formats import Format, Violation, same
from turnstate.log.tangents import KeptTangent


def a_turn() -> list[Message]:
    call = ToolCallRequest(name="ls", args={"path": "."})
    return [
        Message.user("what is here?"),
        Message.assistant("on it", tool_calls=[call]),
        Message.tool([ToolCallResult(tool_call_id=call.id, result=["README.md"], is_error=False)]),
    ]


def sendable(messages: list[Message], provider: str) -> dict[str, Any]:
    target: Format = formats.get(provider)
    payload: dict[str, Any] = target.render(messages, tools=[ToolSpec(name="ls")])
    violations: list[Violation] = target.validate(payload, request=True)
    if violations:
        raise errors.InvalidConversation("; ".join(violation.text for violation in violations))
    assert same(messages, target.parse(payload))
    return payload


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages if message.role == "user"]


async def a_turn_of_a_session(url: str, ask: Callable[..., Awaitable[object]]) -> int:
    async with SessionManager.open(url) as sessions:
        session = await sessions.open_or_create("s1", user="u1")
        async with session.turn(
            "look", budget=Budget(8_000, output=500), tools=[ToolSpec(name="ls")]
        ) as turn:
            while request := await turn.request("openai-chat", model="m"):
                for call in await turn.reply(await ask(**request)):
                    await turn.result(call, call.error or call.args, is_error=call.error is not None)
        pending = await session.pending()
        return len(pending.open) if pending else 0


def a_reply(response: object, chunks: list[object]) -> int:
    chat = formats.get("openai-chat")
    said, streamed = chat.reply(response), chat.collect(chunks, on_text=print)
    arguments: dict[str, object] = chat.request([said, streamed], model="m")
    return said.usage.input if said.usage else len(arguments)


def a_list(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    return fit(messages, budget=8_000)


async def a_side_trip(session: Session) -> list[str | None]:
    name: str = await session.begin_tangent()
    await session.append(Message.user("aside"), Message.assistant("there"))
    left: str | None = await session.leave_tangent("summary", summary="All is well.")
    kept: list[KeptTangent] = await session.tangents()
    assert left == name == kept[-1].name
    await session.reopen_tangent(name)
    undone: str = await session.undo(only="tangent exit")
    cleared: bool = await session.clear()
    await session.note(f"undone: {undone}, cleared: {cleared}")
    await session.change_settings(tools={ToolOrigin("builtin"): [ToolSpec(name="ls")]}, extra={"n": 1})
    known: dict[str, FileLineTracker] = await session.lines()
    await session.record_lines(dict.fromkeys(known))
    view: ConversationState = await session.conversation(last=10)
    return [entry.user.prompt for entry in view.history] if view.has_earlier else []


async def a_session(url: str) -> list[str]:
    async with await SessionManager.open(url, tenant="default") as sessions:
        session = await sessions.create(user="u1", system="You are kind.")
        receipt = await session.append(Message.user("hello"), expected_version=0, key="k")
        session = await sessions.open(session.id, user="u1")
        window = await session.window(Budget(8_000, output=1_000))
        found = [hit.message.text async for hit in sessions.search("hello", user="u1")]
        return [*found, str(receipt.version), str(window.tokens)]
