"""Code as a user would write it: it must type-check strictly as it stands."""

from __future__ import annotations

from turnstate import (
    Budget,
    Message,
    SessionManager,
    ToolCallRequest,
    ToolCallResult,
    ToolSpec,
    errors,
    formats,
)
from turnstate.formats import Format, Violation, same


def a_turn() -> list[Message]:
    call = ToolCallRequest(name="ls", args={"path": "."})
    return [
        Message.user("what is here?"),
        Message.assistant("on it", tool_calls=[call]),
        Message.tool([ToolCallResult(tool_call_id=call.id, result=["README.md"], is_error=False)]),
    ]


def sendable(messages: list[Message], provider: str) -> object:
    target: Format = formats.get(provider)
    payload = target.render(messages, tools=[ToolSpec(name="ls")])
    violations: list[Violation] = target.validate(payload, request=True)
    if violations:
        raise errors.InvalidConversation("; ".join(violation.text for violation in violations))
    assert same(messages, target.parse(payload))
    return payload


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages if message.role == "user"]


async def a_session(url: str) -> list[str]:
    async with await SessionManager.open(url, tenant="default") as sessions:
        session = await sessions.create(user="u1", system="You are kind.")
        receipt = await session.append(Message.user("hello"), expected_version=0, key="k")
        session = await sessions.open(session.id, user="u1")
        window = await session.window(Budget(8_000, output=1_000))
        found = [hit.message.text async for hit in sessions.search("hello", user="u1")]
        return [*found, str(receipt.version), str(window.tokens)]
