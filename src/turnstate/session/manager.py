"""The session manager: creates, finds and removes the conversations of one tenant on one store.

    async with SessionManager.open("sqlite:///agent.db") as sessions:
        session = await sessions.create(user="u1", system="You are …")
        session = await sessions.open(session.id, user="u1")

An id that does not exist, or belongs to another user or tenant, raises `NotFound`; there is no default.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

from msgspec import structs

from .. import ids, stores, strict_json
from ..context.policy import Policy
from ..entry import Bootstrap, Entry, Prompt
from ..errors import (
    AlreadyExists,
    ClockSkew,
    InputError,
    NotFound,
    SessionError,
    StoreDamaged,
    StoreUnavailable,
    UnknownName,
)
from ..home import Home
from ..ids import Clock, ClockWatch, milliseconds, monotonic_clock, wall_clock
from ..log.entries import LogEntry, log_entries
from ..log.records import records
from ..memory.engines import beside, open_engine
from ..memory.port import MemoryEngine, User
from ..memory.worker import Worker
from ..models import Model
from ..process import Owner
from ..snapshots import Snapshots
from ..snapshots.content import from_snapshot, restored_row
from ..snapshots.folder import snapshot_name
from ..snapshots.writer import SnapshotWriter
from ..stores.port import OnDisk, Store
from ..stores.values import Address, Order, Removed, SessionFilter, SessionRow
from ..tokens import Counter
from ..tokens import counter as counter_named
from ..value import check_kind, check_number, check_whole, refuse
from .erasure import Erasure, erase_checkpoints, erased
from .handle import Handle
from .info import SearchResult, SessionInfo, SessionPage, info_of, page_cursor, page_mark, search
from .named_values import State, owner_address
from .names import (
    check_settings,
    checked,
    checked_meta,
    checked_prompt,
    checked_tags,
    idle_milliseconds,
    model_change,
)
from .open import Open, Opening
from .session import Session
from .summaries import Background, Summarizer
from .user_memory import Deliveries, Recall, UserMemory
from .writer import Abilities, SessionWriter, check_store_time

PAGE = 100
"""How many sessions or entries are read at a time."""


class SessionManager:
    """Creates, opens, lists, searches, expires and removes the sessions of one tenant."""

    open = Open()

    def __init__(
        self,
        store: Store,
        *,
        tenant: str = "default",
        policy: Policy | None = None,
        counter: str = "o200k_base",
        idle: float | None = None,
        model: Model | None = None,
        snapshots: Snapshots | None = None,
        memory: MemoryEngine | None = None,
        recall: Recall | None = None,
        home: Home | None = None,
        clock: Clock = wall_clock,
        monotonic: Clock | None = None,
    ) -> None:
        check_settings(
            tenant=tenant,
            policy=policy,
            counter=counter,
            idle=idle,
            model=model,
            snapshots=snapshots,
            memory=memory,
            recall=recall,
            home=home,
            clock=clock,
            monotonic=monotonic,
        )
        self.store, self.tenant = store, tenant
        self._abilities = Abilities.of(store)
        self.policy = policy or Policy()
        self._counter, self._clock = counter_named(counter).name, clock
        self._watch = ClockWatch(clock, monotonic or (monotonic_clock if clock is wall_clock else clock))
        self._idle, self._model = idle_milliseconds(idle), model
        self._background, self._snapshots, self._memory = Background(), snapshots, memory
        self._home, self._recall = home, recall or Recall()
        self._deliveries: Deliveries | None = None
        self._files = _files(store, snapshots, memory, home)
        self._unsaved = dict[str, SnapshotWriter]()
        self._owner = Owner(self, f"the session manager of tenant {tenant}")

    @classmethod
    def _opening(cls, url: str, **settings: Any) -> Opening:
        return Opening(partial(cls._open_store, url, **settings))

    @classmethod
    async def _open_store(cls, url: str, **settings: Any) -> Self:
        """Open the store at a URL for one tenant; the folder for snapshots must be writable."""
        check_settings(**settings)  # before a store is created
        snapshots: Snapshots | None = settings.get("snapshots")
        if snapshots is not None:
            await asyncio.to_thread(snapshots.check)
        store = await stores.connect(url)
        engine: MemoryEngine | None = None
        try:
            if isinstance(name := settings.get("memory"), str):
                engine = settings["memory"] = await open_engine(beside(url, name))
            sessions = cls(store, **settings)
            if engine is not None:
                sessions._deliveries = Deliveries(engine, sessions.deliver)
            return sessions
        except BaseException:  # a canceled task, too: nobody else could close the store
            if engine is not None:
                await engine.close()
            await store.close()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Finish deliveries and snapshots, cancel other background work, and close the store.

        No session is ended. In a child that inherited the manager, nothing is closed.
        """
        if self._owner.is_elsewhere:
            return
        if self._deliveries is not None:
            await self._deliveries.close()
        await self._background.cancel()
        for keeper in list(self._unsaved.values()):
            await keeper.finish()
        await self.store.close()

    @property
    def memory(self) -> MemoryEngine | None:
        """The engine of long-term memory, if there is one."""
        return self._memory

    async def settled(self) -> None:
        """Wait until no background work is running."""
        await self._background.settled()

    async def create(
        self,
        *,
        user: str | None = None,
        system: str | None = None,
        id: str | None = None,
        title: str = "",
        tags: Sequence[str] = (),
        meta: dict[str, Any] | None = None,
        model: str | None = None,
        counter: str | None = None,
        idle: float | None = None,
    ) -> Session:
        """Create a session; raise `AlreadyExists` if the id is taken.

        Messages are counted with the counter that the catalog has for `model`; `counter` is for sessions
        without a model, and for messages before the first model is set.
        """
        row = structs.replace(
            self._new_row(id if id is not None else str(ids.message_id()), user),
            title=checked(title, "a title", empty=True),
            tags=tuple(sorted(set(checked_tags(tags)))),
            counter=counter_named(counter).name if counter is not None else self._counter,
            meta=checked_meta({} if meta is None else meta),
            idle=self._idle if idle is None else idle_milliseconds(idle),
        )
        changed = model_change(model) if model is not None else None
        entries: list[Entry] = [changed] if changed else []
        entries += [Prompt(checked_prompt(system))] if system is not None else []
        memory = self._memory_of(row)
        profile = await memory.profile(_counter_of(row)) if memory else None
        entries += [Bootstrap(profile)] if profile else []
        made = await records(entries, _counter_of(row), self.policy)
        handle = self._handle(await self.store.create(row, made))
        handle.writer.knows_model(handle.writer.row.head, changed)
        handle.memory = memory  # it says whether the profile is missing
        return Session(handle, reopened=self._session)

    async def open_or_create(self, id: str, *, user: str | None = None, system: str | None = None) -> Session:
        """Open a session, or create it if the id is new; raise `NotFound` if it is another user's.

        `system` is the prompt of a new session; an existing one keeps its own.
        """
        try:
            return await self._open_session(id, user=user)
        except NotFound:
            with suppress(AlreadyExists):  # it is another user's, or another worker was faster
                return await self.create(id=id, user=user, system=system)
        return await self._open_session(id, user=user)

    # Finding sessions and what is written to them: nothing here opens or changes one.

    async def list(
        self,
        *,
        user: str | None = None,
        tag: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        live: bool | None = None,
        order: Order = "created",
        cursor: str | None = None,
        limit: int = PAGE,
    ) -> SessionPage:
        """Return a page of sessions, newest first by creation or by activity.

        Pass the cursor of a page for the next one. `since` and `until` bound the last activity.
        """
        check_whole("limit", limit)
        check_kind("live", live, bool, optional=True)
        if order not in ("created", "active"):
            refuse("order", order, '"created" or "active"')
        which = SessionFilter(
            user=asked_name(user, "a user"),
            tag=asked_name(tag, "a tag"),
            since=_moment("since", since),
            until=_moment("until", until),
            live=live,
        )
        after = None if cursor is None else page_mark(cursor, order)
        rows = await self.store.page(self.tenant, which, order=order, after=after, limit=limit)
        more = page_cursor(rows[-1].mark(order), order) if rows and len(rows) == limit else None
        return SessionPage(map(info_of, rows), more)

    async def all(
        self, *, user: str | None = None, tag: str | None = None, order: Order = "created"
    ) -> AsyncIterator[SessionInfo]:
        """Iterate over all sessions, the newest first."""
        page = await self.list(user=user, tag=tag, order=order)
        while True:
            for info in page:
                yield info
            if page.cursor is None:
                return
            page = await self.list(user=user, tag=tag, order=order, cursor=page.cursor)

    async def search(
        self, text: str, *, user: str | None = None, session: str | None = None, limit: int = PAGE
    ) -> AsyncIterator[SearchResult]:
        """Find messages that contain all the words, in all sessions or in one, the newest first.

        If some of them are damaged, `StoreDamaged` is raised after the last intact one.
        """
        user = asked_name(user, "a user")
        if session is not None:
            await self._row(session, user)
        async for found in search(self.store, self.tenant, text, user=user, session=session, limit=limit):
            yield found

    async def follow(self, *, after: str | None = None, every: float = 0.5) -> AsyncIterator[LogEntry]:
        """Iterate over the entries of all sessions as they are written, by any process.

        It begins after the `cursor` of an entry, or with the first, and yields each entry once; entries of
        one session are in order. It polls the store every `every` seconds and does not end by itself.
        """
        check_kind("after", after, str, optional=True)
        check_number("every", every, least=0, most=86_400)
        cursor = after or ""
        while True:
            page = await self.store.feed(self.tenant, cursor, limit=PAGE)
            for item in page.items:
                (entry,) = await log_entries(Address(self.tenant, item.session), [item.row])
                yield structs.replace(entry, cursor=item.cursor)
            cursor = page.cursor
            if len(page.items) < PAGE:
                await asyncio.sleep(every)

    async def cursor(self) -> str:
        """Return the current cursor: following after it yields only what is written from now on."""
        return await self.store.feed_end(self.tenant)

    # Delivering, expiring, erasing.

    async def deliver(self) -> dict[str, int]:
        """End idle sessions, and deliver due parcels to the memory engine; return their number by result.

        With ``memory="builtin"`` this happens in the background anyway; a call only does it now. With an
        engine that was passed as a value, call this method or run a worker.
        """
        if self._memory is None:
            return {}
        with suppress(ClockSkew):
            await self.expire()
        worker = Worker(self.store, self._memory, tenant=self.tenant, clock=self._clock)
        return {str(result): count for result, count in (await worker.run_once()).items()}

    async def expire(self, *, limit: int = PAGE) -> Sequence[str]:
        """End sessions that were idle for too long, and return their ids; only one caller ends each session.

        Raise `ClockSkew` and end none if the clock of this machine cannot be trusted.
        """
        check_whole("limit", limit)
        if not self._watch.trusts():
            raise ClockSkew(
                "the clock of this machine jumped ahead; nothing was ended, try again in a minute"
            )
        await check_store_time(self.store, self._clock)
        ended = []
        for row in await self.store.due(self.tenant, self._clock(), limit=limit):
            try:
                if await self._writer(row).end_if_idle():
                    ended.append(row.id)
            except (SessionError, StoreDamaged):  # used, leased, ended or removed meanwhile, or damaged
                continue
        return ended

    async def destroy(self, id: str, *, user: str | None = None) -> Removed:
        """Delete a session: log, keys, search terms, parcels, snapshots, checkpoints. Its memories stay."""
        await self._row(id, user)
        at = Address(self.tenant, id)
        await erase_checkpoints(self._home, at)
        removed = await self.store.remove(at)
        if self._snapshots is not None:
            await asyncio.to_thread(self._snapshots.erase, snapshot_name(at))
        return removed

    async def erase(
        self, *, session: str | None = None, user: str | None = None, tenant_state: bool = False
    ) -> Erasure:
        """Delete everything of one session or one user, or the tenant's state, and return a receipt."""
        if session is None and user is None and not tenant_state:
            raise InputError("nothing to erase was named; pass a session or a user, or tenant_state=True")
        if session is not None:
            await self._row(session, user)
        wanted, owners = [] if session is None else [session], list[Address]()
        if session is None and user is not None:
            wanted = [info.id async for info in self.all(user=user)]
            owners.append(owner_address(self.tenant, user))
        if tenant_state:
            owners.append(owner_address(self.tenant, None))
        return await erased(
            self.store,
            [Address(self.tenant, id) for id in wanted],
            tenant=self.tenant,
            user=user if session is None else None,
            states=owners,
            snapshots=self._snapshots,
            memory=self._memory,
            home=self._home,
            now=self._clock(),
        )

    def user_state(self, user: str) -> State:
        """Return the named values that programs keep for a user across sessions."""
        return self._owner_state(checked(user, "a user"))

    @property
    def tenant_state(self) -> State:
        """The named values that programs keep for all users."""
        return self._owner_state(None)

    def _owner_state(self, user: str | None) -> State:
        at = owner_address(self.tenant, user)

        async def find() -> SessionWriter | None:
            try:
                return self._writer(await self.store.get(at))
            except NotFound:
                return None

        async def create() -> SessionWriter:
            while (known := await find()) is None:
                row = structs.replace(self._new_row("state", user), tenant=at.tenant, id=at.session, idle=0)
                with suppress(AlreadyExists):  # another process created it first
                    return self._writer(await self.store.create(row))
            return known

        return State(find, create)

    async def restore(self, id: str, *, user: str | None = None, trust: bool = False) -> Session:
        """Continue a session after its process ended: from the log, or else from its newest snapshot.

        A snapshot that this installation did not write is used only with `trust`; its system messages
        are then marked as foreign and have no authority.
        """
        try:
            session = await self._open_session(id, user=user)
        except NotFound:
            session = await self._from_snapshot(id, user, trust)
        if session._row.ended is None:
            await session._handle.answer_interrupted_calls()
        return session

    async def _from_snapshot(self, id: str, user: str | None, trust: bool) -> Session:
        if self._snapshots is None:
            raise NotFound(f"there is no session {id}")
        restored = await asyncio.to_thread(
            self._snapshots.restore, snapshot_name(Address(self.tenant, id)), trust=trust
        )
        if restored is None:
            raise NotFound(f"there is no session {id}, and no snapshot of it in {self._snapshots.folder}")
        row = restored_row(self._new_row(id, user), restored)
        if user is not None and row.user != user:
            raise NotFound(f"there is no session {id}")
        entries = list(from_snapshot(restored.snapshot, self.policy.summary_template))
        made = await records(entries, _counter_of(row), self.policy)
        return self._session(await self.store.create(row, made))

    async def _open_session(self, id: str, *, user: str | None = None) -> Session:
        """Open a session; raise `NotFound` if it does not exist or belongs to another user."""
        session = self._session(await self._row(id, user))
        with suppress(StoreUnavailable):  # a full disk: it can be read, and an append tries to end it again
            await session._writer.end_if_idle()
        return session

    async def _row(self, id: str, user: str | None) -> SessionRow:
        row = await self.store.get(Address(self.tenant, asked_name(id, "a session id") or ""))
        if user is not None and row.user != user:
            raise NotFound(f"there is no session {id}")
        return row

    def _new_row(self, id: str, user: str | None) -> SessionRow:
        now = self._clock()
        return SessionRow(
            tenant=self.tenant,
            id=checked(id, "a session id"),
            user=checked(user, "a user") if user is not None else None,
            title="",
            tags=(),
            counter=self._counter,
            meta={},
            created=now,
            active=now,
            idle=self._idle,
        )

    def _session(self, row: SessionRow) -> Session:
        return Session(self._handle(row), reopened=self._session)

    def _handle(self, row: SessionRow) -> Handle:
        spawn, writer = self._background.spawn, self._writer(row)
        summaries = Summarizer(self._model, self.policy, spawn)
        handle = Handle(writer, self.policy, summaries, memory=self._memory_of(row), files=self._files)
        if self._snapshots is not None:
            name = snapshot_name(row.address)
            handle.keep_snapshots(
                SnapshotWriter(self._snapshots, name, handle.snapshot, writer.refresh, spawn, self._unsaved)
            )
        return handle

    def _memory_of(self, row: SessionRow) -> UserMemory | None:
        if self._memory is None or row.user is None:
            return None
        return UserMemory(self._memory, User(row.tenant, row.user), self._recall)

    def _writer(self, row: SessionRow) -> SessionWriter:
        return SessionWriter(
            self.store,
            row,
            abilities=self._abilities,
            clock=self._clock,
            watch=self._watch,
            counter=_counter_of(row),
            policy=self.policy,
        )


