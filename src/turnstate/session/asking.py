"""Asking a model for a summary: what it is shown, how long it may take, and what is taken from it.

A request that does not fit the model's window cannot be answered, so less and less of the record is
shown: first as much as the model's window holds, then a quarter of that, then a sixteenth. What comes
back is held to the same rules however it was asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from msgspec import Struct

from ..catalog import model as model_named
from ..context.briefing import EXCERPT_CHARS
from ..context.compaction import Strategy
from ..context.manager import StateManager
from ..context.summary import Refusal, SummaryRequest, accepted, facts_of, request, text_cap
from ..decision import Cut, Summary
from ..message import Message
from ..models import Model, ModelRequest, complete

__all__ = ["PATIENCE", "Asked", "ask", "rooms"]

PATIENCE = 120.0
"""Seconds that a model may take, all tries included; by then the conversation has moved on."""

CHARS_PER_TOKEN = 2
"""Of the record: half of what English has, since code and other languages have less."""

SHARES = (1, 4, 16)


class Asked(Struct, frozen=True, kw_only=True):
    """What a model is to summarise: what leaves with a cut, after what, and with what in mind."""

    cut: Cut
    evicted: Sequence[Message]
    previous: str
    focus: str | None = None
    strategy: Strategy = Strategy()


def rooms(model: Model) -> tuple[int, ...]:
    """Give the characters of the record that a model is shown, at the first try and at later ones."""
    window = model_named(model.name).context_window
    most = min(EXCERPT_CHARS, window * CHARS_PER_TOKEN)
    return tuple(most // share for share in SHARES)


async def ask(
    model: Model, asked: Asked, manager: StateManager, *, room: int, patience: float
) -> Summary | Refusal:
    """Ask for a summary once; whatever goes wrong comes back as the reason why there is none."""
    cap = text_cap(asked.cut, manager.policy)
    facts = facts_of(asked.cut, manager.counter, manager.policy)
    left = cap - manager.counter.count(facts).tokens
    longest = asked.strategy.longest if asked.strategy.truncate else room
    wanted = request(
        asked.evicted,
        asked.previous,
        cap=left,
        focus=asked.focus,
        facts=asked.cut.summary,
        room=room,
        longest=longest,
    )
    question = ModelRequest(messages=wanted.messages, max_output=2 * left)
    try:
        answer = await complete(model, question, patience=patience)
    except TimeoutError:
        return Refusal("late", "the model gave no summary in time")
    except Exception as error:  # a model's adapter may raise anything; the session must go on
        return Refusal("error", f"{type(error).__name__}: {error}"[:200])
    if answer.reason == "length":
        return Refusal("cut-off", f"the summary was cut off by its length limit of {2 * left:,} tokens")
    text = accepted(
        answer.message.text,
        wanted,
        counter=manager.counter,
        replaced_tokens=manager.count(asked.evicted).tokens,
        template=manager.policy.summary_template,
        facts=facts,
        cap=cap,
    )
    if isinstance(text, Refusal):
        return text
    source = {
        "model": model.name,
        "prompt": _digest(wanted),
        **({"focus": asked.focus} if asked.focus else {}),
    }
    return Summary(cut=asked.cut.id, text=text, facts=facts, source=source)


def _digest(request: SummaryRequest) -> str:
    """Name a request by what it says: it follows from the log, so it can be made again and compared."""
    return hashlib.sha256(f"{request.system}\0{request.user}".encode()).hexdigest()
