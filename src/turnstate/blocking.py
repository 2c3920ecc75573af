"""Sessions without ``await``: for scripts, notebooks, and programs that are not asynchronous.

    from turnstate import blocking

    with blocking.SessionManager.open("sqlite:///agent.db") as sessions:
        session = sessions.create(user="u1")
        session.append(Message.user("hello"))

The API is the same, and there is no second implementation: each method runs the asynchronous one on an
event loop in a separate thread. So it works where a loop is already running, as in a notebook, and any
thread may call it. Ctrl-C cancels the pending operation and waits for it to end. A write may have been
committed by then; a ``key`` makes it safe to retry.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from . import session as asynchronous
from .entry import EarlyEnd
from .errors import SessionError, WrongProcess
from .ids import CallId
from .message import Message, ToolCallRequest
from .models import Model
from .process import Owner
from .session import SessionInfo

__all__ = ["Session", "SessionManager", "State", "Turn"]

P = ParamSpec("P")
Q = ParamSpec("Q")
T = TypeVar("T")
Work = Coroutine[Any, Any, T]


ENDING = 10.0
"""Seconds to wait for a loop to end; a model that ignores cancellation would keep it running forever."""


AWAKE = 1.0
"""Seconds after which a waiting thread checks whether it was interrupted."""


class _Loop:
    """An event loop in its own thread."""

    def __init__(self) -> None:
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self.owner = Owner(self, "the loop of these sessions")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="turnstate-blocking", daemon=True)
        self._thread.start()
        self._ready.wait()

    def run(self, work: Work[T]) -> T:
        """Run a coroutine and return its result."""
        try:
            self.owner.check()
        except WrongProcess:
            work.close()
            raise
        loop = self._loop
        if loop is None:
            work.close()
            raise SessionError("these sessions are closed; open them again")
        if threading.current_thread() is self._thread:
            work.close()
            raise SessionError("cannot block inside the event-loop thread; use the async API")
        result: T = _BlockingCall(loop, work).result()
        return result

    def dispose(self, found: AsyncIterator[Any]) -> None:
        """Close an iterator that is no longer used, from any thread."""
        close = getattr(found, "aclose", None)
        if close is None or self._loop is None or self.owner.is_elsewhere:
            return
        if sys.is_finalizing():  # an ending loop closes them all
            return
        if threading.current_thread() is self._thread:
            self._loop.create_task(close())
        else:
            self.run(close())

    def stop(self) -> None:
        """End the thread and its tasks; abandon a task that ignores cancellation."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(self._stop.set)
            if threading.current_thread() is not self._thread:
                self._thread.join(ENDING)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready.set()
        await self._stop.wait()


