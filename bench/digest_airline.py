"""Conversations of six real dialogues in a row with an airline's agent, from the folder of TURNSTATE_DATA.

The dialogues are τ-bench's (MIT). Those are used that have a user, a reservation, a goal and a change that
succeeded. What was done is the last successful change of a dialogue, next to what it was made to.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from turnstate import formats

from .digest_talks import Fact, Talk, values

FILE = "tau-airline-dev.jsonl"
TALKS, JOINED = 20, 6
CLIPPED = 60  # characters of a goal or a constraint that must survive

_LAST, _BYE = "###STOP###", "Thank you, that is all for this one."
_CHANGES = re.compile(r"book|cancel|update_|send_certificate")
_CONSTRAINT = re.compile(
    r"\b(?:prefer|only|cheapest|don't want|do not want|at most|budget|must|no more than|instead|rather"
    r"|insurance|before|after)\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_LONG, _SHORTEST, _LONGEST = 40, 26, 219


def talks(count: int = TALKS) -> list[Talk]:
    """Return the conversations, or an empty list if the file is not there."""
    path = Path(os.environ.get("TURNSTATE_DATA", "")) / FILE
    if not path.is_file():
        return []
    rows = [json.loads(line)["messages"] for line in path.read_text("utf-8").splitlines()]
    found = [one for row in rows if (one := _Dialogue(row)).is_usable]
    return [
        _joined([found[(7 * k + 3 * j + j * j) % len(found)] for j in range(JOINED)]) for k in range(count)
    ]


class _Dialogue:
    """One dialogue, and what its messages and calls say."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.system, self.messages = messages[0]["content"], messages[1:]
        self.said = [one["content"] or "" for one in self.messages if one["role"] == "user"]
        results = {
            one["tool_call_id"]: one["content"] or "" for one in self.messages if one["role"] == "tool"
        }
        calls = [call for one in self.messages for call in one.get("tool_calls") or ()]
        args = [json.loads(call["function"]["arguments"]) for call in calls]
        self.users = [found for one in args for found in values(one, "user_id")]
        self.reservations = [found for one in args for found in values(one, "reservation_id")]
        self.payments = [found for one in args for found in values(one, "payment_id")]
        self.goal = next((said for said in self.said if len(said) > _LONG), "")
        self.done = self.target = ""
        for call, given in zip(calls, args, strict=True):
            name, result = call["function"]["name"], results.get(call["id"], "Error")
            if _CHANGES.match(name) and not result.startswith("Error"):
                made = json.loads(result) if result.startswith("{") else {}
                self.done = name
                self.target = (
                    given.get("reservation_id") or made.get("reservation_id") or given.get("user_id", "")
                )

    @property
    def is_usable(self) -> bool:
        return bool(self.users and self.reservations and self.goal and self.done)

    @property
    def constraint(self) -> str:
        sentences = (one.strip() for said in self.said for one in _SENTENCE.split(said))
        fitting = (one for one in sentences if _SHORTEST <= len(one) <= _LONGEST)
        return next((one for one in fitting if _CONSTRAINT.search(one)), "")

    def document(self, number: int) -> list[dict[str, Any]]:
        """Return the messages with ids of calls that no other dialogue has."""
        text = json.dumps(self.messages).replace(_LAST, _BYE)
        messages: list[dict[str, Any]] = json.loads(text)
        for one in messages:
            for call in one.get("tool_calls") or ():
                call["id"] = f"{number}-{call['id']}"
            if one["role"] == "tool":
                one["tool_call_id"] = f"{number}-{one['tool_call_id']}"
        return messages


def _joined(dialogues: list[_Dialogue]) -> Talk:
    documents = [message for number, one in enumerate(dialogues) for message in one.document(number)]
    messages = formats.get("openai-chat").parse({"messages": documents})
    first, _, _, fourth, fifth, *_ = dialogues
    payment = first.payments[-1] if first.payments else first.reservations[-1]
    constraint = next((one.constraint for one in dialogues[:3] if one.constraint), first.goal)
    mixed = (
        Fact("goal", (first.goal[:CLIPPED],)),
        Fact("user", (first.users[0],)),
        Fact("reservation", (first.reservations[0],)),
        Fact("done", (first.done, first.target)),
        Fact("payment", (payment,)),
        Fact("constraint", (constraint[:CLIPPED],)),
        *(fact for one in (fourth, fifth) for fact in _later(one)),
    )
    spread = tuple(
        fact
        for one in dialogues[:5]
        for fact in (Fact("user", (one.users[0],)), Fact("done", (one.done,), one.target))
    )
    return Talk(first.system, list(messages), mixed, spread)


def _later(one: _Dialogue) -> tuple[Fact, Fact]:
    return Fact("user", (one.users[0],)), Fact("done", (one.done, one.target))
