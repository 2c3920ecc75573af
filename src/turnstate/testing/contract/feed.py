"""What a store promises about the feed: each entry once, those of a session in order, and none too late."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import asyncio

from ...errors import Conflict, InputError, NotFound
from ...session import SessionManager, State
from ...stores.port import Store
from ...stores.values import Address, Fork
from .scenes import HERE, Scene, change, equal, holds, message, note, refused, scenario, session


async def since(store: Store, id: str | None, *, limit: int) -> list[str]:
    """Return the ids of all entries of a session after a given one, read page by page."""
    found = list[str]()
    while rows := await store.since(HERE, id, limit=limit):
        holds(len(rows) <= limit, "a page is no longer than asked for")
        found += [row.id for row in rows]
        id = rows[-1].id
    return found


async def fed(store: Store, cursor: str = "", *, tenant: str = HERE.tenant, limit: int = 100) -> list[str]:
    """Return the ids of all entries of a tenant after a cursor, read page by page."""
    found = list[str]()
    while True:
        items, cursor = await store.feed(tenant, cursor, limit=limit)
        holds(len(items) <= limit, "a page is no longer than asked for")
        found += [f"{item.session} {item.row.id}" for item in items]
        if len(items) < limit:
            return found


class FeedContract(Scene):
    """Following new entries."""

    @scenario
    async def test_a_session_is_followed_over_its_branches_in_the_order_of_its_writes(
        self, store: Store
    ) -> None:
        await store.create(session(), [note("a")])
        await store.create(session("other"), [message("x")])
        await store.commit(change(message("b", words=["w"]), note("c")))
        await store.commit(change(message("d"), fork=Fork(parent=1, seq=2, operation="fork")))
        await store.commit(change(message("e"), select=1))
        await store.commit(change(message("f"), at=Address(HERE.tenant, "other")))
        await store.commit(change(select=2))
        await store.commit(change(message("g")))
        await store.commit(
            change(note("h"), fork=Fork(parent=None, seq=0, operation="reset"), next_epoch=True)
        )
        order = ["a", "b", "c", "d", "e", "g", "h"]
        for limit in (1, 2, 100):
            equal(await since(store, None, limit=limit), order, f"from the start, {limit} at a time")
            for place, id in enumerate(order, start=1):
                equal(await since(store, id, limit=limit), order[place:], f"after {id}, {limit} at a time")
        rows = await store.since(HERE, "b", limit=2)
        equal(rows, await store.find(HERE, ["c", "d"]), "entries as any reader sees them")
        with refused(NotFound):
            await store.since(HERE, "x", limit=9)
        for after in ("a", None):
            with refused(NotFound):
                await store.since(Address(HERE.tenant, "nobody"), after, limit=9)

    @scenario
    async def test_the_feed_of_a_tenant_has_each_entry_once_and_goes_on_after_any(self, store: Store) -> None:
        ids, wanted = ["s1", "s2", "s3"], list[str]()
        equal(await fed(store), [], "an empty store")
        for id in ids:
            await store.create(session(id), [note(f"{id} first")])
            wanted.append(f"{id} {id} first")
        await store.create(session("theirs", tenant="other"), [message("secret")])
        for n in range(6):
            id = ids[n % 3]
            fork = Fork(parent=1, seq=1, operation="fork") if n == 4 else None
            await store.commit(
                change(message(f"m{n}"), note(f"n{n}"), at=Address(HERE.tenant, id), fork=fork)
            )
            wanted += [f"{id} m{n}", f"{id} n{n}"]
        for limit in (1, 4, 100):
            equal(sorted(await fed(store, limit=limit)), sorted(wanted), f"all entries, {limit} at a time")
        items, _ = await store.feed(HERE.tenant, "", limit=100)
        order = [f"{item.session} {item.row.id}" for item in items]
        for id in ids:
            of_session = [one for one in order if one.startswith(id)]
            equal(of_session, [one for one in wanted if one.startswith(id)], f"{id} in order")
        for place, item in enumerate(items, start=1):
            equal(await fed(store, item.cursor, limit=3), order[place:], f"after entry {place}")
        equal(await fed(store, tenant="other"), ["theirs secret"], "the feed of another tenant")
        end = await store.feed_end(HERE.tenant)
        equal(await fed(store, end), [], "after the end")
        await store.commit(change(message("late")))
        equal(await fed(store, end), ["s1 late"], "what came after the end")

    @scenario
    async def test_what_comes_after_a_removal_is_not_taken_for_what_was_seen(self, store: Store) -> None:
        await store.create(session("kept"), [message("a")])
        await store.create(session(), [message("b"), message("c")])
        end = await store.feed_end(HERE.tenant)
        await store.remove(HERE)
        equal(await fed(store), ["kept a"], "removed entries are gone")
        await store.create(session(), [message("d")])
        await store.commit(change(message("e"), at=Address(HERE.tenant, "kept")))
        equal(sorted(await fed(store, end)), ["kept e", f"{HERE.session} d"], "new entries after a removal")
        equal(await since(store, None, limit=1), ["d"], "the session of that id")

    @scenario
    async def test_a_cursor_of_something_else_is_refused(self, store: Store) -> None:
        for cursor in ("nonsense", "-1", "é", "9" * 40):
            with refused(InputError):
                await store.feed(HERE.tenant, cursor, limit=1)

    @scenario
    async def test_a_follower_sees_every_entry_once_while_many_write(self, store: Store) -> None:
        ids = [f"s{n}" for n in range(6)]
        for id in ids:
            await store.create(session(id))
        running = True

        async def write(id: str) -> None:
            for n in range(15):
                records = [message(f"{id} {n} {m}") for m in range(1 + n % 3)]
                await store.commit(change(*records, at=Address(HERE.tenant, id)))

        async def follow() -> dict[str, list[str]]:
            seen, cursor, another = {id: list[str]() for id in ids}, "", await self.connect()
            try:
                while True:
                    was_running = running
                    items, cursor = await another.feed(HERE.tenant, cursor, limit=7)
                    for item in items:
                        seen[item.session].append(item.row.id)
                    if not items and not was_running:
                        return seen
                    await asyncio.sleep(0)
            finally:
                await another.close()

        following = asyncio.create_task(follow())
        await asyncio.gather(*map(write, ids))
        running = False
        for id, found in (await following).items():
            wanted = [f"{id} {n} {m}" for n in range(15) for m in range(1 + n % 3)]
            equal(found, wanted, f"the entries of {id}, each once and in order")

    @scenario
    async def test_of_those_who_read_one_version_of_a_value_one_replaces_it(self, store: Store) -> None:
        manager = SessionManager(store, tenant=HERE.tenant)
        await manager.create(id=HERE.session)

        async def count(state: State) -> None:
            for _ in range(3):
                while True:
                    known = await state.get("app", "n")
                    version, value = (known.version, known.value) if known else (None, 0)
                    try:
                        await state.set("app", "n", value + 1, expected=version)
                    except Conflict:
                        continue
                    break

        for states in (
            [(await manager.open(HERE.session)).state for _ in range(3)],
            [manager.user_state("u") for _ in range(3)],
        ):
            await asyncio.gather(*map(count, states))
            (value,) = await states[0].items()
            equal(value.value, 9, "the count of three who count to three")
