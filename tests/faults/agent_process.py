"""The process in which an agent works until it is killed; it tells each event as soon as the agent does.

A planted bug makes it forget what it starts, acknowledge what is not saved, or take checkpoints of files that
are not those of its conversation. With the first two it kills itself once, at a moment when the bug matters:
whether the bug is caught does not depend on luck.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from tests.faults import agent_scene
from turnstate.agent.agent import _Run
from turnstate.agent.events import ToolFinished
from turnstate.session import Turn
from turnstate.shadow.repository import ShadowRepository


def die_once(folder: Path) -> None:
    """Kill this process, unless one was killed before."""
    if not (died := folder / "died").exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def forgetful(folder: Path) -> None:
    """Do not write down which calls are about to run, and die between a payment and its result."""
    really = _Run._save

    async def started(self: Turn, calls: Any) -> None:
        pass

    async def save(self: _Run, turn: Turn, call: Any, result: Any) -> ToolFinished:
        if call.name == "pay":
            die_once(folder)
        return await really(self, turn, call, result)

    Turn.started = started  # type: ignore[method-assign]
    _Run._save = save  # type: ignore[method-assign]


def hasty(folder: Path) -> None:
    """Tell of results before they are saved, which is when the next request is made; die before that."""
    really, window, late = _Run._save, Turn.window, list[Any]()

    async def save(self: _Run, turn: Turn, call: Any, result: Any) -> ToolFinished:
        late.append((self, turn, call, result))
        return ToolFinished(call=call, result=result)

    async def saved(self: Turn, **settings: Any) -> Any:
        if late:
            die_once(folder)
        while late:
            await really(*late.pop(0))
        return await window(self, **settings)

    _Run._save = save  # type: ignore[method-assign]
    Turn.window = saved  # type: ignore[method-assign]


def stale(_: Path) -> None:
    """Take every checkpoint with the files of the first one."""
    really, taken = ShadowRepository.snapshot, list[Any]()

    def snapshot(self: ShadowRepository, tag: str = "", message: str = "") -> Any:
        if not taken:
            taken.append(really(self, tag, message))
        return taken[0]

    ShadowRepository.snapshot = snapshot  # type: ignore[method-assign]


PLANTED: dict[str, Callable[[Path], None]] = {"forgetful": forgetful, "hasty": hasty, "stale": stale}


def live(channel: socket.socket, folder: Path, plant: str) -> None:
    """Run or resume the agent to its end."""
    if plant:
        PLANTED[plant](folder)
    try:
        asyncio.run(_live(channel, folder))
    except Exception as error:
        channel.sendall(json.dumps({"event": "failed", "text": repr(error)}).encode() + b"\n")
        raise


async def _live(channel: socket.socket, folder: Path) -> None:
    async with (
        agent_scene.opened(folder) as (sessions, session, checkpoints),
        aclosing(agent_scene.events(folder, sessions, session, checkpoints)) as events,
    ):
        async for event in events:
            channel.sendall(json.dumps(event).encode() + b"\n")
