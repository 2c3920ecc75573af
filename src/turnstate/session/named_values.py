"""State: named JSON values that a program keeps with a conversation and that no model reads.

A value is written as a `data` entry, so it follows branches: after a rewind the state is what it was then.
Reading folds the entries of the path, and the newest entry of each name wins; a handle remembers the fold and
reads only new entries. A version identifies one write, so of two writers that read the same version, only one
can replace it.

The state of a user or a tenant is a log of the same kind that belongs to no conversation. It is kept under a
separate tenant that no manager can have, so no list and no search shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import UNSET, Struct, UnsetType

from ..entry import Data
from ..errors import Conflict, TooLarge
from ..log.entries import time_of
from ..log.path import entries_of, path_to, rows_forwards
from ..stores.port import Directory
from ..stores.values import Address, Position, Row, SessionFilter, SessionRow, Span
from ..threads import is_large, off_loop
from ..value import check_kind
from .names import OWNERS, checked
from .writer import SessionWriter

LARGEST_VALUE = 16_000_000
"""Maximum bytes of one value as JSON."""

_KINDS = ("data",)


def owner_address(tenant: str, user: str | None) -> Address:
    """Return the address of the state of a user, or of the tenant."""
    return Address(OWNERS + tenant, "tenant" if user is None else f"user {user}")


async def owner_states(store: Directory, tenant: str, user: str | None) -> list[Address]:
    """Return the addresses of the states that exist: of one user, or of the tenant and all its users."""
    found, after = list[Address](), None
    while page := await store.page(OWNERS + tenant, SessionFilter(user=user), after=after):
        found += [row.address for row in page]
        after = page[-1].mark()
    return found


class StateValue(Struct, frozen=True, kw_only=True):
    """A value with its name, the version that identifies its last write, and the time of that write."""

    namespace: str
    key: str
    value: Any
    version: str
    time: datetime | None


class _Folded(NamedTuple):
    """The values on a path up to a head, with the id of the entry there and when the log was created."""

    created: int
    head: Position
    id: str
    values: dict[tuple[str, str], StateValue]


class State:
    """The named values of one log: ``await state.set("app", "theme", "dark")``.

    Names have two parts, so that programs that share a session do not share names.
    """

    def __init__(
        self,
        find: Callable[[], Awaitable[SessionWriter | None]],
        create: Callable[[], Awaitable[SessionWriter]],
    ) -> None:
        """Keep the values in the log that `find` returns; `create` makes it if it does not exist yet."""
        self._find, self._create = find, create
        self._known: _Folded | None = None
        self._folding = asyncio.Lock()

    async def get(self, namespace: str, key: str) -> StateValue | None:
        """Return the value with this name, or None if there is none."""
        name = _name(namespace, key)
        writer = await self._find()
        return (await self._folded(writer)).values.get(name) if writer else None

    async def items(self, namespace: str | None = None) -> list[StateValue]:
        """Return all values, or those of a namespace, ordered by name."""
        writer = await self._find()
        known = (await self._folded(writer)).values if writer else {}
        return [known[name] for name in sorted(known) if namespace in (None, name[0])]

    async def set(
        self, namespace: str, key: str, value: Any, *, expected: str | UnsetType | None = UNSET
    ) -> StateValue:
        """Write a value: any JSON of at most 16 MB.

        With `expected`, raise `Conflict` unless that is the version of the value; None expects that there
        is no value.
        """
        name = _name(namespace, key)
        entry = await off_loop(
            lambda: Data(namespace=name[0], key=name[1], value=value), large=is_large(value)
        )
        return await self._write(entry, expected)

    async def delete(self, namespace: str, key: str, *, expected: str | UnsetType | None = UNSET) -> None:
        """Remove a value if there is one; the old value stays in the log."""
        name = _name(namespace, key)
        if expected is UNSET and await self.get(*name) is None:
            return
        await self._write(Data(namespace=name[0], key=name[1], deleted=True), expected)

    async def _write(self, entry: Data, expected: str | UnsetType | None) -> StateValue:
        writer = await self._create()
        records = await writer.records([entry])
        (record,) = records
        if (size := len(record.body)) > LARGEST_VALUE:
            raise TooLarge(
                f"the value of {_shown(entry)} has {size:,} bytes; at most {LARGEST_VALUE:,} are kept"
            )
        while True:
            head = await self._expected_head(writer, entry, expected)
            try:
                receipt = await writer.commit(records=records, expected_head=head)
            except Conflict:
                continue  # others wrote meanwhile: the version is compared again
            writer.wrote(receipt, [entry], records)
            return _value(record.id, entry)

    async def _expected_head(
        self, writer: SessionWriter, entry: Data, expected: str | UnsetType | None
    ) -> Position | None:
        """Return the head at which a value has the expected version, or raise `Conflict`."""
        if isinstance(expected, UnsetType):
            return None
        check_kind("expected", expected, str, optional=True)
        folded = await self._folded(writer)
        found = folded.values.get((entry.namespace, entry.key))
        if (found.version if found else None) != expected:
            raise Conflict(
                f"{_shown(entry)} is no longer at version {expected!r:.60}; read it again and retry",
                version=writer.row.version,
                head=folded.head,
            )
        return folded.head

    async def _folded(self, writer: SessionWriter) -> _Folded:
        """Return the values on the path to the current head."""
        async with self._folding:
            row, known = await writer.refresh(), self._known
            if known is None or (known.created, known.head) != (row.created, row.head):
                values = dict[tuple[str, str], StateValue]()
                path = await path_to(writer.log, writer.at, row.head)
                if known is not None and await _continues(writer, row, known):
                    values, path = dict(known.values), [Span(row.branch, known.head.seq + 1, row.seq)]
                rows = [one async for one in rows_forwards(writer.log, writer.at, path, kinds=_KINDS)]
                await _fold(rows, values)
                last = await writer.log.read(writer.at, Span(*row.head, row.seq))
                self._known = known = _Folded(row.created, row.head, last[0].id if last else "", values)
            return known


async def _continues(writer: SessionWriter, row: SessionRow, known: _Folded) -> bool:
    """Return True if a log continues where it was folded; a store may have lost that entry and gone on."""
    if (row.created, row.branch) != (known.created, known.head.branch) or row.seq < known.head.seq:
        return False
    found = await writer.log.read(writer.at, Span(*known.head, known.head.seq))
    return [one.id for one in found] == [known.id]


async def _fold(rows: Sequence[Row], values: dict[tuple[str, str], StateValue]) -> None:
    for row, entry in zip(rows, await entries_of(rows), strict=True):
        if isinstance(entry, Data):
            values.pop((entry.namespace, entry.key), None)
            if not entry.deleted:
                values[entry.namespace, entry.key] = _value(row.id, entry)


def _value(id: str, entry: Data) -> StateValue:
    time = time_of(id, entry)
    return StateValue(namespace=entry.namespace, key=entry.key, value=entry.value, version=id, time=time)


def _name(namespace: object, key: object) -> tuple[str, str]:
    return checked(namespace, "a namespace", empty=True), checked(key, "a key")


def _shown(entry: Data) -> str:
    return f"{entry.namespace}/{entry.key}" if entry.namespace else entry.key
