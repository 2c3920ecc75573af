"""A turn: the user's words, requests and replies, tool results, each saved before the program continues.

    async with session.turn("fix it", budget=budget, tools=tools) as turn:
        while request := await turn.request("openai-chat", model="…"):
            for call in await turn.reply(await client.chat.completions.create(**request)):
                await turn.result(call, await run(call))

A process that ends in the middle leaves a turn *pending*: a prompt that waits for its reply, or calls, some
of which have results. ``session.turn()`` without words continues it. Calls that have results keep them. The
others are in ``turn.calls``, and the caller decides whether to run them again: those without a result by the
first request are answered as interrupted, and the model decides.

``turn.answer`` is the reply that ended *this* turn. A client that repeats a request under its key gets the
answer of that request, even if the conversation went on in the meantime, or back to before it.

A turn expects to be the only writer of the session. If another writer intervenes, the next step raises
`Conflict`, and everything saved so far stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import Any, Self, TypeVar

from msgspec import structs

from .. import formats
from ..context.policy import Budget, check_budget
from ..context.preface import check_tools
from ..context.window import Window
from ..entry import Answer, EarlyEnd, Entry, Started, Usage
from ..errors import Conflict, InputError, SessionError
from ..formats import ReceivedMessage
from ..formats.port import Format
from ..ids import CallId, MessageId
from ..log.path import END, between, path_to, read_entry, rows_backwards, rows_forwards
from ..message import Message, ToolCallRequest, ToolCallResult
from ..stores.port import Reads
from ..stores.values import MESSAGE, Position, Receipt, SessionRow, Span
from ..tokens import Calibration
from ..toolspec import ToolSpec
from ..value import check_kind, refuse
from .handle import Handle
from .leases import leased
from .pending import Pending, pending

LEASE_SECONDS = 30.0
"""The lease of a turn, which is renewed while the turn runs."""

MOST_MODELS = 8
"""Maximum number of models whose calibration a session carries along."""

T = TypeVar("T")


class Turn:
    """One turn of a session; create it with `session.turn`."""

    def __init__(
        self,
        handle: Handle,
        words: str | Message | None,
        *,
        budget: Budget,
        tools: Sequence[ToolSpec],
        context: str | None,
        memory: str | None,
        lease: bool,
        key: str | None,
    ) -> None:
        check_budget(budget)
        check_tools(tools)
        self._handle, self._writer, self._prompt = handle, handle.writer, _prompt(words)
        self._budget, self._tools = budget, tuple(tools)
        self._context, self._memory = context, memory
        self._lease, self._key = lease, key
        self._format: Format | None = None
        self._asked = ""  # the model of the last request
        self._recorded: Mapping[str, Any] = {}  # the calibrations of all models at that time
        self._calibration: Calibration | None = None  # the calibration of that model
        self._sent: Window | None = None  # the window that it was sent
        self._version = -1  # the session's version after the last write of this turn
        self._made = set[CallId]()
        self._is_over = False  # the conversation went on, so this turn cannot be continued
        self._saving = asyncio.Lock()
        self._held = AsyncExitStack()
        self.calls: tuple[ToolCallRequest, ...] = ()
        """The calls that had no result when the turn began; run them again, or leave them."""
        self.uncertain = frozenset[CallId]()
        """The ids of those calls that had been started: they may have run."""
        self.answer: Message | None = None
        """The reply that ended this turn, in this process or an earlier one; None while there is none."""
        self.ended_early: EarlyEnd | None = None
        """Why that reply ended before its time: ``length`` or ``refusal``."""
        self.cut_off: CallId | None = None
        """The last call of a reply that ended at the token limit: its arguments may lack their end."""

    async def __aenter__(self) -> Self:
        if self._lease:
            await self._held.enter_async_context(leased(self._writer, LEASE_SECONDS, None))
        try:
            self._version = (await self._writer.refresh()).version
            receipt = await self._save(self._prompt, key=self._key) if self._prompt is not None else None
            if receipt is not None and receipt.repeated:
                begun = Position(receipt.branch, receipt.first)
                said, self._is_over = await self._writer.read(partial(_earlier_turn, begun))
                self.answer, self.ended_early = said.answer, said.ended_early
            unfinished = None if self._is_over else await self._pending()
            if receipt is None and unfinished is None:
                said = await self._writer.read(_last_turn)
                self.answer, self.ended_early = said.answer, said.ended_early
            if unfinished is not None and self._memory is None:
                self._memory = await self._handle.recalled()
        except BaseException:  # a canceled task, too: `__aexit__` is not called, and the lease would stay
            await self._held.aclose()
            raise
        self.calls = unfinished.open if unfinished else ()
        self.uncertain = unfinished.started if unfinished else frozenset()
        self.cut_off = unfinished.cut_off if unfinished else None
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._held.aclose()

    @property
    def format(self) -> Format:
        """The format of the last request; raise `SessionError` if there was none."""
        if self._format is None:
            raise SessionError("this turn has sent no request; call turn.request(format, …) first")
        return self._format

    @property
    def budget(self) -> Budget:
        """The budget of the last request: the given one, calibrated to the tokens that we count."""
        if self._calibration is None:
            return self._budget
        limit = self._calibration.budget(self._budget.limit)
        return self._budget if limit == self._budget.limit else Budget(limit)

    async def window(self, *, model: str = "", tools: Sequence[ToolSpec] | None = None) -> Window | None:
        """Return what is to be sent now; None if the turn is done.

        The usage that was reported for earlier requests to `model` calibrates the budget. `tools` replaces
        the turn's tools from here on.
        """
        if tools is not None:
            check_tools(tools)
            self._tools = tuple(tools)
        if self._is_over:
            return None
        unfinished = self._handle.seen_pending()  # if a request is due, only the window asks the store
        if unfinished is None or unfinished.open:
            unfinished = await self._pending()
        if unfinished is None:
            return None
        await self._answer(unfinished.open)
        self._asked, (self._recorded, counter) = model, await self._handle.calibrations()
        self._calibration = Calibration.of(self._recorded.get(model), counter)
        window = await self._handle.window(
            self.budget, tools=self._tools, context=self._context, memory=self._memory or None
        )
        self._check_version()
        self._sent = window
        return window

    async def request(self, format: str, /, **options: Any) -> dict[str, Any] | None:
        """Return arguments for the SDK's call that the provider accepts; None if the turn is done."""
        self._format = formats.get(format)
        if "tools" in options:
            raise InputError("the tools of a turn are given when it begins: session.turn(…, tools=…)")
        name = options.get("model", options.get("modelId"))
        window = await self.window(model=name if isinstance(name, str) else "")
        if window is None:
            return None
        if self._format.output_option and self._budget.max_output:
            options = {self._format.output_option: self._budget.max_output, **options}
        return self._format.request(window.messages, tools=self._tools, **options)

    async def reply(self, response: Any, *, usage: Usage | None = None) -> tuple[ToolCallRequest, ...]:
        """Save a reply, as the SDK returned it or as a message, with its usage; return its calls.

        `usage` is the usage reported with a message, if the message does not hold it.
        """
        message = response if isinstance(response, Message) else self.format.reply(response)
        if message.role != "assistant":
            raise InputError(f"a reply is a message of the assistant, not of role {message.role}")
        if isinstance(message, ReceivedMessage):
            usage = usage or message.usage
        if usage:
            message = ReceivedMessage.of(message, self._weighed(usage))
        if self._is_over:
            raise SessionError(
                f"the turn with the key {self._key!r:.80} is over, since the conversation went on; "
                "begin another turn, with another key"
            )
        receipt = await self._save(message)
        calls = tuple(
            call if (id := receipt.ids[call.id]) == call.id else structs.replace(call, id=id)
            for call in message.tool_calls
        )
        self._made.update(call.id for call in calls)
        is_final = not calls and not (usage and usage.paused) and self._handle.seen_pending() is None
        self.answer = _stored(message, receipt.ids[message.id]) if is_final else None
        self.ended_early = usage.ended_early if usage else None
        self.cut_off = calls[-1].id if calls and self.ended_early == "length" else None
        return calls

    async def collect(
        self, chunks: AsyncIterable[Any] | Iterable[Any], *, on_text: Callable[[str], object] | None = None
    ) -> tuple[ToolCallRequest, ...]:
        """Save a streamed reply once it is complete; return its calls.

        `on_text` is called with each piece of text as it arrives.
        """
        if isinstance(chunks, AsyncIterable):
            return await self.reply(await self.format.collect(chunks, on_text=on_text))
        return await self.reply(self.format.collect(chunks, on_text=on_text))

    async def started(self, calls: Sequence[ToolCallRequest]) -> None:
        """Save that calls are about to run, so that after a crash none of them is run a second time."""
        for call in calls:
            check_kind("a call", call, ToolCallRequest)
        if calls:
            await _finished(self._handle.write([Started(tuple(call.id for call in calls))]))

    async def result(self, call: ToolCallRequest | str, value: Any, *, is_error: bool = False) -> Receipt:
        """Save the result of a call: any value; what JSON cannot hold becomes text."""
        if not isinstance(call, ToolCallRequest | str):
            refuse("call", call, "a call that `reply` returned, or the id of one")
        id = call if isinstance(call, str) else call.id
        return await self._save(Message.tool([ToolCallResult.of(id, value, is_error=is_error)]))

    async def _save(self, message: Message, *, key: str | None = None) -> Receipt:
        async with self._saving:  # results of parallel calls are saved one after the other
            receipt = await _finished(self._handle.append(message, expected_version=self._version, key=key))
            if receipt.repeated:  # the words were saved by an earlier attempt, which may have continued
                self._version = (await self._writer.refresh()).version
            else:
                self._version = receipt.version
        return receipt

    def _weighed(self, usage: Usage) -> Usage:
        """Return reported usage with our own count and the calibration learned from both."""
        sent, known = self._sent, self._calibration
        if sent is None or known is None:
            return usage
        learned = known.observe(
            sent.tokens, usage.input, limit=sent.limit, is_cut=sent.pending_cut is not None
        )
        self._sent = None  # a second reply to one request teaches nothing
        others = [(name, one) for name, one in self._recorded.items() if name != self._asked]
        recorded = dict(others[-MOST_MODELS + 1 :])
        if learned.learned.samples:
            recorded[self._asked] = learned.to_json()
        limit = sent.limit if sent.limit < Budget.UNLIMITED.limit else 0
        return structs.replace(usage, counted=sent.tokens, limit=limit, calibration=recorded)

    async def _pending(self) -> Pending | None:
        unfinished = await self._handle.pending()
        self._check_version()
        return unfinished

    async def _answer(self, calls: Sequence[ToolCallRequest]) -> None:
        """Answer calls that an earlier process left open; raise `SessionError` for calls of this turn."""
        own = [call for call in calls if call.id in self._made]
        if own:
            names = ", ".join(f"{call.name} ({call.id})" for call in own[:3])
            count = "1 call has" if len(own) == 1 else f"{len(own)} calls have"
            raise SessionError(f"{count} no result: {names}; pass each result to turn.result first")
        if calls:
            await _finished(self._handle.answer_interrupted_calls())

    def _check_version(self) -> None:
        row = self._writer.row
        if row.version != self._version:
            raise Conflict(
                f"session {row.id} is at version {row.version}, not {self._version}: another writer went on; "
                "begin a turn without words to continue from there",
                version=row.version,
                head=row.head,
            )


