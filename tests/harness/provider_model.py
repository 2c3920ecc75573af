"""The model behind the local provider servers: what it reads in a conversation, and what it says.

To "turn N" it calls tools, in parallel and in some turns twice, and then says OK, the same every time.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

__all__ = [
    "FINAL",
    "REFUSAL",
    "Call",
    "Rejected",
    "Results",
    "Said",
    "Turn",
    "called",
    "next_of",
    "only",
    "reject_unless",
]

FINAL = "OK"
REFUSAL = "I cannot help with that."


class Rejected(Exception):
    """A reason to answer 400."""


class Call(NamedTuple):
    """A call; text in place of arguments is sent as it is, whether it is JSON or not."""

    name: str
    args: Any


class Said(NamedTuple):
    """What the model is to answer: calls, a refusal, or the last words."""

    calls: tuple[Call, ...] = ()
    refuses: bool = False


class Results(NamedTuple):
    """The results of one batch, by the name and the arguments of the call."""

    pairs: tuple[tuple[Call, str], ...]


Turn = str | Results | None
"""One step of a conversation: the user's words, results, or anything of the assistant."""


def next_of(steps: list[Turn]) -> Said:
    """Decide what the model says, and check that the results of this turn belong to their calls."""
    words = max(place for place, step in enumerate(steps) if isinstance(step, str))
    found = re.search(r"turn (\d+)", str(steps[words]))
    number = int(found[1]) if found else 0
    rounds = [step for step in steps[words:] if isinstance(step, Results)]
    for call, result in (pair for batch in rounds for pair in batch.pairs):
        reject_unless(call.args == {"n": number}, f"call {call} in turn {number}")
        reject_unless(result.startswith(f"{call.name} {number}"), f"{call} was answered with {result[:80]}")
    if not rounds:
        names = ["look", "listen"] + ["smell"] * (number % 7 == 0)
    elif len(rounds) == 1 and number % 5 == 0:
        names = ["look"]
    else:
        names = []
    return Said(tuple(Call(name, {"n": number}) for name in names))


def called(name: str, arguments: str) -> Call:
    """Return a call of a request; like many compatible servers, reject arguments that are no JSON."""
    reject_unless(isinstance(arguments, str), f"the arguments of {name} are no text")
    return Call(name, json.loads(arguments))


def reject_unless(condition: object, reason: str) -> None:
    if not condition:
        raise Rejected(reason)


def only(value: dict[str, Any], *keys: str, where: str) -> None:
    """Reject fields that a request does not have, and nulls in those that it may leave out."""
    reject_unless(isinstance(value, dict), f"{where}: not an object")
    for key, item in value.items():
        reject_unless(key in keys, f"{where}: unexpected field {key}")
        reject_unless(item is not None or key == "content", f"{where}: {key} is null")