class _BlockingCall:
    """A coroutine that runs on a loop while another thread waits for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Work[Any]) -> None:
        self._loop, self._work = loop, work
        self._task: asyncio.Task[Any] | None = None
        self._outcome: Future[Any] = Future()

    def result(self) -> Any:
        """Run it and return its result; on an interrupt, cancel it, wait for its end, then re-raise."""
        try:
            self._loop.call_soon_threadsafe(self._start)
            while not self._outcome.done():  # a signal that arrives just before the wait does not end it
                wait([self._outcome], timeout=AWAKE)
            return self._outcome.result()
        except KeyboardInterrupt:
            self._loop.call_soon_threadsafe(self._cancel)
            self._outcome.exception()
            raise

    def _start(self) -> None:
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._end)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _end(self, task: asyncio.Task[Any]) -> None:
        error = (
            SessionError("the operation was canceled before it finished")
            if task.cancelled()
            else task.exception()
        )
        if error is not None:
            self._outcome.set_exception(error)
        else:
            self._outcome.set_result(task.result())


class _Facade:
    """An asynchronous object and the loop it runs on."""

    def __init__(self, loop: _Loop, inner: Any) -> None:
        self._loop, self._inner = loop, inner


def _plain(method: Callable[Concatenate[Any, P], Work[T]]) -> Callable[Concatenate[Any, P], T]:
    """Turn an asynchronous method into a blocking one."""

    @wraps(method)
    def call(self: _Facade, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.run(method(self._inner, *args, **kwargs))

    return call


def _opening(
    method: Callable[Concatenate[Any, P], Work[asynchronous.Session]],
) -> Callable[Concatenate[Any, P], Session]:
    """Turn an asynchronous method that returns a session into a blocking one."""

    @wraps(method)
    def call(self: _Facade, /, *args: P.args, **kwargs: P.kwargs) -> Session:
        return Session(self._loop, self._loop.run(method(self._inner, *args, **kwargs)))

    return call


def _iterated(
    method: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """Turn a method for ``async for`` into one for ``for``."""

    @wraps(method)
    def call(self: _Facade, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return _items(self._loop, method(self._inner, *args, **kwargs))

    return call


def _entered(
    method: Callable[Concatenate[Any, P], AbstractAsyncContextManager[T]],
) -> Callable[Concatenate[Any, P], AbstractContextManager[T]]:
    """Turn a method for ``async with`` into one for ``with``."""

    @wraps(method)
    def call(self: _Facade, /, *args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[T]:
        return _held(self._loop, method(self._inner, *args, **kwargs))

    return call


def _taking(
    method: Callable[Concatenate[Any, P], asynchronous.Turn],
) -> Callable[Concatenate[Any, P], AbstractContextManager[Turn]]:
    """Turn a method that yields a turn to ``async with`` into one for ``with``."""

    @wraps(method)
    def call(self: _Facade, /, *args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[Turn]:
        return _taken(self._loop, method(self._inner, *args, **kwargs))

    return call


_NOTHING: Any = object()


def _items(loop: _Loop, found: AsyncIterator[T]) -> Iterator[T]:
    async def following() -> T:
        return await anext(found, _NOTHING)

    try:
        while (item := loop.run(following())) is not _NOTHING:
            yield item
    finally:
        loop.dispose(found)


@contextmanager
def _held(loop: _Loop, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
    async def enter() -> T:
        return await manager.__aenter__()

    async def leave(error: BaseException | None) -> bool:
        kind, trace = (type(error), error.__traceback__) if error else (None, None)
        return bool(await manager.__aexit__(kind, error, trace))

    value = loop.run(enter())
    try:
        yield value
    except BaseException as error:  # as an `async with` statement does it
        if loop.owner.is_elsewhere or not loop.run(leave(error)):
            raise
    else:
        if not loop.owner.is_elsewhere:  # a forked child leaves the block, but ends nothing
            loop.run(leave(None))


@contextmanager
def _taken(loop: _Loop, turn: asynchronous.Turn) -> Iterator[Turn]:
    with _held(loop, turn):
        yield Turn(loop, turn)


class Turn(_Facade):
    """One turn; see `turnstate.session.Turn`."""

    _inner: asynchronous.Turn

    @property
    def calls(self) -> tuple[ToolCallRequest, ...]:
        """The calls that had no result when the turn began; run them again or ignore them."""
        return self._inner.calls

    @property
    def answer(self) -> Message | None:
        """The reply that ended this turn, in this process or an earlier one; None while there is none."""
        return self._inner.answer

    @property
    def ended_early(self) -> EarlyEnd | None:
        """Why that reply ended before its time: ``length`` or ``refusal``."""
        return self._inner.ended_early

    @property
    def cut_off(self) -> CallId | None:
        """The last call of a reply that ended at the token limit: its arguments may lack their end."""
        return self._inner.cut_off

    request = _plain(asynchronous.Turn.request)
    reply = _plain(asynchronous.Turn.reply)
    result = _plain(asynchronous.Turn.result)

    def collect(
        self, chunks: Iterable[Any], *, on_text: Callable[[str], object] | None = None
    ) -> tuple[ToolCallRequest, ...]:
        """Save a streamed reply once it is complete, and return its calls.

        `on_text` is called with each piece of text as it arrives.
        """
        return self.reply(self._inner.format.collect(chunks, on_text=on_text))


class State(_Facade):
    """Named values; see `turnstate.session.State`."""

    get = _plain(asynchronous.State.get)
    items = _plain(asynchronous.State.items)
    set = _plain(asynchronous.State.set)
    delete = _plain(asynchronous.State.delete)


class Session(_Facade):
    """One conversation; see `turnstate.session.Session`."""

    _inner: asynchronous.Session

    @property
    def info(self) -> SessionInfo:
        """The session as last seen: title, tags, times, version, head."""
        return self._inner.info

    @property
    def id(self) -> str:
        """The id by which any worker can open it."""
        return self._inner.id

    @property
    def cache_key(self) -> str:
        """A name for OpenAI's ``prompt_cache_key``: the same for every request of this session."""
        return self._inner.cache_key

    @property
    def version(self) -> int:
        """The number of changes to the path of messages, as last seen."""
        return self._inner.version

    @property
    def notices(self) -> tuple[str, ...]:
        """Problems to show to the user: damage, losses, a failing model, a disk that refuses writes."""
        return self._inner.notices

    @property
    def files(self) -> tuple[Path, ...]:
        """The files and folders of its manager on this machine, which checkpoints leave alone."""
        files: tuple[Path, ...] = self._inner.files
        return files

    @property
    def has_memory(self) -> bool:
        """True if a memory is configured for `recall` and `remember`."""
        return self._inner.has_memory

    @property
    def total(self) -> int:
        """The tokens of all messages on the path, as last seen, before anything is removed or added."""
        return self._inner.total

    @property
    def state(self) -> State:
        """Named values that programs keep with the conversation; no model reads them."""
        return State(self._loop, self._inner.state)

    def summarize_with(self, model: Model) -> None:
        """Let a model write the summaries of this handle from now on."""
        self._inner.summarize_with(model)

    append = _plain(asynchronous.Session.append)
    cost = _plain(asynchronous.Session.cost)
    turn = _taking(asynchronous.Session.turn)
    pending = _plain(asynchronous.Session.pending)
    messages = _plain(asynchronous.Session.messages)
    entries = _plain(asynchronous.Session.entries)
    entry = _plain(asynchronous.Session.entry)
    search = _iterated(asynchronous.Session.search)
    follow = _iterated(asynchronous.Session.follow)
    window = _plain(asynchronous.Session.window)
    recall = _plain(asynchronous.Session.recall)
    remember = _plain(asynchronous.Session.remember)
    facts = _plain(asynchronous.Session.facts)
    correct = _plain(asynchronous.Session.correct)
    forget = _plain(asynchronous.Session.forget)
    preview = _plain(asynchronous.Session.preview)
    snapshot = _plain(asynchronous.Session.snapshot)
    system = _plain(asynchronous.Session.system)
    set_system = _plain(asynchronous.Session.set_system)
    model = _plain(asynchronous.Session.model)
    set_model = _plain(asynchronous.Session.set_model)
    fork = _plain(asynchronous.Session.fork)
    rewind = _plain(asynchronous.Session.rewind)
    compact = _plain(asynchronous.Session.compact)
    preview_compact = _plain(asynchronous.Session.preview_compact)
    conversation = _plain(asynchronous.Session.conversation)
    ask = _plain(asynchronous.Session.ask)
    operate = _plain(asynchronous.Session.operate)
    begin_tangent = _plain(asynchronous.Session.begin_tangent)
    leave_tangent = _plain(asynchronous.Session.leave_tangent)
    tangents = _plain(asynchronous.Session.tangents)
    reopen_tangent = _plain(asynchronous.Session.reopen_tangent)
    clear = _plain(asynchronous.Session.clear)
    note = _plain(asynchronous.Session.note)
    change_settings = _plain(asynchronous.Session.change_settings)
    lines = _plain(asynchronous.Session.lines)
    record_lines = _plain(asynchronous.Session.record_lines)
    undo = _plain(asynchronous.Session.undo)
    branches = _plain(asynchronous.Session.branches)
    reset = _opening(asynchronous.Session.reset)
    end = _plain(asynchronous.Session.end)
    rename = _plain(asynchronous.Session.rename)
    tag = _plain(asynchronous.Session.tag)
    annotate = _plain(asynchronous.Session.annotate)
    lease = _entered(asynchronous.Session.lease)
    acquire = _plain(asynchronous.Session.acquire)
    renew = _plain(asynchronous.Session.renew)
    release = _plain(asynchronous.Session.release)


