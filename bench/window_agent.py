"""A simulated agent with tools: as many turns as a benchmark needs, and the same ones every time.

A turn is a question, one or two parallel calls, their results, and an answer: four messages, about 400
tokens. The text of a turn depends only on its number.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random

from turnstate.ids import CallId
from turnstate.message import Message, ToolCallRequest, ToolCallResult
from turnstate.testing.conversations import huge_output
from turnstate.testing.samples import MessageStamp, stamp

PROMPT = "You are a careful coding agent. Work in small steps, run the tests after each, and never guess."
MESSAGES_A_TURN = 4

_PARTS = "billing catalog cache deploy export gateway invoice ledger mailer nightly pool queue report".split()
_SYMPTOMS = (
    "times out after the last release",
    "returns the total of yesterday instead of today's",
    "loses the last line when the file has no newline at its end",
    "fails on customers whose name holds an umlaut",
    "retries for ever when the answer is 502",
)
_FINDINGS = (
    "the timeout is read before the configuration is loaded, so the default of two seconds applies",
    "the date is taken from the machine's clock and not from the request, which differs after midnight",
    "the loop stops one item early: the range ends before the last index",
    "the text is decoded as latin-1 on the way in and as UTF-8 on the way out",
    "the exception is swallowed, and the caller takes the empty answer for a success",
)


def turns(count: int) -> list[Message]:
    """Return the messages of `count` turns."""
    return [message for number in range(count) for message in turn(number)]


def turn(number: int) -> Iterator[Message]:
    """Yield the messages of one turn."""
    rng = Random(number)
    part, first = rng.choice(_PARTS), number * MESSAGES_A_TURN
    path = f"src/{part}/{rng.choice(_PARTS)}_{rng.randrange(400)}.py"
    yield Message.user(_question(rng, part, path), **_stamp(first))
    calls = [_call(rng, number, place, path) for place in range(rng.choice((1, 2)))]
    yield Message.assistant(f"Let me look at {path} first.", tool_calls=calls, **_stamp(first + 1))
    share = rng.randint(6, 9) // len(calls)
    results = [ToolCallResult(tool_call_id=call.id, result=_output(rng, share)) for call in calls]
    yield Message.tool(results, **_stamp(first + 2))
    yield Message.assistant(_answer(rng, path), **_stamp(first + 3))


def _question(rng: Random, part: str, path: str) -> str:
    symptom, ticket, line = rng.choice(_SYMPTOMS), rng.randrange(10**6), rng.randrange(2_000)
    return f"The {part} job {symptom}; ticket {ticket} names {path}:{line}. Find out why, and fix it."


def _call(rng: Random, number: int, place: int, path: str) -> ToolCallRequest:
    args = {"path": path, "first": rng.randrange(900), "pattern": rng.choice(_PARTS), "context": 12}
    id = CallId(f"call_{number}_{place}")
    return ToolCallRequest(id=id, name=("read_file", "search_files")[place], args=args)


def _output(rng: Random, lines: int) -> str:
    """Return some consecutive lines of a log."""
    log = _log()
    start = rng.randrange(len(log) - lines)
    return "\n".join(log[start : start + lines])


@cache
def _log() -> list[str]:
    return huge_output(10_000).split("\n")


def _answer(rng: Random, path: str) -> str:
    finding, line = rng.choice(_FINDINGS), rng.randrange(2_000)
    return (
        f"In {path}, line {line}, {finding}. I changed that line, added a test that failed before, and ran "
        f"all {rng.randrange(100, 900)} tests: they pass. Line {line + 40} has the same mistake, too."
    )


def _stamp(position: int) -> MessageStamp:
    return stamp(position, b"agent")
