"""The chat on a terminal, without a person: which keys reach it, and what ends it."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import termios
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_input, create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console

from turnstate import SessionManager
from turnstate.chat import Chat, ChosenModel
from turnstate.chat.terminal import TerminalView, converse
from turnstate.config import Settings
from turnstate.errors import StoreUnavailable
from turnstate.home import Home

CTRL_D = b"\x04"


async def talk(folder: Path, view: TerminalView, start: asyncio.Future[None]) -> None:
    home = Home(folder)
    settings = Settings.load(folder, home=home)
    model = ChosenModel("gpt-5", settings)

    async def started() -> None:
        await start

    async with SessionManager.open("memory:") as sessions:
        chat = Chat(sessions, view, model, user="ann", workspace=folder, settings=settings, home=home)
        await asyncio.wait_for(converse(chat, view, started()), 30)


def test_a_failure_ends_the_chat_and_leaves_no_prompt_that_nobody_answers(tmp_path: Path) -> None:
    async def main() -> None:
        start = asyncio.get_running_loop().create_future()
        start.set_exception(StoreUnavailable("the disk is full"))
        with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
            await talk(tmp_path, TerminalView(tmp_path), start)

    with pytest.raises(StoreUnavailable, match="the disk is full"):
        asyncio.run(main())


def test_a_key_that_is_typed_while_something_is_printed_is_not_lost(tmp_path: Path) -> None:
    """In line mode, a terminal drops Ctrl-D, and a Ctrl-C would end the program instead of the turn."""
    master, slave = pty.openpty()

    def is_in_line_mode() -> bool:
        return bool(termios.tcgetattr(slave)[3] & termios.ICANON)

    modes = list[bool]()

    class Printed(io.StringIO):
        def write(self, text: str) -> int:
            if not modes:
                os.write(master, CTRL_D)
            modes.append(is_in_line_mode())
            return len(text)

    async def main() -> None:
        with (
            open(slave, closefd=False) as stdin,
            create_app_session(input=create_input(stdin), output=DummyOutput()),
        ):
            view = TerminalView(tmp_path, console=Console(file=Printed()))
            start = asyncio.get_running_loop().create_future()
            chatting = asyncio.create_task(talk(tmp_path, view, start))
            while not view.prompt.app.is_running:
                await asyncio.sleep(0.01)
            await view.notice("a line above the prompt")
            await chatting

    assert is_in_line_mode()
    try:
        asyncio.run(main())
        assert modes
        assert not any(modes)
        assert is_in_line_mode()
    finally:
        os.close(master)
        os.close(slave)
