"""The two forms of `open`: ``SessionManager.open(url)`` opens a store, ``sessions.open(id)`` a session in it.

Enter the result to open the store, ``async with SessionManager.open(url) as sessions``, or await it and close
the manager yourself.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Protocol, overload

from ..context.policy import Policy
from ..home import Home
from ..ids import Clock, wall_clock
from ..memory.port import MemoryEngine
from ..models import Model
from ..snapshots import Snapshots
from .user_memory import Recall

if TYPE_CHECKING:
    from .manager import SessionManager
    from .session import Session


class Opening(Coroutine[Any, Any, "SessionManager"]):
    """A store that is about to be opened: ``async with`` it, ``await`` it, or pass it to ``asyncio.run``."""

    def __init__(self, open: Callable[[], Coroutine[Any, Any, SessionManager]]) -> None:
        self._open = open
        self._opened: Coroutine[Any, Any, SessionManager] | None = None
        self._sessions: SessionManager | None = None

    def __await__(self) -> Generator[Any, Any, SessionManager]:
        return self._open().__await__()

    async def __aenter__(self) -> SessionManager:
        self._sessions = await self._open()
        return self._sessions

    async def __aexit__(self, *_: object) -> None:
        if self._sessions is not None:
            await self._sessions.close()

    def send(self, value: Any, /) -> Any:
        """Continue opening the store, as a coroutine does."""
        self._opened = self._opened or self._open()
        return self._opened.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error where the opening is suspended, as a coroutine does."""
        self._opened = self._opened or self._open()
        return self._opened.throw(*error)

    def close(self) -> None:
        """Abandon the opening, as a coroutine does."""
        if self._opened is not None:
            self._opened.close()


class OpensStore(Protocol):
    """The signature of `SessionManager.open(url)`."""

    def __call__(  # noqa: D102
        self,
        url: str,
        *,
        tenant: str = "default",
        policy: Policy | None = None,
        counter: str = "o200k_base",
        idle: float | None = None,
        model: Model | None = None,
        snapshots: Snapshots | None = None,
        memory: MemoryEngine | str | None = None,
        recall: Recall | None = None,
        home: Home | None = None,
        clock: Clock = wall_clock,
        monotonic: Clock | None = None,
    ) -> Opening: ...


class OpensSession(Protocol):
    """The signature of `sessions.open(id)`."""

    async def __call__(self, id: str, *, user: str | None = None) -> Session:  # noqa: D102
        ...


class Open:
    """Descriptor: `SessionManager.open(url)` opens a store, `sessions.open(id)` a session in it."""

    @overload
    def __get__(self, sessions: None, kind: type[SessionManager]) -> OpensStore: ...
    @overload
    def __get__(self, sessions: SessionManager, kind: type[SessionManager]) -> OpensSession: ...
    def __get__(self, sessions: SessionManager | None, kind: type[SessionManager]) -> Any:
        return kind._opening if sessions is None else sessions._open_session
