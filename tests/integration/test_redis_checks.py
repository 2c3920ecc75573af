"""A check of a Redis store finds damage and changes nothing; a repair is refused."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from redis import Redis

from tests.harness.valkey_server import empty_server, shared_server
from turnstate.codec import encode
from turnstate.entry import Note
from turnstate.errors import NotFound, StoreDamaged, StoreError
from turnstate.message import Message
from turnstate.stores.redis import RedisStore, connect
from turnstate.stores.redis.layout import bucket_of, index_key, named, parcel_key, session_key, session_keys
from turnstate.stores.redis.server import script
from turnstate.stores.values import Address, Finding, Fork, Key, Record, SessionFilter, Span
from turnstate.testing.contract.scenes import END, HERE, NOW, change, message, parcel, path, session

OTHER = Address(HERE.tenant, "other")
BUCKET = bucket_of(HERE)
INDEX, PARCELS = index_key(BUCKET), parcel_key(BUCKET)


def key(kind: bytes) -> bytes:
    return session_key(HERE, kind)


def said(id: str, *, tokens: int = 1, words: Sequence[str] = ()) -> Record:
    return message(id, tokens=tokens, body=encode(Message.user(" ".join([f"body of {id}", *words]))))


def noted(id: str, *, tokens: int = 0) -> Record:
    return Record(id=id, kind="note", body=encode(Note(f"note {id}")), tokens=tokens)


async def fill(store: RedisStore) -> None:
    """Write two sessions that use every feature of a store."""
    for at in (HERE, OTHER):
        row = session(at.session, user="u", tags=("x",), meta={"k": 1}, idle=5)
        await store.create(row, [noted("start", tokens=2)])
        for n in range(1, 6):
            record = said(f"m{n}", tokens=10, words=["w"])
            sent = (parcel(f"{at.session} p{n}", at=at),)
            await store.commit(change(record, at=at, key=Key(f"k{n}", b"1"), parcels=sent))
        fork = Fork(parent=1, seq=3, operation="fork", name="aside")
        await store.commit(change(said("x", tokens=5), noted("y", tokens=3), at=at, fork=fork))


def words_member(of_user: bytes = b"") -> bytes:
    (found,) = [
        member
        for member in asked("ZRANGEBYLEX", INDEX, b"[" + (b"v" if of_user else b"w"), b"+")
        if member.startswith((b"w", b"v") if not of_user else b"v") and b":1:3:" in member
    ][:1]
    return bytes(found)


def asked(*command: Any) -> Any:
    return shared_server().ask(*command)


def flipped(field: bytes) -> None:
    body = asked("HGET", key(b"body"), field)
    asked("HSET", key(b"body"), field, body[:-1] + bytes([body[-1] ^ 1]))


def edited(hash: bytes, field: str | bytes, *change: bytes) -> None:
    value = asked("HGET", hash, field)
    assert change[0] in value
    asked("HSET", hash, field, value.replace(*change, 1))


Damage = Callable[[], object]

DAMAGE: list[tuple[str, Damage, str, int]] = [
    ("a flipped byte", lambda: flipped(b"1:3"), "checksum", 3),
    ("a missing body", lambda: asked("HDEL", key(b"body"), "1:3"), "checksum", 3),
    (
        "a hole",
        lambda: (asked("HDEL", key(b"body"), "1:3"), asked("HDEL", key(b"entry"), "1:3")),
        "missing",
        3,
    ),
    ("a lost end", lambda: [asked("HDEL", key(kind), "2:5") for kind in (b"body", b"entry")], "missing", 5),
    ("a line that is none", lambda: asked("HSET", key(b"entry"), "1:3", "??"), "checksum", 3),
    ("another place", lambda: edited(key(b"entry"), "1:3", b"1 3 ", b"1 4 "), "checksum", 3),
    (
        "another count",
        lambda: edited(key(b"entry"), "1:3", b"1 3 10 ", b"1 3 11 "),
        "token count was changed",
        3,
    ),
    ("a wrong total", lambda: edited(key(b"entry"), "1:3", b" 22 ", b" 23 "), "running total", 3),
    ("an id that leads elsewhere", lambda: asked("HSET", key(b"id"), "m2", "1:5"), "by its id", 3),
    ("an id of nothing", lambda: asked("HSET", key(b"id"), "ghost", "1:99"), "an id belongs to", 0),
    ("a kind that is not listed", lambda: asked("DEL", key(b"own")), "by its kind", 1),
    ("words that are not listed", lambda: asked("ZREM", INDEX, words_member()), "missing from the feed", 3),
    ("a title that is no text", lambda: asked("HSET", key(b"row"), "title", b"\xff"), "title cannot", 0),
    (
        "a counter that is none",
        lambda: asked("HSET", key(b"row"), "counter", "x"),
        "counter 'x' does not exist",
        0,
    ),
    ("a counter that is gone", lambda: asked("HDEL", key(b"row"), "counter"), "counter is missing", 0),
    ("meta that is no JSON", lambda: asked("HSET", key(b"row"), "meta", "{"), "meta cannot", 0),
    ("tags that are gone", lambda: asked("HDEL", key(b"row"), "tags"), "tags is missing", 0),
    ("a number that is none", lambda: asked("HSET", key(b"row"), "version", "x"), "version cannot", 0),
    ("another's row", lambda: asked("HSET", key(b"row"), "id", "s9"), "id cannot be read", 0),
    (
        "a head too far",
        lambda: asked("HSET", key(b"row"), "seq", "999999"),
        "not the last entry there",
        999_999,
    ),
    ("a head too near", lambda: asked("HSET", key(b"row"), "seq", "4"), "not the last entry there", 4),
    (
        "a head on no branch",
        lambda: asked("HSET", key(b"row"), "branch", "7777777"),
        "its head is entry 5 of branch 7777777",
        5,
    ),
    (
        "a wrong sum at the head",
        lambda: asked("HSET", key(b"row"), "total", "1"),
        "not the last entry there",
        5,
    ),
    (
        "a branch that is gone",
        lambda: asked("HDEL", key(b"branch"), "1"),
        "branch 1 has entries and no row",
        0,
    ),
    (
        "a branch that is none",
        lambda: asked("HSET", key(b"branch"), "2", "?"),
        "branch 2 has entries and no row",
        0,
    ),
    (
        "a branch whose number is far too high",
        lambda: asked("HSET", key(b"branch"), "7777777", "1|2|0|1|0:repair"),
        "there are no branches between 2 and 7777777, which has no entries",
        0,
    ),
    ("an end that is gone", lambda: asked("HDEL", key(b"branch"), "t1"), "ends nowhere", 6),
    ("a wrong count", lambda: asked("HSET", key(b"row"), "branches", "1"), "counts 1 branches", 0),
    ("a receipt of nothing", lambda: edited(key(b"asked"), "k2", b" 3 3 ", b" 9 9 "), "the key 'k2'", 0),
    ("a receipt that is none", lambda: asked("HSET", key(b"asked"), "k2", "?"), "the key 'k2'", 0),
    ("a session that is not listed", lambda: asked("ZREM", INDEX, listed(b"d")), "list of sessions", 0),
    ("a user's that is not listed", lambda: asked("ZREM", INDEX, listed(b"u")), "list of sessions", 0),
    ("an expiry that is not listed", lambda: asked("ZREM", INDEX, listed(b"e")), "list of sessions", 0),
    ("a member of no list", lambda: asked("ZADD", INDEX, 0, "?"), "names something that does not exist", 0),
    ("a list with a ghost", lambda: asked("ZADD", INDEX, 0, listed(b"d") + b"ghost"), "does not exist", 0),
    ("an old expiry", lambda: asked("ZADD", INDEX, 0, listed(b"e").replace(b"0000005", b"0000009")), "", 0),
    ("words of a ghost", lambda: asked("ZADD", INDEX, 0, words_member() + b"x"), "does not exist", 0),
    ("a parcel without a state", lambda: asked("HDEL", PARCELS, "ss1 p1"), "parcel", 0),
    ("a parcel that is none", lambda: asked("HSET", PARCELS, "bs1 p1", "?"), "parcel cannot be read", 0),
    ("a parcel in no list", lambda: asked("ZREM", INDEX, listed(b"o")), "parcel is missing from a list", 0),
    ("a row that is gone", lambda: asked("DEL", key(b"row")), "of a session that does not exist", 0),
]


def listed(letter: bytes) -> bytes:
    members = asked("ZRANGEBYLEX", INDEX, b"[" + letter, b"(" + letter + b"\xff")
    return bytes(next(member for member in members if member.endswith((b"s1", b"s1 p1"))))


async def checked(store: RedisStore) -> list[Finding]:
    return [finding async for finding in store.verify(repair=False)]


@pytest.mark.parametrize(
    ("damage", "fault", "seq"), [row[1:] for row in DAMAGE], ids=[row[0] for row in DAMAGE]
)
def test_damage_is_found_and_nothing_is_changed(damage: Damage, fault: str, seq: int) -> None:
    asyncio.run(check_damage(damage, fault, seq))


async def check_damage(damage: Damage, fault: str, seq: int) -> None:
    """Damage a store and check it."""
    store = await connect(empty_server().url)
    await fill(store)
    other = await everything(store, OTHER)
    damage()
    before = dump()
    found = await checked(store)
    assert found
    assert any(fault in finding.fault for finding in found), found
    assert any(finding.seq == seq for finding in found), found
    assert not any(finding.done for finding in found)
    assert not any(finding.session == OTHER.session for finding in found), found
    assert await everything(store, OTHER) == other
    with pytest.raises(
        StoreError, match=r"export --all.* says what it leaves out.* import.* an empty database"
    ):
        _ = [finding async for finding in store.verify(repair=True)]
    assert dump() == before, "a check changed the store"
    await store.close()


def test_a_sound_store_is_found_sound() -> None:
    async def sound() -> None:
        store = await connect(empty_server().url)
        await fill(store)
        before = dump()
        assert await checked(store) == []
        assert dump() == before
        await store.close()

    asyncio.run(sound())


async def everything(store: RedisStore, at: Address) -> list[Any]:
    branches = await store.branches(at)
    rows = [await store.read(at, Span(branch.id, 1, END)) for branch in branches]
    return [await store.get(at), branches, rows]


def dump() -> dict[bytes, Any]:
    """Return the content of every key; DUMP itself changes when the server rehashes a table."""
    with Redis(unix_socket_path=shared_server().socket, protocol=2) as client:
        reads: dict[bytes, Callable[[bytes], Any]] = {
            b"string": client.get,
            b"hash": client.hgetall,
            b"set": client.smembers,
            b"list": lambda name: client.lrange(name, 0, -1),
            b"zset": lambda name: client.zrange(name, 0, -1, withscores=True),
        }
        return {name: reads[client.type(name)](name) for name in sorted(client.keys("*"))}


def test_a_damaged_entry_is_marked_and_what_is_left_of_it_is_read() -> None:
    async def damaged() -> None:
        store = await connect(empty_server().url)
        await fill(store)
        flipped(b"1:3")
        broken = asked("HGET", key(b"body"), "1:3")
        rows = await path(store, (await store.get(HERE)).head)
        assert [(row.seq, row.damaged) for row in rows] == [(n, n == 3) for n in range(1, 6)]
        assert rows[2].body == broken
        receipt = await store.commit(change(said("z")))
        assert receipt.last == 6
        await store.close()

    asyncio.run(damaged())


BRANCHES: list[tuple[str, Damage]] = [
    ("the first is gone", lambda: asked("HDEL", key(b"branch"), "1")),
    ("the last is gone", lambda: asked("HDEL", key(b"branch"), "2")),
    ("all are gone", lambda: asked("DEL", key(b"branch"))),
    ("one is none", lambda: asked("HSET", key(b"branch"), "2", "?")),
    ("an end is gone", lambda: asked("HDEL", key(b"branch"), "t1")),
    ("an end is too near", lambda: asked("HSET", key(b"branch"), "t1", "5 40")),
    ("the head is too near", lambda: asked("HSET", key(b"row"), "seq", "4")),
    ("the head is far beyond", lambda: asked("HSET", key(b"row"), "seq", 2**40)),
    ("the head is on no branch", lambda: asked("HSET", key(b"row"), "branch", "7777777")),
    ("a count that is none", lambda: asked("HSET", key(b"row"), "branches", "x")),
]


@pytest.mark.parametrize("damage", [row[1] for row in BRANCHES], ids=[row[0] for row in BRANCHES])
def test_branches_that_do_not_lead_to_all_entries_are_refused(damage: Damage) -> None:
    async def refused() -> None:
        store = await connect(empty_server().url)
        await fill(store)
        assert [one.id for one in await store.branches(HERE)] == [1, 2]
        damage()
        with pytest.raises(StoreDamaged, match="turnstate verify"):
            await store.branches(HERE)
        assert [one.id for one in await store.branches(OTHER)] == [1, 2]
        await store.close()

    asyncio.run(refused())


def test_an_unreadable_row_raises_an_error_and_other_sessions_are_readable() -> None:
    async def damaged() -> None:
        store = await connect(empty_server().url)
        await fill(store)
        asked("HDEL", key(b"row"), "epoch")
        ask: list[Callable[[], Awaitable[object]]] = [
            lambda: store.get(HERE),
            lambda: store.commit(change(said("z"))),
        ]
        for one in ask:
            with pytest.raises(StoreDamaged, match="turnstate verify"):
                await one()
        assert (await store.get(OTHER)).seq == 5
        await store.close()

    asyncio.run(damaged())


def test_sessions_are_found_without_their_lists() -> None:
    async def found() -> None:
        store = await connect(empty_server().url)
        await fill(store)
        asked("DEL", INDEX)
        asked("DEL", index_key(bucket_of(OTHER)))
        assert await store.page(HERE.tenant, SessionFilter()) == []
        assert {at async for at in store.addresses()} == {HERE, OTHER}
        await store.close()

    asyncio.run(found())


def test_a_damaged_parcel_keeps_no_other_from_being_delivered() -> None:
    async def delivered(damage: Damage) -> None:
        store = await connect(empty_server().url)
        await fill(store)
        damage()
        assert len(await store.take(NOW + 9, until=NOW + 99, limit=99)) == 9
        await store.remove(HERE)
        await store.close()

    asyncio.run(delivered(lambda: asked("HSET", PARCELS, "bs1 p1", "?")))
    asyncio.run(delivered(lambda: asked("HSET", PARCELS, "ss1 p1", "?")))


def test_an_interrupted_removal_finds_nothing_and_is_completed() -> None:
    async def broken_off() -> None:
        store = await connect(empty_server().url)
        await fill(store)
        for _ in range(2):
            names = [named(HERE.tenant), HERE.session.encode()]
            await store._server.run(script("remove"), session_keys(HERE), names)
            assert await hits(store) == {OTHER.session: 5}
            await store.create(session(user="u"), [said("new", words=["w"])])
            assert await hits(store) == {OTHER.session: 5, HERE.session: 1}
        (found,) = await checked(store)
        assert found.fault == "its removal was interrupted; remove it again to complete that"
        await store.remove(HERE)
        assert await checked(store) == []
        await store.create(session(user="u"), [said("new", words=["w"])])
        assert await hits(store) == {OTHER.session: 5, HERE.session: 1}
        assert len(asked("ZRANGEBYLEX", INDEX, b"[w", b"(w\xff")) == 1
        await store._server.run(script("remove"), session_keys(HERE), names)
        with pytest.raises(NotFound):
            await store.remove(HERE)
        assert await checked(store) == []
        await store.close()

    async def hits(store: RedisStore) -> Counter[str]:
        found = await store.search(HERE.tenant, ["w"], user="u", before=None, limit=99)
        return Counter(hit.session for hit in found)

    asyncio.run(broken_off())


def test_a_check_beside_writers_finds_nothing() -> None:
    async def busy() -> None:
        store = await connect(empty_server().url)
        await fill(store)
        stop = asyncio.Event()

        async def write(name: str) -> None:
            n = 0
            while not stop.is_set():
                n += 1
                sent = (parcel(f"{name} {n}"),)
                records = (said(f"{name} {n}", words=["w"]), noted(f"{name} {n} note"))
                await store.commit(
                    change(
                        *records, key=Key(f"{name} {n}", b"1"), parcels=sent, now=NOW + n, select=n % 2 + 1
                    )
                )
                await store.take(NOW + n, until=NOW + n + 1, limit=2)
                await store.delivered(f"{name} {n}")
                gone = Address(HERE.tenant, f"{name} gone {n % 3}")
                await store.create(session(gone.session, user="v", idle=3), [said("a", words=["v"])])
                await store.remove(gone)

        writers = [asyncio.create_task(write(name)) for name in "abc"]
        for _ in range(2):
            assert await checked(store) == []
        stop.set()
        await asyncio.gather(*writers)
        assert await checked(store) == []
        await store.close()

    asyncio.run(busy())


def test_names_of_sessions_lead_to_their_keys() -> None:
    assert session_key(Address("a", "b"), b"row").endswith(b":row:1:ab")
    assert named("") == b"0:"
    assert session_key(Address("a", "1:b"), b"row") != session_key(Address("a1:", "b"), b"row")
