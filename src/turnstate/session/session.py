"""A session: the handle of one conversation, from any process, on any store. It has every operation.

It holds nothing that the store does not hold. In memory it keeps the part of the log that windows are
made from, and it checks the store before it trusts that part. Any number of handles may be open on one
session; a lease makes one of them the only writer. A handle belongs to one epoch: after a reset by any
process it raises `EpochEnded`, and the handle that `reset` returned continues.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import UNSET, UnsetType

from .. import catalog, telemetry
from ..catalog import ModelInfo
from ..context.cut import DEFAULT_STRATEGY, Compaction, Strategy
from ..context.policy import Budget, check_budget
from ..context.snapshot import ContextSnapshot
from ..context.window import Window
from ..conversation import ConversationState, FileLineTracker, Os, ToolOrigin
from ..conversation.kept_settings import changed
from ..entry import Note, Prompt
from ..errors import Conflict, InputError, InvalidMessage, NotFound
from ..log import operations, tangents
from ..log.entries import (
    LogEntry,
    last_messages,
    log_entries,
    path_after,
    path_of,
    read_entries,
    read_messages,
)
from ..log.operations import Operation
from ..log.tangents import KeptTangent
from ..log.undo import fork, rewind, undo
from ..memory.facts import Fact
from ..memory.port import Filter, Recollection
from ..message import Message, not_a_message
from ..models import Model
from ..sticky import ContextManager, Gathered
from ..stores.port import GivesNotices, Reads, ReportsLosses
from ..stores.values import Lease, Receipt, SessionRow, Span
from ..toolspec import ToolSpec
from ..value import check_kind, check_number, check_whole, refuse
from . import leases
from .epoch import begin_epoch
from .handle import Handle
from .info import Branch, SearchResult, SessionInfo, branch_of, info_of, search
from .named_values import State
from .names import (
    checked,
    checked_lines,
    checked_meta,
    checked_prompt,
    checked_tags,
    checked_text,
    model_change,
)
from .pending import Pending
from .turn import Turn
from .view import view
from .writer import SessionWriter

T = TypeVar("T")

PAGE = 100
"""How many entries `follow` reads at a time."""

FEW = 64
"""How many messages are a small read, unless they are long."""

_GONE = {
    "commit": "session.commit(state) is gone: a conversation is changed by the methods of its session, such "
    "as append, set_system, begin_tangent, leave_tangent, clear, change_settings and record_lines",
    "catch_up": "session.catch_up(state) is gone: `await session.conversation()` reads the newest version",
}


class Session:
    """One conversation."""

    def __init__(self, handle: Handle, *, reopened: Callable[[SessionRow], Session]) -> None:
        self._handle, self._writer, self._reopened = handle, handle.writer, reopened
        self.state = State(self._log, self._log)
        """Named values that programs keep with the conversation; no model reads them."""

    if not TYPE_CHECKING:  # a checker would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            """Say what replaced a method that is gone."""
            raise AttributeError(_GONE.get(name, f"a session has no attribute {name!r}"), name=name, obj=self)

    @property
    def info(self) -> SessionInfo:
        """The session as it was last seen: title, tags, times, version, head."""
        return info_of(self._row)

    @property
    def cache_key(self) -> str:
        """A name for OpenAI's ``prompt_cache_key``: the same for every request of this session.

        It is a hash, since tenants and ids may say who somebody is.
        """
        at = self._writer.at
        return hashlib.blake2b(f"{at.tenant}\0{at.session}".encode(), digest_size=16).hexdigest()

    @property
    def id(self) -> str:
        """The id under which any worker can open it."""
        return self._row.id

    @property
    def version(self) -> int:
        """The number of changes to the path of messages, as last seen."""
        return self._row.version

    @property
    def total(self) -> int:
        """The tokens of all messages on the path, as last seen, before anything is cut or added."""
        return self._row.total

    async def cost(self, message: Message) -> int:
        """Return the tokens that a message would add to the total."""
        if not isinstance(message, Message):
            raise InvalidMessage(not_a_message("cost", message))
        (record,) = await self._writer.records([message])
        return record.tokens

    async def messages(
        self,
        *,
        branch: int | None = None,
        after: str | None = None,
        limit: int | None = None,
        last: int | None = None,
    ) -> list[Message]:
        """Return the messages on the path to the head or the end of a branch, including those a cut hides.

        `after` is the id of an entry on that path, and at most `limit` messages after it are returned;
        `last` returns the last ones instead. An answer that the core gave to a call is returned as the
        tool message that a window shows for it.
        """
        if last is not None and limit is not None:
            raise InputError("pass limit for the first messages, or last for the last ones, not both")
        for name, count in (("limit", limit), ("last", last)):
            if count is not None:
                check_whole(name, count)

        async def read(log: Reads, path: Sequence[Span]) -> list[Message]:
            if last is not None:
                return await last_messages(log, self._writer.at, path, last)
            return await read_messages(log, self._writer.at, path, limit=limit)

        wanted = limit if last is None else last
        return await self._read(branch, after, read, small=wanted is not None and wanted <= FEW)

    async def entries(
        self,
        *,
        kinds: Sequence[str] | None = None,
        branch: int | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[LogEntry]:
        """Return the entries on the path to the head or to the end of a branch, with their places and times.

        `kinds` selects the kinds of entries; `after` is the id of an entry on that path, and at most `limit`
        entries after it are returned.
        """
        if kinds is not None and not (isinstance(kinds, Collection) and _are_names(kinds)):
            refuse("kinds", kinds, "a sequence of kinds, such as ['message']")
        if limit is not None:
            check_whole("limit", limit)

        async def read(log: Reads, path: Sequence[Span]) -> list[LogEntry]:
            return await read_entries(log, self._writer.at, path, kinds=kinds, limit=limit)

        return await self._read(branch, after, read)

    async def entry(self, id: str) -> LogEntry:
        """Return the entry with an id, on any branch; raise `NotFound` if there is none."""
        check_kind("id", id, str)
        for entry in await log_entries(self._writer.at, await self._writer.log.find(self._writer.at, [id])):
            return entry
        raise NotFound(f"session {self.id} has no entry {id:.80}")

    async def search(self, text: str, *, limit: int = PAGE) -> AsyncIterator[SearchResult]:
        """Find messages of this session that contain all the words, on all branches, the newest first."""
        tenant = self._writer.at.tenant
        async for found in search(self._writer.log, tenant, text, session=self.id, limit=limit):
            yield found

    async def branches(self) -> list[Branch]:
        """Return all branches in order of creation."""
        await self._writer.refresh()
        return [branch_of(row) for row in await self._writer.log.branches(self._writer.at)]

    async def follow(self, *, after: str | None = None, every: float = 0.5) -> AsyncIterator[LogEntry]:
        """Iterate over the entries of all branches and epochs as they are written, by any process.

        It begins after the entry whose id is `after`, or with the first, and yields each entry once and in
        order. It polls the store every `every` seconds and does not end by itself.
        """
        check_kind("after", after, str, optional=True)
        check_number("every", every, least=0, most=86_400)
        store, at, seen = self._writer.store, self._writer.at, None
        while True:
            row = await store.get(at)
            place = (row.epoch, row.version, row.head)  # changes with every write
            rows = await store.since(at, after, limit=PAGE) if place != seen else []
            for entry in await log_entries(at, rows):
                yield entry
                after = entry.id
            if len(rows) < PAGE:
                seen = place
                await asyncio.sleep(every)

    @property
    def notices(self) -> tuple[str, ...]:
        """Problems to show to the user: damage, losses, files that others change, what keeps failing."""
        model = self._handle.summaries.failures.notice
        disk = self._handle.keeper.failure if self._handle.keeper else ""
        store, lost = self._writer.store, ""
        if isinstance(store, ReportsLosses) and (found := store.lost(self._writer.at)):
            lost = f"the store lost acknowledged data: {found}; send the missing messages again"
        files = store.notices if isinstance(store, GivesNotices) else ()
        memory = self._handle.memory.notice if self._handle.memory else ""
        notices = (
            *self._handle.windows.damage,
            lost,
            *files,
            self._handle.windows.unrecorded,
            model,
            disk,
            memory,
        )
        return tuple(notice for notice in notices if notice)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files and folders of its manager on this machine, which checkpoints leave alone."""
        return self._handle.files

    @property
    def has_memory(self) -> bool:
        """True if there is a long-term memory for `recall` and `remember`."""
        return self._handle.memory is not None

    async def append(
        self, *messages: Message, expected_version: int | None = None, key: str | None = None
    ) -> Receipt:
        """Add messages, all of them or none, and return once they are as durable as the store promises."""
        return await self._handle.append(*messages, expected_version=expected_version, key=key)

    def turn(
        self,
        words: str | Message | None = None,
        *,
        budget: Budget,
        tools: Sequence[ToolSpec] = (),
        context: str | None = None,
        memory: str | None = None,
        lease: bool = False,
        key: str | None = None,
    ) -> Turn:
        """Begin a turn with the user's words, or continue the pending one: ``async with session.turn(…)``.

        If another writer intervenes, the next step raises `Conflict`; `lease` keeps others out while the
        block runs. Words already saved under the same `key` are not saved again, and the turn continues.
        """
        return Turn(
            self._handle,
            words,
            budget=budget,
            tools=tools,
            context=context,
            memory=memory,
            lease=lease,
            key=key,
        )

    async def pending(self) -> Pending | None:
        """Return what is unfinished: a prompt, calls, or a paused reply; None if nothing is."""
        return await self._handle.pending()

    async def window(
        self,
        budget: Budget,
        *,
        tools: Sequence[ToolSpec] = (),
        context: str | Gathered | None = None,
        memory: str | None = None,
    ) -> Window:
        """Return the window to send; the decisions made for it are written to the log.

        `context` is the text of sticky files, or the result of `ContextManager.gather`, whose dropped files
        are then in the window's report.
        """
        return await self._handle.window(budget, tools=tools, context=context, memory=memory)

    async def preview(
        self,
        budget: Budget,
        *,
        tools: Sequence[ToolSpec] = (),
        context: str | Gathered | None = None,
        memory: str | None = None,
    ) -> Window:
        """Return the window that `window` would return, without writing anything."""
        return await self._handle.window(budget, tools=tools, context=context, memory=memory, preview=True)

    async def recall(self, query: str, k: int = 6, *, where: Filter | None = None) -> list[Recollection]:
        """Search the user's long-term memory for a question, and return the best results first."""
        check_whole("k", k, least=0)
        check_kind("where", where, Filter, optional=True)
        return await self._handle.required_memory().search(query, k, where)

    async def remember(self, text: str) -> None:
        """Store a note about the user in long-term memory; erasing this session erases the note."""
        await self._handle.required_memory().remember(text, self.id)

    async def facts(self, *, as_of: str | None = None) -> list[Fact]:
        """Return what is known about the user: the facts that hold now, or held at a time."""
        return await self._handle.required_memory().facts(as_of=as_of)

    async def correct(self, fact: str, value: str) -> Fact:
        """Change the value of a fact about the user, named by its id or its present value."""
        return await self._handle.required_memory().correct(fact, value)

    async def forget(self, fact: str) -> Fact:
        """Permanently delete a fact about the user, named by its id or its value, with its history."""
        return await self._handle.required_memory().forget(fact)

    async def snapshot(self) -> ContextSnapshot:
        """Return a snapshot: preface, summary and kept messages."""
        return await self._handle.snapshot()

    async def system(self) -> str | None:
        """Return the system prompt in force, or None if there is none."""
        return (await self._handle.windows.loaded()).fold.prompt

    async def set_system(self, text: str) -> Receipt:
        """Set the system prompt from here on."""
        return await self._handle.write([Prompt(checked_prompt(text))])

    async def model(self) -> ModelInfo | None:
        """Return the model in force at the head; None if no model was set."""
        await self._writer.refresh()
        _, model = await self._writer.model()
        return catalog.named(model.id) if model and model.id else None

    async def set_model(self, id: str) -> ModelInfo:
        """Set the model from here on: its counter counts messages and measures windows.

        Earlier messages keep their stored count, but a window counts them again. A rewind to a message
        before this brings the former model back.
        """
        changed = model_change(id)
        await self._handle.operate(operations.set_model(changed), anywhere=True)
        return catalog.named(changed.id)

    def summarize_with(self, model: Model) -> None:
        """Let a model write the summaries of this handle from now on, instead of its manager's model."""
        self._handle.summaries.model = model

    async def fork(self, *, at: str | None = None, name: str = "") -> Branch:
        """Continue from a message of any branch, or from the head, on a new branch."""
        name = checked(name, "a branch name", empty=True)
        check_kind("the id of a message", at, str, optional=True)
        return await self._branched(fork(at, name))

    async def rewind(self, to: str, *, exact: bool = False, before: bool = False) -> Branch:
        """Make a message the last one of the path. What came after it stays in the log.

        Between calls and their results, the path goes back to before the calls; with `exact` it ends at
        the message, and the missing results may still arrive. With `before`, it ends before the message.
        """
        check_kind("the id of a message", to, str)
        return await self._branched(rewind(to, exact=exact, before=before))

    # Tangents, settings and what people see.

    async def begin_tangent(self, *, at: str | None = None) -> str:
        """Begin a side conversation here, or after an earlier message; return its name. Tangents nest."""
        check_kind("the id of a message", at, str, optional=True)
        name: str = (await self._handle.operate(tangents.begin(at))).result
        return name

    async def leave_tangent(
        self, bring: tangents.Bring | None = None, *, summary: str | None = None
    ) -> str | None:
        """Leave the tangent for where it began, in one write; return its name, or None outside a tangent.

        `bring` brings back nothing, the last exchange (``"tail"``), or a summary of all exchanges
        (``"summary"``): the given one, or a digest.
        """
        check_kind("summary", summary, str, optional=True)
        name: str | None = (await self._handle.operate(tangents.leave(bring, summary))).result
        return name

    async def tangents(self) -> list[KeptTangent]:
        """Return the tangents that were left and can be reopened, in the order in which they began."""
        kept: list[KeptTangent] = await self._handle.ask(tangents.kept())
        return kept

    async def reopen_tangent(self, name: str) -> None:
        """Go back into a tangent that was left. Tangents that do not contain it are left first, in turn."""
        check_kind("the name of a tangent", name, str)
        await self._handle.operate(tangents.reopen(name))

    async def clear(self) -> bool:
        """Hide history, summary and next message; return False if nothing was shown.

        The log keeps all of it, and `undo` shows it again.
        """
        return bool((await self._handle.operate(operations.clear())).result)

    async def note(self, text: str) -> Receipt:
        """Add a line to the transcript, which people read and no model."""
        return await self._handle.write([Note(checked_text(text, "a note"))])

    async def change_settings(
        self,
        *,
        tools: Mapping[ToolOrigin, Sequence[ToolSpec]] | UnsetType = UNSET,
        context_manager: ContextManager | UnsetType | None = UNSET,
        mcp_enabled: bool | UnsetType = UNSET,
        extra: dict[str, Any] | UnsetType = UNSET,
    ) -> None:
        """Change what the conversation keeps besides its messages, from here on; the rest stays.

        The names are those of the fields of a `ConversationState`. The context manager holds the paths of
        the sticky files.
        """
        given = {
            "tools": tools,
            "context_manager": context_manager,
            "mcp_enabled": mcp_enabled,
            "extra": extra,
        }
        changes = {name: value for name, value in given.items() if not isinstance(value, UnsetType)}
        await self._handle.operate(operations.change_settings(changed(changes)), anywhere=True)

    async def lines(self) -> dict[str, FileLineTracker]:
        """Return what the line tracker knows about each file; later calls read only what is new."""
        return await self._handle.lines.read()

    async def record_lines(self, records: Mapping[str, FileLineTracker | None]) -> None:
        """Write what the line tracker knows about these files; None means that it tracks one no longer."""
        await self._handle.operate(operations.record_lines(checked_lines(records)), anywhere=True)

    async def conversation(self, *, last: int | None = None, os: Os | None = None) -> ConversationState:
        """Return the conversation as it is now, to read: history, tools, sticky files, tangent.

        It has the exchanges since the newest cut, or the `last` ones, 10,000 at most; with `last=0` it has
        the settings alone. It is a view of this version and never changes; its `has_earlier` says whether
        more was said.
        """
        if last is not None:
            check_whole("last", last)
        return await view(self._writer, policy=self._handle.policy, last=last, os=os)

    async def ask(self, operation: Operation) -> Any:
        """Run an operation of `turnstate.log` that only reads, and return its result."""
        return await self._handle.ask(operation)

    async def operate(self, operation: Operation, *, anywhere: bool = False) -> Any:
        """Run an operation of `turnstate.log`, write its effect as one change, and return its result.

        If the head is meanwhile on another branch, raise `Conflict`; with `anywhere`, run it there.
        """
        return (await self._handle.operate(operation, anywhere=anywhere)).result

    async def compact(
        self,
        budget: Budget | None = None,
        *,
        focus: str | None = None,
        strategy: Strategy | None = None,
        model: bool = True,
        patience: float | None = None,
    ) -> Compaction:
        """Replace all but the newest exchanges with a summary; `undo` reverts it.

        The session's model writes it if there is one and `model` is true; otherwise a digest is used. The
        model has `patience` seconds, 120 by default; after that the digest is used, and `refused` says why.
        """
        check_budget(budget, optional=True)
        if strategy is not None:
            check_kind("strategy", strategy, Strategy)
        if focus is not None:
            check_kind("focus", focus, str)
        if patience is not None:
            check_number("patience", patience, least=0, most=86_400, above=True)
        with telemetry.traced(
            "turnstate.compact", {"gen_ai.conversation.id": self._writer.at.session}
        ) as span:
            outcome = await self._handle.windows.compact(
                budget, strategy or DEFAULT_STRATEGY, focus, model=model, patience=patience
            )
            span.set({"turnstate.messages": outcome.messages, "turnstate.tokens": outcome.tokens_after})
            return outcome

    async def preview_compact(
        self, budget: Budget | None = None, *, strategy: Strategy | None = None
    ) -> Compaction:
        """Return what `compact` would do without a model, without writing anything."""
        check_budget(budget, optional=True)
        check_kind("strategy", strategy, Strategy, optional=True)
        return await self._handle.windows.preview_compact(budget, strategy or DEFAULT_STRATEGY)

    async def undo(self, *, only: str | None = None) -> str:
        """Undo the newest operation (see `log.undo` for the rule), and return its name; files stay.

        With `only`, raise `InputError` and change nothing if the newest operation has another name.
        """
        check_kind("only", only, str, optional=True)
        name: str = (await self._handle.operate(undo(only))).result
        return name

    async def reset(self, *, system: str | None = None) -> Session:
        """End this conversation and return the handle of the next, which begins under the same id.

        A reset overrides a lease: its holder and every other earlier handle get `EpochEnded`. The history
        goes to the memory engine, once.
        """
        lease: Lease | None = None
        try:
            while not await begin_epoch(self._handle, system):
                lease = await leases.seized(self._writer) or lease
        finally:
            if lease is not None:  # after a reset it has ended in any case
                await self._writer.store.release(self._writer.at, lease, now=self._writer.clock())
        if self._handle.keeper:
            await self._handle.keeper.stop()
        session = self._reopened(self._writer.row)
        if session._handle.keeper:
            await session._handle.keeper.restart()
        return session

    async def end(self, reason: str = "closed") -> Receipt:
        """End this conversation; it stays readable, and `reset` begins the next."""
        reason = checked(reason, "a reason")
        while True:
            await self._writer.refresh()
            try:
                return await self._writer.end(reason)
            except Conflict:
                continue

    async def rename(self, title: str) -> None:
        """Set the title."""
        await self._describe(title=checked(title, "a title", empty=True))

    async def tag(self, *tags: str) -> None:
        """Replace the tags."""
        await self._describe(tags=checked_tags(tags))

    async def annotate(self, meta: dict[str, Any], *, expected: dict[str, Any] | None = None) -> None:
        """Replace the metadata: any JSON object.

        With `expected`, the metadata as it was read, raise `Conflict` if it has changed since.
        """
        was = None if expected is None else checked_meta(expected)
        await self._describe(meta=checked_meta(meta), expected=was)

    def lease(
        self, *, seconds: float = 30.0, holder: str | None = None, take_over: bool = False
    ) -> AbstractAsyncContextManager[Lease]:
        """Hold the lease while a block runs: ``async with session.lease(): …``."""
        return leases.leased(self._writer, seconds, holder, take_over=take_over)

    async def acquire(
        self, *, seconds: float = 30.0, holder: str | None = None, take_over: bool = False
    ) -> Lease:
        """Take the lease until it is released or expires; raise `Busy` while another worker has it.

        With `take_over` it is taken from that worker, whose next write raises `Fenced`.
        """
        return await leases.acquire(self._writer, seconds, holder, take_over=take_over)

    async def renew(self, *, seconds: float = 30.0) -> Lease:
        """Extend the lease; raise `Fenced` if another worker has it now."""
        return await leases.renew(self._writer, seconds)

    async def release(self) -> None:
        """Release the lease."""
        await leases.release(self._writer)

    async def _log(self) -> SessionWriter:
        return self._writer

    async def _branched(self, operation: Operation) -> Branch:
        receipt = (await self._handle.operate(operation, anywhere=True)).receipt
        made = receipt.branch if receipt else self._writer.row.branch
        return next(branch for branch in await self.branches() if branch.id == made)

    async def _describe(self, **changes: Any) -> None:
        await self._writer.refresh()
        await self._writer.store.update(self._writer.at, **changes)
        await self._writer.refresh()

    @property
    def _row(self) -> SessionRow:
        return self._writer.row

    async def _read(
        self,
        branch: int | None,
        after: str | None,
        read: Callable[[Reads, Sequence[Span]], Awaitable[T]],
        *,
        small: bool = False,
    ) -> T:
        """Read the path to the head or to the end of a branch, or the part of it after an entry."""
        if branch is not None:
            check_whole("branch", branch, least=1)
        check_kind("after", after, str, optional=True)

        async def job(row: SessionRow, log: Reads) -> T:
            path = await path_of(log, row.address, row.head, branch)
            return await read(log, await path_after(log, row.address, path, after))

        return await self._writer.read(job, small=small)


def _are_names(given: Collection[object]) -> bool:
    return not isinstance(given, str) and all(isinstance(one, str) for one in given)
