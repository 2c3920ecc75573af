"""The operations by their names of today, or by a conversation state."""

from __future__ import annotations

from typing import Any

from turnstate import Session
from turnstate.conversation import FileLineTracker

IS_NEW = hasattr(Session, "leave_tangent")


async def begin_tangent(session: Any) -> None:
    """Begin a tangent."""
    if IS_NEW:
        await session.begin_tangent()
        return
    state = await session.conversation()
    state.begin_tangent()
    await session.commit(state)


async def leave_tangent(session: Any, bring: str | None) -> None:
    """Leave the tangent, and bring back nothing, its tail or its summary."""
    if IS_NEW:
        await session.leave_tangent(bring=bring)
        return
    state = await session.conversation()
    leave = {
        None: state.exit_tangent_mode,
        "tail": state.exit_tangent_mode_with_tail,
        "summary": state.exit_tangent_mode_with_summary,
    }
    leave[bring]()
    await session.commit(state)


async def clear(session: Any) -> None:
    """Hide everything."""
    if IS_NEW:
        await session.clear()
        return
    state = await session.conversation()
    state.clear()
    await session.commit(state)


async def record_lines(session: Any, path: str, number: int) -> None:
    """Record what is known about a file."""
    record = FileLineTracker(lines=number)
    if IS_NEW:
        await session.record_lines({path: record})
        return
    state = await session.conversation()
    state.file_line_tracker[path] = record
    await session.commit(state)
