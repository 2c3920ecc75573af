"""Operations on a store as plain values: drawn from a seed, and performed on several stores alike.

What an operation expects is drawn relative to what is there (the current version, a stale one), and
filled in from the first store, so that many changes are taken and many are refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from msgspec import structs

from turnstate.codec import encode
from turnstate.errors import Conflict, NotFound, TurnstateError
from turnstate.ids import UNKNOWN_TIME
from turnstate.message import Message
from turnstate.stores.port import Store
from turnstate.stores.sqlite.keys import LONGEST_STEP
from turnstate.stores.values import (
    KEY_LIFE,
    MESSAGE,
    Address,
    Change,
    Fork,
    Hit,
    Key,
    Lease,
    PageMark,
    Parcel,
    Position,
    Record,
    Removed,
    Row,
    SessionFilter,
    SessionRow,
    Span,
)

Operation = tuple[str, dict[str, Any]]

START = 1_750_000_000_000
LENGTH = 140
TENANTS = ["acme", "other"]
SESSIONS = ["s", "it's"]
ADDRESSES = [Address(tenant, session) for tenant in TENANTS for session in SESSIONS]
AWAY = Address("nobody", "s")  # of no operation, so that what happens there is not seen
USERS = [None, "u1", "u2"]
TAGS = ["x", "y", "%"]
WORDS = ["disk", "full", "日本", "snake_case"]
KINDS = [MESSAGE, MESSAGE, "cut", "prompt"]
PARCELS = [f"p{n}" for n in range(3)]
LIMITS = [0, 1, 2, 100, 100]


def sequence(seed: int) -> list[Operation]:
    """Draw operations: some sessions first, so that there is something to do."""
    rng = Random(seed)
    begin = [("create", creation(rng) | {"at": at}) for at in [ADDRESSES[0], *rng.sample(ADDRESSES[1:], 2)]]
    names = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=LENGTH)
    return begin + [(name, DRAWN[name](rng)) for name in names]


def address(rng: Random) -> Address:
    """Draw a session, mostly the same: what never meets cannot disagree."""
    return rng.choices(ADDRESSES, [6, 2, 2, 1])[0]


def some(rng: Random, pool: list[Any], most: int) -> list[Any]:
    """Draw a few, now and then the same twice."""
    return rng.choices(pool, k=rng.randint(0, most))


def rarely(rng: Random, value: Any, *, chance: float = 0.15) -> Any:
    """Return a value, or in most cases None."""
    return value if rng.random() < chance else None


def relative(rng: Random) -> int | None:
    """Draw what a change expects: nothing, what is there, or seldom what is not."""
    return rng.choices([None, 0, -1, 1], [14, 10, 1, 1])[0]


def entry(rng: Random) -> str:
    """Draw the id of an entry, now and then one that is there already."""
    return f"e{rng.randrange(400)}"


def text(rng: Random) -> bytes:
    """Draw the body of a message of a few words."""
    return encode(Message.user(" ".join(some(rng, WORDS, 3)), id="x", timestamp=UNKNOWN_TIME))


def records(rng: Random) -> tuple[Record, ...]:
    """Draw what is appended."""
    return tuple(
        Record(
            id=entry(rng),
            kind=rng.choice(KINDS),
            body=rng.choice([b"", b"{}", b"\x00\xff", text(rng), text(rng), text(rng)]),
            tokens=rng.randrange(6),
        )
        for _ in range(rng.randrange(4))
    )


def span(rng: Random) -> Span:
    """Draw a run of entries, that may be empty or on no branch at all."""
    return Span(rng.randrange(5), rng.randint(-1, 12), rng.randint(-1, 25))


def creation(rng: Random) -> dict[str, Any]:
    """Draw a new session."""
    made = {"user": rng.choice(USERS), "tags": tuple(some(rng, TAGS, 3)), "idle": rng.choice([0, 5, 20])}
    return {"at": address(rng), **made, "records": records(rng)}


def commit(rng: Random) -> dict[str, Any]:
    """Draw a change."""
    parent = rng.choice([None, 1, 1, 1, 2, 2, 9])
    return {
        "at": address(rng),
        "epoch": relative(rng),
        "fence": relative(rng),
        "version": relative(rng),
        "head": relative(rng),
        "key": rarely(rng, Key(rng.choice("kl"), rng.choice([b"1", b"1", b"2"])), chance=0.3),
        "fork": rarely(rng, Fork(parent=parent, seq=rng.choice([-1, 0, 1, 2, 3, 4, 5, 9]), operation="fork")),
        "select": rarely(rng, rng.choice([0, 1, 1, 1, 2, 2, 3]), chance=0.1),
        "records": records(rng),
        "parcels": some(rng, PARCELS, 2) if rng.random() < 0.6 else [],
        "next_epoch": rng.random() < 0.08,
        "end": rarely(rng, "closed", chance=0.03),
    }


def listing(rng: Random) -> dict[str, Any]:
    """Draw a page of sessions, or the next one."""
    moments = [START + rng.randrange(60) for _ in range(2)]
    which = SessionFilter(
        user=rarely(rng, rng.choice(USERS), chance=0.4),
        tag=rarely(rng, rng.choice(TAGS), chance=0.3),
        since=rarely(rng, moments[0]),
        until=rarely(rng, moments[1]),
        live=rng.choice([None, None, True, False]),
    )
    asked = {"tenant": rng.choice(TENANTS), "which": which, "limit": rng.choice(LIMITS)}
    return {**asked, "order": rng.choice(["created", "active"]), "on": rng.random() < 0.6}


def update(rng: Random) -> dict[str, Any]:
    """Draw another description."""
    return {
        "at": address(rng),
        "title": rng.choice([None, "", "t"]),
        "tags": rarely(rng, some(rng, TAGS, 3), chance=0.5),
        "meta": rng.choice([None, {}, {"a": [1]}]),
        "idle": rng.choice([None, 0, 7]),
        "expected": rarely(rng, rng.choice([{}, {"a": [1]}]), chance=0.3),
    }


def search(rng: Random) -> dict[str, Any]:
    """Draw a search, or the next page of one."""
    asked = {
        "words": some(rng, WORDS, 2),
        "user": rarely(rng, rng.choice(USERS)),
        "session": rarely(rng, rng.choice([*SESSIONS, "nobody"]), chance=0.3),
        "limit": rng.choice(LIMITS),
    }
    return {"tenant": rng.choice(TENANTS), **asked, "on": rng.random() < 0.4}


DRAWN: dict[str, Callable[[Random], dict[str, Any]]] = {
    "create": creation,
    "commit": commit,
    "update": update,
    "remove": lambda rng: {"at": address(rng)},
    "tick": lambda rng: {"ms": rng.choice([1, 5, 5, 20, 20, KEY_LIFE - 1, KEY_LIFE])},
    "get": lambda rng: {"at": address(rng)},
    "read": lambda rng: {
        "at": address(rng),
        "span": span(rng),
        "limit": rng.choice([None, *LIMITS]),
        "newest": rng.random() < 0.5,
        "kinds": rarely(rng, some(rng, KINDS, 3), chance=0.3),
    },
    "find": lambda rng: {"at": address(rng), "ids": [entry(rng) for _ in range(40)]},
    "newest": lambda rng: {
        "at": address(rng),
        "spans": [span(rng) for _ in range(rng.randrange(4))],
        "kinds": some(rng, KINDS, 3),
    },
    "branches": lambda rng: {"at": address(rng)},
    "since": lambda rng: {
        "at": address(rng),
        "id": rng.choice([None, *(entry(rng) for _ in range(3))]),
        "limit": rng.choice(LIMITS),
    },
    "feed": lambda rng: {"tenant": rng.choice(TENANTS)},
    "search": search,
    "page": listing,
    "due": lambda rng: {"tenant": rng.choice(TENANTS), "limit": rng.choice(LIMITS)},
    "take": lambda rng: {
        "wait": rng.randrange(10),
        "limit": rng.choice(LIMITS),
        "tenant": rarely(rng, rng.choice(TENANTS), chance=0.3),
    },
    "delivered": lambda rng: {"id": rng.choice(PARCELS)},
    "failed": lambda rng: {
        "id": rng.choice(PARCELS),
        "error": rng.choice(["down", ""]),
        "wait": rng.choice([None, None, None, 4]),
    },
    "parcels": lambda rng: {
        "tenant": rarely(rng, rng.choice(TENANTS), chance=0.3),
        "parked": rng.choice([None, True, False]),
        "limit": rng.choice(LIMITS),
    },
    "revive": lambda rng: {"id": rng.choice(PARCELS)},
    "acquire": lambda rng: {"at": address(rng), "holder": rng.choice("vw"), "wait": rng.randint(1, 25)},
    "renew": lambda rng: {"at": address(rng), "fence": rng.choice([0, 0, -1, 1]), "wait": rng.randint(1, 9)},
    "release": lambda rng: {"at": address(rng), "fence": rng.choice([0, 0, -1, 1])},
}
WEIGHTS = dict.fromkeys(DRAWN, 2) | {
    "commit": 30,
    "search": 4,
    "page": 4,
    "failed": 4,
    "revive": 6,
    "remove": 0.5,
    "delivered": 1,
}


class Run:
    """One sequence on one store: the time, and where its pages and searches stopped."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = START
        self.cursors: dict[str, str] = {}
        self.after: dict[str, PageMark] = {}
        self.marks: dict[str, int] = {}
        self.leapt = False  # keys that are too old may be counted or not

    async def perform(self, name: str, fields: dict[str, Any], seen: SessionRow | None) -> Any:
        """Do it, and give the answer in a form that is equal for all stores; `seen` is the session."""
        self.now += 1
        try:
            return self._shown(await getattr(self, f"_{name}", self._plain(name))(fields, seen))
        except Conflict as error:
            return Conflict, error.version, tuple(error.head)
        except TurnstateError as error:
            return type(error)

    def _plain(self, name: str) -> Callable[[dict[str, Any], Any], Awaitable[Any]]:
        def call(fields: dict[str, Any], _: Any) -> Awaitable[Any]:
            given = dict(fields)
            if name in ("get", "branches", "update"):
                return getattr(self.store, name)(given.pop("at"), **given)
            if name in ("read", "find", "newest", "since"):
                given = {"at": given.pop("at"), **given}
            return getattr(self.store, name)(**given)

        return call

    def _shown(self, answer: Any) -> Any:
        if isinstance(answer, Removed):
            return structs.replace(answer, keys=0 if self.leapt else answer.keys)
        if isinstance(answer, list):
            return [structs.replace(one, mark=0) if isinstance(one, Hit) else one for one in answer]
        return answer

    async def _tick(self, fields: dict[str, Any], _: Any) -> None:
        end = self.now + fields["ms"]
        self.leapt |= fields["ms"] > 1_000
        while end - self.now > LONGEST_STEP:  # SQLite counts only time in which the store was used
            self.now += LONGEST_STEP
            await self._use()
        self.now = end

    async def _use(self) -> None:
        try:
            await self.store.commit(Change(at=AWAY, now=self.now, key=Key(str(self.now), b"1")))
        except NotFound:
            await self._create({"at": AWAY, "user": None, "tags": [], "idle": 0, "records": ()}, None)
            await self._use()

    async def _create(self, fields: dict[str, Any], _: Any) -> Any:
        given = dict(fields)
        at, records = given.pop("at"), given.pop("records")
        row = SessionRow(
            tenant=at.tenant,
            id=at.session,
            title="",
            counter="c",
            meta={},
            created=self.now // 8 * 8,  # some are made at the same moment
            active=self.now,
            **given,
        )
        return await self.store.create(row, records)

    async def _remove(self, fields: dict[str, Any], _: Any) -> Removed:
        removed = await self.store.remove(fields["at"])
        self.marks.clear()  # a store may give the marks of what is gone to what comes
        return removed

    async def _commit(self, fields: dict[str, Any], seen: SessionRow | None) -> Any:
        given = dict(fields)
        epoch, fence, version, head = (given.pop(name) for name in ("epoch", "fence", "version", "head"))
        parcels = given.pop("parcels")
        at: Address = given["at"]

        def expected(offset: int | None, name: str) -> int | None:
            return None if offset is None else getattr(seen, name, 0) + offset

        place = None if head is None else Position(getattr(seen, "branch", 1), expected(head, "seq") or 0)
        change = Change(
            now=self.now,
            epoch=expected(epoch, "epoch"),
            fence=expected(fence, "fence"),
            expected_version=expected(version, "version"),
            expected_head=place,
            parcels=tuple(
                Parcel(id=id, tenant=at.tenant, session=at.session, kind="k", body=b"\x00", due=self.now + 3)
                for id in parcels
            ),
            **given,
        )
        return await self.store.commit(change)

    async def _search(self, fields: dict[str, Any], _: Any) -> list[Hit]:
        given = dict(fields)
        before = self.marks.get(given["tenant"]) if given.pop("on") else None
        tenant, words = given.pop("tenant"), given.pop("words")
        hits = await self.store.search(tenant, words, before=before, **given)
        if hits:
            self.marks[tenant] = hits[-1].mark
        return hits

    async def _feed(self, fields: dict[str, Any], _: Any) -> list[tuple[str, Row]]:
        """Return what is new; the order of different sessions is left to the store."""
        tenant = fields["tenant"]
        page = await self.store.feed(tenant, self.cursors.get(tenant, ""), limit=10**6)
        self.cursors[tenant] = page.cursor
        return sorted(((item.session, item.row) for item in page.items), key=lambda one: one[0])

    async def _page(self, fields: dict[str, Any], _: Any) -> list[SessionRow]:
        tenant, order = fields["tenant"], fields["order"]
        after = self.after.get(tenant) if fields["on"] else None
        rows = await self.store.page(tenant, fields["which"], order=order, after=after, limit=fields["limit"])
        if rows:
            self.after[tenant] = rows[-1].mark(order)
        return rows

    async def _due(self, fields: dict[str, Any], _: Any) -> list[SessionRow]:
        return await self.store.due(fields["tenant"], self.now, limit=fields["limit"])

    async def _take(self, fields: dict[str, Any], _: Any) -> list[Parcel]:
        until = self.now + fields["wait"]
        return await self.store.take(self.now, until=until, limit=fields["limit"], tenant=fields["tenant"])

    async def _delivered(self, fields: dict[str, Any], _: Any) -> None:
        await self.store.delivered(fields["id"])

    async def _failed(self, fields: dict[str, Any], _: Any) -> None:
        due = None if fields["wait"] is None else self.now + fields["wait"]
        await self.store.failed(fields["id"], error=fields["error"], due=due)

    async def _revive(self, fields: dict[str, Any], _: Any) -> None:
        await self.store.revive(fields["id"], due=self.now)

    async def _acquire(self, fields: dict[str, Any], _: Any) -> Lease:
        until = self.now + fields["wait"]
        return await self.store.acquire(fields["at"], holder=fields["holder"], until=until, now=self.now)

    async def _renew(self, fields: dict[str, Any], seen: SessionRow | None) -> Lease:
        lease = Lease(fence=getattr(seen, "fence", 0) + fields["fence"], until=0)
        return await self.store.renew(fields["at"], lease, until=self.now + fields["wait"])

    async def _release(self, fields: dict[str, Any], seen: SessionRow | None) -> None:
        lease = Lease(fence=getattr(seen, "fence", 0) + fields["fence"], until=0)
        await self.store.release(fields["at"], lease, now=self.now)