_FEW = 8
"""Rows that are read at first: most turns are short."""


class _Said:
    """What was said in a turn so far, and how its last reply ended."""

    def __init__(self) -> None:
        self.messages = list[Message]()
        self.ended_early: EarlyEnd | None = None
        self._is_paused = False

    def add(self, entry: Entry | None) -> None:
        """Add the next entry of the log."""
        if isinstance(entry, Usage) and entry.is_of_reply:
            self._is_paused, self.ended_early = entry.paused, entry.ended_early
        if message := _message(entry):
            self.messages.append(message)
            self._is_paused = False
            self.ended_early = None if message.role == "assistant" else self.ended_early

    @property
    def answer(self) -> Message | None:
        """The reply that ends the turn; None if the turn waits for a reply or for results."""
        if pending(self.messages, paused=self._is_paused) is not None:
            return None
        return next((message for message in reversed(self.messages) if message.role == "assistant"), None)


async def _earlier_turn(begun: Position, row: SessionRow, log: Reads) -> tuple[_Said, bool]:
    """Return the turn that began with an entry, and whether the conversation went on after it.

    The turn ends before the next words of the user. If they are no longer on the path, because of a rewind or
    a reset, the branch that they are on still has the answer.
    """
    path = await path_to(log, row.address, row.head)
    on_path = any(one.branch == begun.branch and one.first <= begun.seq <= one.last for one in path)
    rest = between(path, begun.seq, END) if on_path else [Span(begun.branch, begun.seq, END)]
    said = _Said()
    async with aclosing(rows_forwards(log, row.address, rest, page=_FEW)) as rows:
        async for one in rows:
            entry = await read_entry(one)
            if entry is None and one.kind == MESSAGE:  # damaged: whose words they are is not known
                return _Said(), not on_path
            if said.messages and (message := _message(entry)) and message.role == "user":
                return said, True
            said.add(entry)
    return said, not on_path


