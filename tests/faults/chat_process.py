"""The process of a chat in a pipe, as `turnstate chat --lines --json` runs it, until it is killed.

A planted bug makes it tell of an answer before it is saved, or leave an interrupted turn where it is. It also
kills itself once, at a moment when the bug matters, so that whether it is caught does not depend on luck.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai.resources.chat  # noqa: F401

from tests.faults.agent_process import die_once
from turnstate import cli, formats
from turnstate.chat import Chat
from turnstate.cli.commands import chat  # noqa: F401
from turnstate.session import Turn

formats.get("openai-chat")  # all of this is loaded once, before the processes are forked


def hasty(folder: Path) -> None:
    """Tell of an answer before it is saved, which is when the next request is made; die before that."""
    reply, window, late = Turn.reply, Turn.window, list[Any]()

    async def told(self: Turn, response: Any, **settings: Any) -> Any:
        if response.tool_calls:
            return await reply(self, response, **settings)
        late.append((self, response))
        return ()

    async def saved(self: Turn, **settings: Any) -> Any:
        if late:
            die_once(folder)
        while late:
            await reply(*late.pop(0))
        return await window(self, **settings)

    Turn.reply = told  # type: ignore[method-assign]
    Turn.window = saved  # type: ignore[method-assign]


def lazy(folder: Path) -> None:
    """Leave an interrupted turn where it is, and die before the first answer is saved."""
    reply = Turn.reply

    async def resume_turn(_: Chat) -> bool:
        return False

    async def interrupted(self: Turn, response: Any, **settings: Any) -> Any:
        die_once(folder)
        return await reply(self, response, **settings)

    Chat.resume_turn = resume_turn  # type: ignore[method-assign]
    Turn.reply = interrupted  # type: ignore[method-assign]


PLANTED: dict[str, Callable[[Path], None]] = {"hasty": hasty, "lazy": lazy}


def live(channel: socket.socket, folder: Path, arguments: list[str], plant: str) -> None:
    """Run the program with the channel as its input and output."""
    if plant:
        PLANTED[plant](folder)
    for descriptor in (0, 1):
        os.dup2(channel.fileno(), descriptor)
    os.dup2(os.open(folder / "errors.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    for name in ("TURNSTATE_STORE", "TURNSTATE_MODEL", "TURNSTATE_AGENT"):
        os.environ.pop(name, None)
    os.environ["TURNSTATE_HOME"] = str(folder / "home")
    os.chdir(folder / "work")
    os._exit(cli.run(["chat", "--lines", "--json", *arguments]))
