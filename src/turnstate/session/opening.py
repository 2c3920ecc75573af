"""Opening: one word for two things, as its users say it.

`SessionManager.open(url)` opens a store, `sessions.open(id)` a session of it. The class and its
instances answer to the same name, each with its own signature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, overload

from .clock import Clock, wall_clock

if TYPE_CHECKING:
    from ..context.policy import Policy
    from ..home import Home
    from ..memory.port import MemoryEngine
    from ..models import Model
    from ..snapshots import Snapshots
    from .manager import SessionManager
    from .session import Session

__all__ = ["Open", "OpensSession", "OpensStore"]


class OpensStore(Protocol):
    """What `SessionManager.open` is: the way to a store."""

    async def __call__(  # noqa: D102
        self,
        url: str,
        *,
        tenant: str = "default",
        policy: Policy | None = None,
        counter: str = "o200k_base",
        idle: float | None = None,
        model: Model | None = None,
        snapshots: Snapshots | None = None,
        memory: MemoryEngine | None = None,
        home: Home | None = None,
        clock: Clock = wall_clock,
        monotonic: Clock | None = None,
    ) -> SessionManager: ...


class OpensSession(Protocol):
    """What `sessions.open` is: the way to a session."""

    async def __call__(self, id: str, *, user: str | None = None) -> Session:  # noqa: D102
        ...


class Open:
    """`SessionManager.open(url)` opens a store, `sessions.open(id)` a session of it."""

    @overload
    def __get__(self, sessions: None, kind: type[SessionManager]) -> OpensStore: ...
    @overload
    def __get__(self, sessions: SessionManager, kind: type[SessionManager]) -> OpensSession: ...
    def __get__(self, sessions: SessionManager | None, kind: type[SessionManager]) -> Any:
        return kind._open_store if sessions is None else sessions._open_session
