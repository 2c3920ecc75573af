"""Digests: how many facts a window still has after cuts, compared with plain ways of trimming a list.

Two kinds of conversations: real dialogues with an airline's agent, and generated ones with a coding agent. In
each, a window is made before every answer, as an agent does; then the user asks one more question, and that
window is judged. *Mixed* facts are goal, ids, constraints, decisions and changes of some parts; *spread* are
the changes of the first five parts, each next to what it was made to. Trimming is `trim_messages` of
LangChain, which keeps the newest messages, and the first 30% of the room with the newest messages after it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from turnstate import Budget, SessionManager
from turnstate.context.manager import StateManager
from turnstate.message import Message

from . import digest_airline, digest_coding, window_peer
from .digest_talks import Fact, Talk, survives, text_of
from .peer_process import PeerMissing
from .window_print import goal, table
from .window_validity import asked

LIMITS = (4_000, 8_000, 16_000)
HEAD = 0.3
ASKED = "One more question about what we did so far."

Windows = dict[int, list[str]]
"""The texts of the windows of some conversations, by limit."""


def main(count: int = digest_airline.TALKS) -> None:
    """Print which facts survive."""
    airline = digest_airline.talks(count)
    if not airline:
        print(f"without the airline's dialogues: set TURNSTATE_DATA to a folder with {digest_airline.FILE}")
    sets = {
        "Airline": airline,
        "Coding agent, tuned on": digest_coding.talks(count=count),
        "Coding agent, set aside": digest_coding.talks(held_out=True, count=count),
    }
    for title, talks in sets.items():
        if talks:
            print(f"\n## {title}")
            _report(talks, airline=talks is airline)


def _report(talks: list[Talk], *, airline: bool) -> None:
    ways: dict[str, Windows] = {"Turnstate": asyncio.run(_ours(talks))}
    try:
        ways["trim_messages"] = _trimmed(talks)
    except PeerMissing as missing:
        print(f"without the peer: {missing}")
    ways["head + tail"] = {limit: [_ends(talk, limit) for talk in talks] for limit in LIMITS}
    for name, facts in (("mixed", _mixed), ("spread", _spread)):
        print(f"\nFacts that survive, {name}, of {_most(talks, facts):.3g}.")
        rows = [
            [way, *(f"{_mean(talks, found[limit], facts):.2f}" for limit in LIMITS)]
            for way, found in ways.items()
        ]
        table(("way", *(f"{limit:,}" for limit in LIMITS)), rows)
    print("\nSurvivors by kind, with Turnstate.")
    kinds = [_by_kind(talks, ways["Turnstate"][limit]) for limit in LIMITS]
    table(
        ("kind", *(f"{limit:,}" for limit in LIMITS), "of"),
        [[kind, *(str(found[kind]) for found, _ in kinds), str(kinds[0][1][kind])] for kind in kinds[0][1]],
    )
    for limit, (list_least, spread_least, constraints) in _GOALS.items() if airline else ():
        texts = ways["Turnstate"][limit]
        for name, facts, least in (("mixed", _mixed, list_least), ("spread", _spread, spread_least)):
            found = _mean(talks, texts, facts)
            goal(f"{name} at {limit:,}: at least {least} of 10", f"{found:.2f}", found >= least)
        kept = _by_kind(talks, texts)[0]["constraint"]
        goal(f"constraints at {limit:,}: at least {constraints} of 20", str(kept), kept >= constraints)


_GOALS = {4_000: (8.0, 8.5, 14), 8_000: (9.2, 9.2, 18)}

_Facts = Callable[[Talk], Sequence[Fact]]


def _mixed(talk: Talk) -> Sequence[Fact]:
    return talk.mixed


def _spread(talk: Talk) -> Sequence[Fact]:
    return talk.spread


def _most(talks: list[Talk], facts: _Facts) -> float:
    return sum(len(facts(talk)) for talk in talks) / len(talks)


def _mean(talks: list[Talk], texts: list[str], facts: _Facts) -> float:
    return sum(
        survives(fact, text) for talk, text in zip(talks, texts, strict=True) for fact in facts(talk)
    ) / len(talks)


def _by_kind(talks: list[Talk], texts: list[str]) -> tuple[Counter[str], Counter[str]]:
    """Count the mixed facts of each kind: those that survive, and all."""
    found, all_of = Counter[str](), Counter[str]()
    for talk, text in zip(talks, texts, strict=True):
        all_of.update(fact.kind for fact in talk.mixed)
        found.update(fact.kind for fact in talk.mixed if survives(fact, text))
    return found, all_of


# The ways.


async def _ours(talks: list[Talk]) -> Windows:
    async with SessionManager.open("memory:") as sessions:
        return {limit: [await _played(sessions, talk, limit) for talk in talks] for limit in LIMITS}


async def _played(sessions: SessionManager, talk: Talk, limit: int) -> str:
    session, budget = await sessions.create(system=talk.system), Budget(limit)
    for message in talk.messages:
        if message.role == "assistant":
            await session.window(budget)
        await session.append(message)
    await session.append(Message.user(ASKED))
    return text_of((await session.window(budget)).messages)


def _trimmed(talks: list[Talk]) -> Windows:
    whole = [_whole(talk) for talk in talks]
    peer = window_peer.Peer([], asked([(one, limit) for limit in LIMITS for one in whole]))
    try:
        kept = iter(peer.windows()["human"])
    finally:
        peer.close()
    return {limit: [text_of(window_peer.kept(one, next(kept))) for one in whole] for limit in LIMITS}


def _ends(talk: Talk, limit: int) -> str:
    """Return the text of what is left if the first 30% of the room and the newest messages are kept."""
    system, *messages = _whole(talk)
    cost = StateManager().count
    room = limit - cost([system]).tokens
    head = _fitting(messages, lambda some: cost(some).tokens <= HEAD * room)
    left = room - cost(messages[:head]).tokens
    tail = _fitting(messages[: head - len(messages) - 1 : -1], lambda some: cost(some).tokens <= left)
    return text_of([system, *messages[:head], *messages[len(messages) - tail :]])


def _fitting(messages: Sequence[Message], fits: Callable[[Sequence[Message]], bool]) -> int:
    return max((n for n in range(len(messages) + 1) if fits(messages[:n])), default=0)


def _whole(talk: Talk) -> list[Message]:
    return [Message.system(talk.system), *talk.messages, Message.user(ASKED)]


if __name__ == "__main__":
    main()
