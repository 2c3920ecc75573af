"""A program that works on a long text and prints the most bytes that one call of the JSON library had.

It is run in a process of its own, since it counts the calls of every encoder and decoder of the package.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import msgspec

largest = {"encode": 0, "decode": 0, "format": 0}


def noted(kind: str, size: int) -> None:
    largest[kind] = max(largest[kind], size)


def encoding(real: Callable[..., bytes]) -> Callable[..., bytes]:
    def encode(*args: Any, **named: Any) -> bytes:
        data = real(*args, **named)
        noted("encode", len(data))
        return data

    return encode


def decoding(real: Callable[..., Any], kind: str = "decode") -> Callable[..., Any]:
    def decode(data: Any, *args: Any, **named: Any) -> Any:
        noted(kind, len(data))
        return real(data, *args, **named)

    return decode


class Encoder:
    """An encoder that notes how much it writes at once."""

    def __init__(self, **named: Any) -> None:
        real = _Encoder(**named)
        self.encode, self.order = encoding(real.encode), real.order


class Decoder:
    """A decoder that notes how much it reads at once."""

    def __init__(self, *args: Any, **named: Any) -> None:
        self.decode = decoding(_Decoder(*args, **named).decode)


_Encoder, _Decoder = msgspec.json.Encoder, msgspec.json.Decoder


def watch() -> None:
    """Have all calls of the JSON library noted; nothing of the package may be imported yet."""
    assert "turnstate" not in sys.modules
    library: Any = msgspec.json
    library.Encoder, library.Decoder = Encoder, Decoder
    library.encode, library.decode = encoding(library.encode), decoding(library.decode)
    library.format = decoding(library.format, "format")


async def work(url: str, text: str) -> None:
    """Do what a session does with a text: with an output, which windows shorten, and with all the rest."""
    from turnstate import Budget, SessionManager

    async with await SessionManager.open(url, counter="estimate") as sessions:
        await said(sessions, words="keeper", output=text, budget=Budget(8_000))
        await said(sessions, words=text, output="none", budget=Budget(100_000_000))


async def said(sessions: Any, words: str, output: str, budget: Any) -> None:
    from turnstate import Message, ToolCallRequest, ToolCallResult

    session = await sessions.create(system=words)
    call = ToolCallRequest(name="write", args={"text": words})
    answer = Message.tool([ToolCallResult(tool_call_id=call.id, result={"out": [output]})])
    asked = Message.user(words)
    await session.append(asked, Message.assistant(words, tool_calls=[call]), key="asked")
    for _ in range(2):
        await session.append(answer, key="answered")
    await session.preview(budget)
    await session.window(budget)
    await session.messages(last=2)
    await session.snapshot()
    again = await sessions.open(session.id)
    assert (await again.messages())[-1] == answer
    await again.window(budget)
    await again.conversation(last=10)
    await again.begin_tangent()
    await again.append(Message.user(words), Message.assistant(words))
    await again.leave_tangent("tail")
    await again.undo()
    assert [hit async for hit in sessions.search("keeper")]
    await again.fork(at=asked.id)


if __name__ == "__main__":
    watch()
    asyncio.run(work(sys.argv[1], "keeper " + chr(int(sys.argv[2])) * int(sys.argv[3])))
    print(msgspec.json.encode(largest).decode())
