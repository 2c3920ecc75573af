"""The messages of the session benchmarks: the same messages, as the same bytes, for all contestants.

A `Book` is a list of messages in memory, for Turnstate and for raw SQLite, and a JSONL file with the same
messages, for peers. The agent's messages are turns of a question, calls, results and an answer, about 400
tokens per turn; a report is one message of about 400 tokens. `realistic` returns generated conversations as
in our tests, `brief` returns conversations with a few words per message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random

from turnstate import codec
from turnstate.message import Message
from turnstate.testing import conversations
from turnstate.testing.samples import stamp

from .window_agent import MESSAGES_A_TURN, turn, turns

BRIEF_TURNS = 50  # so a brief conversation has a hundred messages
REPORT_TURNS = 6  # the answers of this many turns make a report

_BRIEF = (
    "ok",
    "Yes, do it.",
    "Thanks!",
    "Why?",
    "No, the other file.",
    "はい、お願いします。",
    "Run the tests again, please.",
    "Done: 3 files changed.",
    "It still fails on line 40.",
    "Which branch is this on?",
)


class Book:
    """Messages, and a file of them for the peers."""

    def __init__(self, folder: Path, name: str, messages: Sequence[Message]) -> None:
        self.messages = list(messages)
        self.bodies = [codec.encode(message) for message in messages]
        self.path = str(folder / f"{name}.jsonl")
        Path(self.path).write_bytes(b"".join(body + b"\n" for body in self.bodies))

    def size(self, span: range) -> int:
        """Return the size of some messages as UTF-8 JSON, in bytes."""
        return sum(map(len, self.bodies[span.start : span.stop]))


def agent(count: int) -> list[Message]:
    """Return `count` messages of the agent."""
    return turns(-(-count // MESSAGES_A_TURN))[:count]


def talk(count: int) -> list[Message]:
    """Return `count` of the agent's questions and answers, without calls and results."""
    said = (message for message in turns(-(-count // 2)) if not (message.tool_calls or message.tool_results))
    return list(said)[:count]


def reports(count: int) -> list[Message]:
    """Return `count` messages of about 400 tokens."""
    return [_report(number) for number in range(count)]


def kinds(rounds: int) -> list[Message]:
    """Return turns of the agent, each with a report at its end: one message of each kind per round."""
    return [message for number in range(rounds) for message in (*turn(number), _report(number))]


def realistic(count: int) -> list[list[Message]]:
    """Return generated conversations, `count` messages in total, without those that only the core writes."""
    return list(_first(count, _generated()))


def brief(count: int) -> list[list[Message]]:
    """Return conversations with a few words per message, with `count` messages in total."""
    return list(_first(count, map(_briefly, range(count))))


def _report(number: int) -> Message:
    first = number * REPORT_TURNS
    answers = [list(turn(one))[-1].text for one in range(first, first + REPORT_TURNS)]
    return Message.assistant("\n".join(answers), **stamp(number, b"report"))


def _generated() -> Iterator[list[Message]]:
    for seed in range(10**6):
        yield [message for message in conversations.valid(seed) if message.role != "system"]


def _briefly(number: int) -> list[Message]:
    rng, salt = Random(number), f"brief {number}".encode()
    texts = [rng.choice(_BRIEF) for _ in range(2 * BRIEF_TURNS)]
    said = (Message.assistant if place % 2 else Message.user for place in range(len(texts)))
    return [
        say(text, **stamp(place, salt)) for place, (say, text) in enumerate(zip(said, texts, strict=True))
    ]


def _first(count: int, found: Iterable[list[Message]]) -> Iterator[list[Message]]:
    """Yield conversations until there are `count` messages; the last one may be cut."""
    for conversation in found:
        if count <= 0:
            return
        yield conversation[:count]
        count -= len(conversation)
