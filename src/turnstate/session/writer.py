"""Writing to one session: each change carries the epoch, the fence and the time of this handle.

Messages are counted with the counter of the model at the head. Another worker may change the model at any
moment, so messages are written only at the head that they were counted for: a store keeps the count and
does not know what it means.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from msgspec import structs

from ..codec import decode_entry
from ..context.policy import Policy
from ..entry import Entry, ModelChange
from ..errors import Busy, ClockSkew, Conflict, EpochEnded
from ..ids import JUMP, CallId, Clock, ClockWatch
from ..log.path import CUTS, LATEST, Damage, WatchedLog, WatchedReads, path_to, read_entry
from ..log.records import Ending, counter_of, small_records
from ..log.records import records as make_records
from ..message import Message
from ..stores.port import Health, Reads, ReadsAhead, ReadsAtOnce, Store
from ..stores.values import (
    KEY_LIFE,
    MESSAGE,
    Change,
    Fork,
    Key,
    Lease,
    Parcel,
    Position,
    Receipt,
    Record,
    SessionRow,
    Span,
)
from ..tokens import Counter

T = TypeVar("T")

MODEL, REVERT = "model", "revert"
"""The kinds of entries that set the model in force, and that undo a cut."""


async def check_store_time(store: Health, clock: Clock) -> None:
    """Raise `ClockSkew` if the store has its own clock and it differs by more than a minute."""
    theirs = await store.time()
    ahead = 0 if theirs is None else clock() - theirs
    if abs(ahead) > JUMP:
        how = f"{abs(ahead) / 1_000:,.0f} s {'ahead of' if ahead > 0 else 'behind'}"
        raise ClockSkew(f"the clock of this machine is {how} the store's; set it. No session was ended")


class LatestCalls:
    """The newest calls that a handle wrote and that await results.

    Most results answer these, so they are accepted without reading the path.
    """

    def __init__(self) -> None:
        self._open = set[CallId]()
        self.head: Position | None = None
        """The head of the path, after the last append of this handle."""

    def add(self, receipt: Receipt, entries: Iterable[Entry]) -> None:
        """Add entries that were written."""
        if receipt.repeated:
            return
        if self._open and self.head != (receipt.branch, receipt.first - 1):
            self._open = set()  # something else was written in between
        self.head = receipt.head
        for entry in entries:
            if not isinstance(entry, Message):
                continue
            if entry.tool_calls:
                self._open = {call.id for call in entry.tool_calls}
            elif self._open and entry.tool_results:
                self._open.difference_update([result.tool_call_id for result in entry.tool_results])

    def await_results(self, messages: Iterable[Message]) -> bool:
        """Return True if messages hold only results, each of a different call that awaits one."""
        results = [result.tool_call_id for message in messages for result in message.tool_results]
        are_new = len(results) == 1 or len(set(results)) == len(results)
        return (
            are_new and self._open.issuperset(results) and all(message.role == "tool" for message in messages)
        )


class Written(NamedTuple):
    """What a handle wrote, and when the session was last active at that time."""

    receipt: Receipt
    entries: Sequence[Entry]
    records: Sequence[Record]
    active: int


class Abilities(NamedTuple):
    """What a store can do beyond its ports. It is checked by name, since a protocol check takes 10 µs."""

    at_once: ReadsAtOnce | None
    ahead: ReadsAhead | None

    @classmethod
    def of(cls, store: Store) -> Abilities:
        """Return the abilities of a store."""
        return cls(
            cast(ReadsAtOnce, store) if hasattr(store, "at_once") else None,
            cast(ReadsAhead, store) if hasattr(store, "ahead") else None,
        )


class SessionWriter:
    """Reads and writes one session for one handle.

    It notes what is written for the handle's windows, which add it when the next window is made: ``written``
    is None while they hold no part of the path, and ``moves`` counts how often the head moved elsewhere.
    """

    def __init__(
        self,
        store: Store,
        row: SessionRow,
        *,
        abilities: Abilities,
        clock: Clock,
        watch: ClockWatch,
        counter: Counter,
        policy: Policy,
    ) -> None:
        self.store, self.row, self.clock, self._watch = store, row, clock, watch
        self.start, self._policy = counter, policy
        self._model: tuple[Position, ModelChange | None] = (Position(1, 0), None)  # in force at that place
        self.at, self.epoch, self._created = row.address, row.epoch, row.created
        self.lease: Lease | None = None
        self.latest_calls = LatestCalls()
        self.written: list[Written] | None = None
        self.moves = 0
        self.damage = Damage()
        self.log = WatchedLog(store, self.damage)
        self._at_once, self._reads_ahead = abilities
        self._wrote: Callable[[], None] | None = None
        self._on_way, self._refusals = 0, 0  # this handle's appends that wait for the store, and refused ones
        self._ahead: tuple[Position, ModelChange | None] | None = (
            None  # head and model once the waiting appends are written
        )

    def watch(self, wrote: Callable[[], None]) -> None:
        """Call a function after each write, except one that ends the conversation."""
        self._wrote = wrote

    def wrote(self, receipt: Receipt, entries: Sequence[Entry], records: Sequence[Record]) -> None:
        """Note entries that were written, if a part of the path is held."""
        if self.written is None or receipt.repeated:
            return
        if any(record.kind == REVERT for record in records):
            self.moved_head()  # what is in force again may not be loaded
        else:
            self.written.append(Written(receipt, entries, records, self.row.active))

    def moved_head(self) -> None:
        """Note that the head moved elsewhere, so that the held part of the path is no longer valid."""
        self.written = None
        self.moves += 1

    async def refresh(self) -> SessionRow:
        """Read the session as it is now; raise `EpochEnded` if the epoch of this handle has ended.

        The store is asked even under a lease, since a reset overrides it.
        """
        self.row = self._checked(await self.store.get(self.at))
        return self.row

    async def read(self, job: Callable[[SessionRow, Reads], Awaitable[T]], *, small: bool = False) -> T:
        """Run a job on the session as it is now and its log, as one read if possible; return its result.

        The job must await nothing but the log that it is given; `small` means that it reads little.
        """
        if self._reads_ahead:
            row, log = await self._reads_ahead.ahead(self.at, (*CUTS, *LATEST))
            self.row = self._checked(row)
            return await job(self.row, WatchedReads(log, self.damage))
        if self._at_once is None:
            return await job(await self.refresh(), self.log)

        async def read(row: SessionRow, log: Reads) -> tuple[SessionRow, T]:
            return row, await job(self._checked(row), WatchedReads(log, self.damage))

        self.row, made = await self._at_once.at_once(self.at, read, small=small)
        return made

    def _checked(self, row: SessionRow) -> SessionRow:
        if row.created != self._created:
            raise EpochEnded(f"session {row.id} was deleted and created again; open it again")
        if row.epoch != self.epoch:
            raise EpochEnded(f"session {row.id}: epoch {self.epoch} has ended; open the session again")
        return row

    async def records(
        self, entries: Sequence[Entry], model: ModelChange | None = None, *, large: bool | None = None
    ) -> tuple[Record, ...]:
        """Return entries as records, counted under a model; decisions need none."""
        return await make_records(entries, self._counter(entries, model), self._policy, large=large)

    def small_records(self, entries: Sequence[Entry], model: ModelChange | None) -> tuple[Record, ...] | None:
        """Return entries that are not large as records; None if the counter has to be loaded first."""
        return small_records(entries, self._counter(entries, model), self._policy)

    def counter(self, model: ModelChange | None) -> Counter:
        """Return the counter in force under a model; without a model, the session's counter."""
        return counter_of(model) if model else self.start

    def _counter(self, entries: Sequence[Entry], model: ModelChange | None) -> Counter:
        if entries and isinstance(entries[0], ModelChange):
            model = entries[0]  # the model before it counts nothing, and may be unknown here
        return self.counter(model)

    @property
    def known_model(self) -> tuple[Position, ModelChange | None] | None:
        """The head as it was last seen, and the model in force there; None if it must be read."""
        return self._model if self._model[0] == (self.row.branch, self.row.seq) else None

    @property
    def next_model(self) -> tuple[Position, ModelChange | None] | None:
        """The head and the model there once all waiting appends are written; None if it must be read."""
        return self._ahead or self.known_model

    async def model(self) -> tuple[Position, ModelChange | None]:
        """Return the head as it was last seen, and the model in force there; read only what is new."""
        if found_already := self.known_model:
            return found_already
        head, (known, model) = self.row.head, self._model
        is_before = known.branch == head.branch and known.seq < head.seq
        path = (
            [Span(head.branch, known.seq + 1, head.seq)]
            if is_before
            else await path_to(self.log, self.at, head)
        )
        found = (await self.log.newest(self.at, path, [MODEL])).get(MODEL)
        entry = await read_entry(found) if found else model if is_before else None
        self._model = (head, entry if isinstance(entry, ModelChange) else None)
        return self._model

    def _moved(self, conflict: Conflict) -> None:
        """Update the row from a conflict, which says where the session is now."""
        branch, seq = conflict.head
        self.row = structs.replace(
            self.row, version=conflict.version, branch=branch, seq=seq, total=conflict.total
        )

    def knows_model(self, head: Position, model: ModelChange | None) -> None:
        """Set the model in force at a place, so that it need not be read."""
        self._model = (head, model)

    async def append(
        self,
        records: Sequence[Record],
        *,
        after: Position,
        model: ModelChange | None,
        expected_version: int | None,
        key: Key | None,
    ) -> Receipt:
        """Append records after a head, which may be one that other tasks of this handle are about to write.

        So these tasks need not wait for each other. If one append is refused, so are those after it, and
        each starts over. The records are counted under `model`.
        """
        is_written, refusals = False, self._refusals
        ahead = self._ahead = Position(after[0], after[1] + len(records)), _last_model(records, model)
        self._on_way += 1
        try:
            if self.row.idle:
                await self.end_if_idle()
            change = self._change(
                records=records, key=key, expected_version=expected_version, expected_head=after
            )
            receipt = await self.store.commit(change)
            is_written = not receipt.repeated
            if is_written and self._model[0] == after:
                self._model = ahead
            self._seen(receipt, change)
            return receipt
        except Conflict as conflict:
            if refusals == self._refusals:
                self._moved(conflict)
            raise
        finally:
            self._on_way -= 1
            if not is_written and refusals == self._refusals:
                self._refusals, self._ahead = refusals + 1, None
            if not self._on_way:
                self._ahead = None

    async def commit(
        self,
        *,
        records: Sequence[Record] = (),
        key: Key | None = None,
        expected_version: int | None = None,
        expected_head: Position | None = None,
        fork: Fork | None = None,
        select: int | None = None,
        parcels: Sequence[Parcel] = (),
        next_epoch: bool = False,
        end: str | None = None,
    ) -> Receipt:
        """Commit a change, all of it or nothing."""
        if self.row.idle and not (next_epoch or end):
            await self.end_if_idle()
        change = self._change(
            records=records,
            key=key,
            expected_version=expected_version,
            expected_head=expected_head,
            fork=fork,
            select=select,
            parcels=tuple(parcels),
            next_epoch=next_epoch,
            end=end,
        )
        receipt = await self.store.commit(change)
        if not receipt.repeated and self._model[0] == (receipt.branch, receipt.first - 1):
            self._model = receipt.head, _last_model(change.records, self._model[1])
        self._seen(receipt, change)
        if (fork is not None and fork.parent is not None) or select is not None:
            self.row = await self.store.get(self.at)  # only the store knows the total there
        return receipt

    def _change(self, *, records: Sequence[Record], key: Key | None, **more: Any) -> Change:
        """Return a change of this session by this handle, with the checks that every change has."""
        return Change(
            at=self.at,
            now=self.clock(),
            created=self._created,
            epoch=self.epoch,
            key=key,
            fence=self.lease.fence if self.lease else None,
            records=tuple(records),
            trusts_clock=key is None or self._watch.trusts_age(KEY_LIFE),
            **more,
        )

    async def end_if_idle(self) -> bool:
        """End the session if it was idle for too long; return True if this call ended it.

        While the clock cannot be trusted, nothing is ended.
        """
        if self.row.expires is None:
            return False
        while self._watch.trusts() and self.row.expires is not None and self.row.expires <= self.clock():
            self.row = await self.store.get(self.at)
            if not self.row.is_idle(self.clock()) or self.row.epoch != self.epoch:
                break
            try:
                await check_store_time(self.store, self.clock)
                await self.end("idle")
            except ClockSkew:
                break
            except (Busy, Conflict, EpochEnded):
                continue
            return True
        return False

    async def end(self, reason: str) -> Receipt:
        """End the epoch, and put its history into the outbox for the memory engine."""
        receipt = await self.commit(
            end=reason, expected_head=self.row.head, parcels=await self.ending(reason)
        )
        self.row = structs.replace(self.row, ended=self.clock(), reason=reason)
        return receipt

    async def ending(self, reason: str) -> list[Parcel]:
        """Return the parcel for an epoch that ends at the head; no parcel if it has no messages."""
        row, now = self.row, self.clock()
        path = await path_to(self.log, self.at, row.head)
        newest = await self.log.newest(self.at, path, [MESSAGE])
        if not newest or row.ended is not None:
            return []
        ending = Ending(
            epoch=row.epoch,
            branch=row.branch,
            seq=row.seq,
            last=newest[MESSAGE].id,
            user=row.user,
            reason=reason,
            started=await self._started(path[-1].branch),
            ended=now,
        )
        return [ending.parcel(self.at, due=now)]

    async def _started(self, root: int) -> int:
        """Return when an epoch began, which is when its root branch was created."""
        branches = await self.log.branches(self.at)
        return next(branch.created for branch in branches if branch.id == root)

    def _seen(self, receipt: Receipt, change: Change) -> None:
        """Update the row after a change; a repeated receipt says nothing about the present.

        The epoch of this handle does not change: after a reset it has ended, and the next has its own handle.
        """
        if self._wrote is not None and change.end is None and not change.next_epoch:
            self._wrote()
        if receipt.repeated:
            return
        row = self.row
        total = 0 if change.fork else row.total
        for record in change.records:
            total += record.tokens
        self.row = structs.replace(
            row,
            total=total,
            epoch=receipt.epoch,
            version=receipt.version,
            branch=receipt.branch,
            seq=receipt.last,
            active=change.now if change.now > row.active and change.is_activity else row.active,
        )
        if change.next_epoch:
            self.row = structs.replace(self.row, ended=None, reason="")


def _last_model(records: Sequence[Record], before: ModelChange | None) -> ModelChange | None:
    """Return the model in force after these records."""
    for record in reversed(records):
        if record.kind == MODEL and isinstance(entry := decode_entry(MODEL, record.body), ModelChange):
            return entry
    return before
