"""A session whose counter's name was damaged is refused, and gets its own counter back by a repair."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from verification_stage import NOW, tamper, verified

from turnstate.context.policy import Policy
from turnstate.errors import StoreDamaged
from turnstate.log.records import COUNTED_WHOLE
from turnstate.log.records import records as make_records
from turnstate.message import Message
from turnstate.session.manager import SessionManager
from turnstate.stores.verify.descriptions import DEFAULT, SHORT, lost_counter
from turnstate.tokens import counter, counter_names

pytestmark = pytest.mark.req("B1", "G6")

TALK = [
    Message.user(
        "Wie lange ist es bis Überlingen, und warum fährt heute kein Zug? 中文 too, please: 12345678"
    ),
    Message.assistant("def main(argv: list[str]) -> int:\n    return sum(len(one) for one in argv) % 256\n"),
    Message.user("¡Que aproveche! " * 9),
]


def counted(name: str, messages: Sequence[Message] = TALK) -> list[tuple[bytes, int]]:
    records = asyncio.run(make_records(messages, counter(name), Policy()))
    return [(record.body, record.tokens) for record in records]


@pytest.mark.parametrize("name", counter_names())
def test_the_counts_of_the_messages_tell_which_counter_it_was(name: str) -> None:
    lost = lost_counter("?", counted(name))
    assert counted(lost.name) == counted(name)
    assert "as the counts of its messages tell" in lost.done


def test_a_damaged_message_and_a_wrong_count_outvote_nobody() -> None:
    *others, (body, tokens) = counted("cl100k_base")
    assert lost_counter("?", [(b"{", 3), (body, tokens + 1), *others]).name == "cl100k_base"


@pytest.mark.parametrize("said", [[], [(b"Wie lange?", 9)]], ids=["nothing", "no message"])
def test_where_nothing_tells_it_is_the_default(said: list[tuple[bytes, int]]) -> None:
    lost = lost_counter("?", said)
    assert lost.name == DEFAULT
    assert "nothing tells which it was" in lost.done


def test_only_messages_are_asked_that_were_counted_as_they_stand() -> None:
    assert SHORT <= COUNTED_WHOLE


async def told(url: str, name: str) -> str:
    async with await SessionManager.open(url, counter=name, clock=lambda: NOW) as sessions:
        session = await sessions.create(idle=1)
        await session.append(*TALK)
        return session.id


def test_a_session_is_refused_until_its_counter_is_repaired(tmp_path: Path) -> None:
    path, name = tmp_path / "agent.db", "cl100k_base"
    id = asyncio.run(told(f"sqlite:///{path}", name))
    tamper(path, "UPDATE session SET counter = 'cl100k_basf'")

    async def opened() -> tuple[str, int]:
        async with await SessionManager.open(f"sqlite:///{path}", clock=lambda: NOW) as sessions:
            session = await sessions.open(id)
            await session.append(Message.user("and now?"))
            return session.row.counter, len(await session.messages())

    with pytest.raises(StoreDamaged, match=r"session .* its counter 'cl100k_basf' .* verify --repair"):
        asyncio.run(opened())
    (finding,) = verified(path, repair=True)
    assert (finding.session, finding.done) == (id, f"it is {name} now, as the counts of its messages tell")
    assert asyncio.run(opened()) == (name, len(TALK) + 1)


def test_one_damaged_session_does_not_keep_others_from_expiring(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'agent.db'}"
    damaged, sound = (asyncio.run(told(url, "o200k_base")) for _ in range(2))
    tamper(tmp_path / "agent.db", f"UPDATE session SET counter = '' WHERE id = '{damaged}'")

    async def swept() -> list[str]:
        async with await SessionManager.open(url, clock=lambda: NOW + 1_000) as sessions:
            return list(await sessions.expire())

    assert asyncio.run(swept()) == [sound]
