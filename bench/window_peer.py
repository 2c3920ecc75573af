"""The peer in the window benchmarks: LangChain's `trim_messages`, in its own environment.

A conversation is sent as rows: a tool message with several results becomes several rows, since the peer has
one message per result. Each row contains the texts that cost tokens and the rest of its cost, so that the
peer and Turnstate count the same.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from turnstate.message import Message
from turnstate.tokens import Count, message_cost
from turnstate.tokens.cost import MESSAGE_FRAME, REPLY_START

from .peer_process import PeerMissing, PeerProcess, Script

SCRIPT = Script("langchain_trim", "langchain-core", ("langchain-core", "tiktoken", "bpe-openai"))

Row = dict[str, Any]


class Texts:
    """A counter that counts nothing and remembers what it was asked to count."""

    name = "o200k_base"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def count(self, text: str) -> Count:
        """Remember a text."""
        self.asked.append(text)
        return Count(0)


def texts(messages: Iterable[Message]) -> list[str]:
    """Return all texts in some messages that cost tokens."""
    found = Texts()
    for message in messages:
        message_cost(message, found)
    return found.asked


def rows(messages: Sequence[Message]) -> list[Row]:
    """Return a conversation as rows for the peer."""
    return [row for index, message in enumerate(messages) for row in _rows(index, message)]


def kept(messages: Sequence[Message], ids: Iterable[str]) -> list[Message]:
    """Return the messages that the peer kept, each with the results that remain of it."""
    places: dict[int, list[int]] = {}
    for id in ids:
        index, number = map(int, id.split("."))
        places.setdefault(index, []).append(number)
    return [_portion(messages[index], numbers) for index, numbers in places.items()]


class Peer:
    """A running peer with a long history and some cases; it answers one question at a time."""

    def __init__(self, history: Sequence[Message], cases: list[Row]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        file = Path(self._folder.name) / "given.json"
        listed = rows(history)
        file.write_text(json.dumps({"history": listed, "cases": cases}))
        self._starts = {row["id"]: place for place, row in enumerate(listed)}
        self._length = len(history)
        try:
            self._process = PeerProcess(SCRIPT, str(file))
        except PeerMissing:
            self._folder.cleanup()
            raise
        self.versions = self._process.versions

    def times(self, size: int, limit: int, rounds: int) -> dict[str, float]:
        """Return the times of a window of the newest messages, with counting and with known counts."""
        start = self._starts[f"{self._length - size}.0"]
        found: dict[str, float] = self._process.ask(
            {"start": start, "limit": limit - REPLY_START, "rounds": rounds}
        )
        return found

    def windows(self) -> dict[str, list[list[str]]]:
        """Return the ids that the peer keeps of every case, by mode."""
        found: dict[str, list[list[str]]] = self._process.ask(None)
        return found

    def close(self) -> None:
        """End the peer process."""
        self._process.end()
        self._folder.cleanup()


def _rows(index: int, message: Message) -> Iterator[Row]:
    row = {"id": f"{index}.0", "role": message.role, "content": message.text}
    if message.role != "tool":
        calls = [{"id": call.id, "name": call.name, "args": call.args} for call in message.tool_calls]
        yield row | {"calls": calls} | _cost(message)
        return
    last = len(message.tool_results) - 1
    for number, result in enumerate(message.tool_results):
        cost = _cost(Message.tool([result], id=message.id, timestamp=message.timestamp))
        cost["frame"] -= MESSAGE_FRAME if number < last else 0  # the peer keeps the end of a message
        row |= {"id": f"{index}.{number}", "content": "\n".join(cost["texts"]), "call": result.tool_call_id}
        yield row | cost


def _cost(message: Message) -> dict[str, Any]:
    found = Texts()
    return {"frame": message_cost(message, found).tokens, "texts": found.asked}


def _portion(message: Message, numbers: list[int]) -> Message:
    if message.role != "tool" or len(numbers) == len(message.tool_results):
        return message
    return message.replace(tool_results=tuple(message.tool_results[number] for number in numbers))
