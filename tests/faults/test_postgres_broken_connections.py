"""The connection to PostgreSQL breaks at every exchange of every operation of a session.

The Nth request does not arrive, or the Nth answer, for every N. The caller gets success or an error that
says the outcome is unknown; the operation was done completely or not at all, and the same handle works
afterwards. In other tests the server ends connections or cancels queries at random.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from tests.faults.postgres_faults import END, broken, create_sessions, proxied, schema
from tests.faults.postgres_writers import PAUSE, USER, Writers, numbered
from tests.faults.promises import Promises, losses
from tests.harness.postgres_proxy import Proxy
from tests.harness.postgres_server import executed, local_server
from tests.harness.thoroughness import LONG, report, rng, runs
from turnstate import Message
from turnstate.errors import Busy, EpochEnded, NotFound, StoreUnavailable, TurnstateError
from turnstate.session.manager import SessionManager
from turnstate.session.session import Session
from turnstate.stores.postgres.connections import Connections
from turnstate.stores.values import SessionFilter, Span

Operation = Callable[[SessionManager, Session], Awaitable[object]]
OPERATIONS: dict[str, Operation] = {
    "create": lambda sessions, session: sessions.create(user=f"of {session.id}", system="Be brief."),
    "append": lambda _, session: session.append(Message.user("x"), Message.assistant("y")),
    "append under a key": lambda _, session: session.append(Message.user("x"), key="k"),
    "set_system": lambda _, session: session.set_system("Be brief."),
    "fork": lambda _, session: session.fork(name="f"),
    "undo": lambda _, session: session.undo(),
    "reset": lambda _, session: session.reset(),
    "end": lambda _, session: session.end(),
    "rename": lambda _, session: session.rename("t"),
    "annotate": lambda _, session: session.annotate({"a": 1}),
    "acquire": lambda _, session: session.acquire(seconds=60),
    "destroy": lambda sessions, session: sessions.destroy(session.id),
}
AGAIN, UNKNOWN = "done at the second attempt", "nobody knows"
TERMINATE, CANCEL = "pg_terminate_backend", "pg_cancel_backend"
LANES = 8
MOST_TIMES = 1_000  # interruptions, if all of them happen to come between two appends
QUICK = 3  # operations of the quick version, besides the append


class Stores(NamedTuple):
    """A store through a proxy, and past it."""

    through: SessionManager
    past: SessionManager
    proxy: Proxy


async def begin(sessions: SessionManager) -> Session:
    """Create a session with a short history."""
    session = await sessions.create(user=USER)
    await session.append(Message.user("a"), Message.assistant("b"))
    await session.fork()
    await session.append(Message.user("c"))
    return session


async def state(sessions: SessionManager, id: str) -> tuple[Any, ...]:
    """Return the state of a session, and of those created for it, without ids and times."""
    own = await sessions.store.page(sessions.tenant, SessionFilter(user=f"of {id}"))
    try:
        session = await sessions.open(id, user=USER)
    except NotFound:
        return (len(own),)
    row, branches = session._row, await session.branches()
    entries = [
        await sessions.store.read(row.address, Span(one.id, one.fork_seq + 1, END)) for one in branches
    ]
    parcels = [one for one in await sessions.store.parcels(limit=10_000) if one.session == id]
    return (
        *(
            len(own),
            len(parcels),
            row.title,
            row.meta,
            row.epoch,
            row.version,
            row.head,
            row.fence,
            row.reason,
        ),
        [(one.operation, one.name, one.parent, one.fork_seq) for one in branches],
        [[(one.kind, one.tokens, one.total) for one in run] for run in entries],
    )


async def goes_on(session: Session) -> bool:
    """Append with a handle after the fault; return False if a typed error refuses it."""
    try:
        await session.append(Message.user("on"))
    except (Busy, EpochEnded, NotFound):
        return False
    return True


@asynccontextmanager
async def opened_twice() -> AsyncIterator[Stores]:
    """Open a store through a proxy, and past it."""
    async with schema() as name, proxied() as proxy:
        settings = {"schema": name, "synchronous_commit": "off"}
        async with (
            await SessionManager.open(proxy.url(**settings)) as through,
            await SessionManager.open(local_server().url(**settings)) as past,
        ):
            yield Stores(through, past, proxy)


async def break_at(
    number: int, lose: str, operation: Operation, stores: Stores, after: Any
) -> tuple[str, list[str]]:
    """Break the connection at an exchange of an operation; return the outcome, and what was wrong."""
    proxy, session = stores.proxy, await stores.through.open((await begin(stores.past)).id, user=USER)
    before, lost = await state(stores.past, session.id), proxy.lost
    getattr(proxy, lose)(after=number)
    try:
        await operation(stores.through, session)
        outcome = "done" if proxy.lost == lost else AGAIN
    except StoreUnavailable:
        outcome = UNKNOWN
    except TurnstateError as error:
        outcome = f"told that {error}"
    proxy.lose_nothing()
    allowed = {"done": [after], AGAIN: [after], UNKNOWN: [before, after]}.get(outcome, [])
    there, wrong = await state(stores.past, session.id), list[str]()
    if there not in allowed:
        wrong.append(f"{lose} {number}: {outcome}, but there is {there}")
    if not await goes_on(session) and there == before:
        wrong.append(f"{lose} {number}: nothing happened, and the handle cannot go on")
    return outcome, wrong


async def everywhere(operations: Sequence[str]) -> dict[str, tuple[Counter[str], list[str]]]:
    """Break the connection at every exchange of each operation; return outcomes and faults by its name."""
    found = dict[str, tuple[Counter[str], list[str]]]()
    async with opened_twice() as stores:
        for name in operations:
            found[name] = await at_every_exchange(OPERATIONS[name], stores)
        faults = [f"verify: {finding.fault}" async for finding in stores.past.store.verify(repair=False)]
    return found | {"verify": (Counter(), faults)}


async def at_every_exchange(operation: Operation, stores: Stores) -> tuple[Counter[str], list[str]]:
    """Break the connection at every exchange of an operation; count the outcomes, and list the faults."""
    outcomes, wrong = Counter[str](), list[str]()
    example = await begin(stores.past)
    await operation(stores.past, example)
    after = await state(stores.past, example.id)
    for lose in ("lose_next_request", "lose_next_answer"):
        number, outcome = 0, ""
        while outcome != "done":
            outcome, found = await break_at(number, lose, operation, stores, after)
            outcomes[outcome] += 1
            wrong += found
            number += 1
    return outcomes, wrong


@pytest.mark.req("G3", "G5", "G6")
def test_a_connection_that_breaks_at_any_exchange_leaves_all_or_nothing(
    record_property: Callable[[str, object], None],
) -> None:
    others = sorted(OPERATIONS.keys() - {"append"})
    chosen = list(OPERATIONS) if LONG else ["append", *rng("operations").sample(others, QUICK)]
    for name, (outcomes, wrong) in asyncio.run(everywhere(chosen)).items():
        counts = {what.replace(" ", "_"): outcomes[what] for what in (UNKNOWN, AGAIN)}
        title = "connections to PostgreSQL broken at every exchange"
        report(record_property, title, **counts, wrong=len(wrong))
        assert wrong == [], name
        assert outcomes[UNKNOWN] >= 2 or name == "verify", name


def test_a_store_that_repeats_writes_by_itself_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def write(self: Connections, _seconds: float, name: str, /, **given: Any) -> Sequence[Any]:
        return await self.read(name, **given)

    monkeypatch.setattr(Connections, "write_within", write)
    _, wrong = asyncio.run(everywhere(["append"]))["append"]
    assert wrong


async def harassed(function: str, count: int) -> tuple[int, Writers, list[str]]:
    """Let the server interrupt writers at random; return how often, the writers, and what was broken."""
    random, writers, times, interrupted = rng(function), Writers(Promises()), 0, 0
    async with schema() as name:
        url = local_server().url(schema=name, application_name="victim")
        ids = await create_sessions(url, 2)
        async with await SessionManager.open(url) as sessions:
            handles = [await sessions.open(ids[lane % 2], user=USER) for lane in range(LANES)]
            is_over = asyncio.Event()
            names = [numbered(f"lane{lane}", is_over.is_set) for lane in range(LANES)]
            writing = asyncio.gather(*map(writers.write, handles, names))

            def is_hit() -> bool:
                return bool(interrupted and (writers.failed or function == TERMINATE))

            try:
                while times < count or (times < MOST_TIMES and not is_hit()):
                    times += 1
                    await asyncio.sleep(random.random() * PAUSE)
                    hit = await executed(
                        f"SELECT {function}(pid), state FROM pg_stat_activity WHERE application_name = "
                        f"'victim' ORDER BY random() LIMIT {random.randrange(1, LANES)}",
                        url=local_server().url(),
                    )
                    interrupted += sum(was_done and state == "active" for was_done, state in hit)
            finally:
                is_over.set()
                await writing
        return interrupted, writers, await broken(url, ids, writers.promises)


@pytest.mark.req("G3", "G5", "G6")
@pytest.mark.parametrize("function", [TERMINATE, CANCEL])
def test_appends_that_the_server_interrupts_are_neither_lost_nor_stored_twice(
    function: str, record_property: Callable[[str, object], None]
) -> None:
    count = runs(15, long=2_000)
    interrupted, writers, wrong = asyncio.run(harassed(function, count))
    report(
        record_property,
        f"{function} under load",
        times=count,
        interrupted=interrupted,
        acknowledged_appends=len(writers.promises.acked),
        failed_and_asked_again=writers.failed,
        done_already=writers.repeated,
        lost=losses(wrong),
    )
    assert wrong == []
    assert len(writers.promises.acked) == len(writers.promises.asked)
    assert interrupted
    # Every append has a key, so it is sent again if its connection was ended, but not if it was canceled.
    assert bool(writers.failed) == (function == CANCEL)