def _counter_of(row: SessionRow) -> Counter:
    """Return the counter of a session; an unknown name means damage that can be repaired."""
    try:
        return counter_named(row.counter)
    except UnknownName:
        raise StoreDamaged(
            f"session {row.id} is damaged: its counter {row.counter!r:.60} is unknown; "
            "run `turnstate verify --repair`"
        ) from None


def _files(
    store: Store, snapshots: Snapshots | None, memory: MemoryEngine | None, home: Home | None
) -> tuple[Path, ...]:
    """Return the files and folders that are kept on this machine."""
    kept: list[object] = [store, memory]
    files = [path for one in kept if hasattr(one, "files") for path in cast(OnDisk, one).files]
    files += [snapshots.folder] if snapshots else []
    files += [home.path] if home else []
    return tuple(files)


def _moment(setting: str, given: datetime | None) -> int | None:
    """Return a time in milliseconds; raise `InvalidSetting` if it has no time zone."""
    check_kind(setting, given, datetime, optional=True)
    if given is not None and given.tzinfo is None:
        refuse(setting, given, "a time with a time zone, such as datetime.now(UTC)")
    return None if given is None else milliseconds(given)


def asked_name(name: str | None, what: str) -> str | None:
    """Return a name to look up; raise `InputError` if no store could have such a name."""
    if name is not None and not isinstance(name, str):  # some stores would treat a number as text
        raise InputError(f"{what} must be text, not {type(name).__name__}")
    if name is not None:
        strict_json.check_text(name, at=what)
    return name