class _Open(Generic[P, Q]):
    """`SessionManager.open(url)` opens a store; `sessions.open(id)` opens a session in it."""

    def __init__(
        self,
        store: Callable[P, Work[asynchronous.SessionManager]],
        session: Callable[Concatenate[Any, Q], Work[asynchronous.Session]],
    ) -> None:
        self._store, self._session = store, session

    @overload
    def __get__(self, sessions: None, kind: type[SessionManager]) -> Callable[P, SessionManager]: ...
    @overload
    def __get__(self, sessions: SessionManager, kind: type[SessionManager]) -> Callable[Q, Session]: ...
    def __get__(self, sessions: SessionManager | None, kind: type[SessionManager]) -> Any:
        if sessions is not None:
            return _opening(self._session).__get__(sessions)

        def open(*args: P.args, **kwargs: P.kwargs) -> SessionManager:
            loop = _Loop()
            try:
                return kind(loop, loop.run(self._store(*args, **kwargs)))
            except BaseException:  # Ctrl-C, too: the thread of the loop would run on
                loop.stop()
                raise

        return open


class SessionManager(_Facade):
    """The sessions of one tenant; see `turnstate.session.SessionManager`.

    Leave the block or call `close` to release the store. Acknowledged writes are kept in any case.
    """

    _inner: asynchronous.SessionManager

    open = _Open(asynchronous.SessionManager.open, asynchronous.SessionManager._open_session)

    def __init__(self, loop: _Loop, inner: asynchronous.SessionManager) -> None:
        super().__init__(loop, inner)
        self._closing = weakref.finalize(self, _close, loop, inner)
        self._closing.atexit = False  # executors are gone by then, and no write is pending

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def tenant(self) -> str:
        """The tenant that owns these sessions."""
        return self._inner.tenant

    def close(self) -> None:
        """Finish pending work and release the store; this ends no session."""
        self._closing()

    def user_state(self, user: str) -> State:
        """Return the named values that programs keep for a user across sessions."""
        return State(self._loop, self._inner.user_state(user))

    @property
    def tenant_state(self) -> State:
        """The named values that programs keep for all users."""
        return State(self._loop, self._inner.tenant_state)

    create = _opening(asynchronous.SessionManager.create)
    open_or_create = _opening(asynchronous.SessionManager.open_or_create)
    restore = _opening(asynchronous.SessionManager.restore)
    list = _plain(asynchronous.SessionManager.list)
    all = _iterated(asynchronous.SessionManager.all)
    search = _iterated(asynchronous.SessionManager.search)
    follow = _iterated(asynchronous.SessionManager.follow)
    cursor = _plain(asynchronous.SessionManager.cursor)
    expire = _plain(asynchronous.SessionManager.expire)
    deliver = _plain(asynchronous.SessionManager.deliver)
    destroy = _plain(asynchronous.SessionManager.destroy)
    settled = _plain(asynchronous.SessionManager.settled)
    erase = _plain(asynchronous.SessionManager.erase)


def _close(loop: _Loop, sessions: asynchronous.SessionManager) -> None:
    if loop.owner.is_elsewhere:
        return
    try:
        loop.run(sessions.close())
    finally:
        loop.stop()
