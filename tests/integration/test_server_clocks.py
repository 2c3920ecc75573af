"""A worker whose clock differs from that of the server ends no idle session, and forgets no key."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.harness.postgres_server import fresh_url
from tests.harness.valkey_server import fresh_cluster, fresh_server
from turnstate import Message, SessionManager
from turnstate.errors import ClockSkew, KeyReused
from turnstate.ids import wall_clock

pytestmark = pytest.mark.req("G8")

MINUTE = 60_000


@pytest.fixture(params=["postgresql", "valkey", "cluster"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "postgresql":
        with fresh_url() as found:
            yield found
    else:
        yield fresh_server() if request.param == "valkey" else fresh_cluster()


@pytest.mark.parametrize("wrong", [MINUTE + 10_000, -MINUTE - 10_000, 24 * 60 * MINUTE])
def test_a_clock_that_differs_from_the_server_s_ends_nothing(url: str, wrong: int) -> None:
    def off() -> int:
        return wall_clock() + wrong

    async def scene() -> None:
        async with await SessionManager.open(url, idle=0.001, clock=off) as sessions:
            session = await sessions.create(id="s1")
            await asyncio.sleep(0.01)
            with pytest.raises(ClockSkew, match="ahead of" if wrong > 0 else "behind"):
                await sessions.expire()
            assert (await sessions.open("s1"))._row.ended is None
            await session.append(Message.user("still here"))
        async with await SessionManager.open(url) as sessions:
            if wrong < 0:
                assert list(await sessions.expire()) == ["s1"]
            else:
                assert list(await sessions.expire()) == []  # used in what is the future here

    asyncio.run(scene())


@pytest.mark.req("G5")
@pytest.mark.parametrize("years", [3, 50])
def test_a_worker_whose_clock_is_years_ahead_forgets_no_key(url: str, years: int) -> None:
    async def scene() -> None:
        async with await SessionManager.open(url) as sessions:
            session = await sessions.create(id="s1")
            await session.append(Message.user("pay"), key="k")
        ahead = years * 365 * 24 * 60 * MINUTE
        async with await SessionManager.open(url, clock=lambda: wall_clock() + ahead) as sessions:
            session = await sessions.open("s1")
            await session.append(Message.user("hello"), key="other")  # it forgets keys that are too old
            together = [session.append(Message.user("hello"), key=f"{number}") for number in range(5)]
            await asyncio.gather(*together)  # PostgreSQL takes these in one call
            assert (await session.append(Message.user("pay"), key="k")).repeated
            with pytest.raises(KeyReused):
                await session.append(Message.user("pay twice"), key="k")

    asyncio.run(scene())


def test_a_clock_that_agrees_with_the_server_s_ends_what_is_idle(url: str) -> None:
    async def scene() -> None:
        async with await SessionManager.open(url, idle=0.001) as sessions:
            session = await sessions.create(id="s1")
            async with session.lease():
                await asyncio.sleep(0.01)
                assert list(await sessions.expire()) == []
            await asyncio.sleep(0.01)
            assert list(await sessions.expire()) == ["s1"]

    asyncio.run(scene())
