"""Forgetting and delivering at the same moment: whoever is first, nothing comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from tests.harness.postgres_server import execute, fresh_url
from tests.harness.thoroughness import report, rng, runs
from turnstate import Message
from turnstate.memory import Evicted, Listed, SessionRecord, User
from turnstate.memory.builtin import BuiltinEngine, connect
from turnstate.stores.postgres.server import target
from turnstate.stores.values import Address

TIME = "2025-06-15T12:00:00Z"


async def race(engines: list[BuiltinEngine], number: int, random: Random) -> list[str]:
    """Deliver the same session from two engines while a third forgets it; return what came back."""
    user, session = User("t", f"user {number}"), f"s{number}"
    texts = [f"I live in Porto, boat {n}." for n in range(random.randrange(1, 40))]
    messages = [Message.user(text, id=f"m{n}", timestamp=TIME) for n, text in enumerate(texts)]
    whose = user if number % 2 else Address("t", session)
    common = {"tenant": "t", "session": session, "user": user.id, "epoch": 1, "since": 1}
    ended = SessionRecord(
        key=f"end {number}",
        messages=Listed(messages),
        reason="end",
        started=1,
        ended=2,
        summary="boats",
        **common,
    )
    left = Evicted(key=f"cut {number}", messages=Listed(messages[: len(messages) // 2]), **common)

    async def later(work: object) -> None:
        await asyncio.sleep(random.random() * 0.01)
        await work  # type: ignore[misc]

    one, two, three = engines
    await asyncio.gather(
        later(one.archive(left, "boats")),
        later(two.ingest(ended)),
        later(three.forget(whose)),
        later(one.ingest(ended)),
    )
    await two.ingest(ended)  # and once more, long after
    found = [hit.text for hit in await one.search(user, "boat Porto", 99)]
    found += [fact.text for fact in await two.facts(user)]
    return [*found, await three.profile(user)] if found else []


@pytest.mark.req("F3", "G9")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_nothing_that_was_forgotten_comes_back(
    kind: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    random, count = rng(f"memory races {kind}"), runs(10, long=200)

    async def test(address: str) -> list[str]:
        engines = [await connect(address) for _ in range(3)]
        try:
            return [text for number in range(count) for text in await race(engines, number, random)]
        finally:
            for engine in engines:
                await engine.close()

    with ExitStack() as stack:
        address = str(tmp_path / "memory.db")
        if kind == "postgres":
            address = stack.enter_context(fresh_url())
            stack.callback(execute, f"DROP SCHEMA IF EXISTS {target(address).schema}_memory CASCADE")
        assert asyncio.run(test(address)) == []
    report(record_property, f"races of forgetting and delivering, {kind}", races=count)
