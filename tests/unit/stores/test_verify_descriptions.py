"""A session whose counter's name is damaged is refused until a repair sets the default counter."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.unit.stores.verification_fixtures import NOW, tamper, verified
from turnstate.errors import StoreDamaged
from turnstate.log.records import recount
from turnstate.message import Message
from turnstate.session.manager import SessionManager
from turnstate.stores.values import MESSAGE, Span
from turnstate.stores.verify.descriptions import DEFAULT_COUNTER
from turnstate.tokens import counter, message_cost

pytestmark = pytest.mark.req("B1", "G6")

TALK = [
    Message.user(
        "Wie lange ist es bis Überlingen, und warum fährt heute kein Zug? 中文 too, please: 12345678"
    ),
    Message.assistant("def main(argv: list[str]) -> int:\n    return sum(len(one) for one in argv) % 256\n"),
    Message.user("¡Que aproveche! " * 9),
]


async def created(url: str, name: str) -> str:
    async with await SessionManager.open(url, counter=name, clock=lambda: NOW) as sessions:
        session = await sessions.create(idle=1)
        await session.append(*TALK)
        return session.id


def test_a_session_is_refused_until_its_counter_is_repaired(tmp_path: Path) -> None:
    path, name = tmp_path / "agent.db", "cl100k_base"
    id = asyncio.run(created(f"sqlite:///{path}", name))
    tamper(path, "UPDATE session SET counter = 'cl100k_basf'")

    async def opened() -> tuple[str, list[int]]:
        async with await SessionManager.open(f"sqlite:///{path}", clock=lambda: NOW) as sessions:
            session = await sessions.open(id)
            await session.append(Message.user("and now?"))
            rows = await sessions.store.read(session._row.address, Span(1, 1, 99))
            return session._row.counter, [row.tokens for row in rows if row.kind == MESSAGE]

    with pytest.raises(StoreDamaged, match=r"session .* its counter 'cl100k_basf' .* verify --repair"):
        asyncio.run(opened())
    first, *others = verified(path, repair=True, recount=recount)
    assert first.session == id
    assert first.done.startswith(f"set to {DEFAULT_COUNTER}; `turnstate verify --deep --repair`")
    assert all("token" in one.fault or "total" in one.fault or "head" in one.fault for one in others), others
    name, tokens = asyncio.run(opened())
    assert name == DEFAULT_COUNTER
    exact = counter(DEFAULT_COUNTER)
    assert tokens[:-1] == [message_cost(message, exact).tokens for message in TALK]


def test_one_damaged_session_does_not_keep_others_from_expiring(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'agent.db'}"
    damaged, sound = (asyncio.run(created(url, "o200k_base")) for _ in range(2))
    tamper(tmp_path / "agent.db", f"UPDATE session SET counter = '' WHERE id = '{damaged}'")

    async def swept() -> list[str]:
        async with await SessionManager.open(url, clock=lambda: NOW + 1_000) as sessions:
            return list(await sessions.expire())

    assert asyncio.run(swept()) == [sound]