async def _last_turn(row: SessionRow, log: Reads) -> _Said:
    """Return the end of the last turn on the path: its last reply, or words without one, and what follows."""
    path, found = await path_to(log, row.address, row.head), list[Entry | None]()
    async with aclosing(rows_backwards(log, row.address, path, page=_FEW)) as rows:
        async for one in rows:
            found.append(await read_entry(one))
            if (message := _message(found[-1])) and message.role in ("user", "assistant"):
                break
    said = _Said()
    for entry in reversed(found):
        said.add(entry)
    return said


def _message(entry: Entry | None) -> Message | None:
    """Return the message that an entry shows."""
    shown = entry.message if isinstance(entry, Answer) else entry
    return shown if isinstance(shown, Message) else None


def _stored(message: Message, id: str) -> Message:
    """Return a reply as the log has it."""
    plain = message.without_usage if isinstance(message, ReceivedMessage) else message
    return structs.replace(plain.owned(), id=MessageId(id))


async def _finished(write: Coroutine[Any, Any, T]) -> T:
    """Wait for a write even if the task is canceled: a late write would conflict with the next turn."""
    task = asyncio.ensure_future(write)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _prompt(words: str | Message | None) -> Message | None:
    if words is None or isinstance(words, Message):
        prompt = words
    elif isinstance(words, str):
        prompt = Message.user(words)
    else:
        raise InputError(f"a turn begins with text or a message, not {type(words).__name__}")
    if prompt is not None and prompt.role != "user":
        raise InputError(f"a turn begins with a message of the user, not of role {prompt.role}")
    return prompt
