"""The chat on a terminal, without a person: which keys reach it, and what ends it."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import termios
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_input, create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console

from turnstate import SessionManager, ToolCallRequest
from turnstate.chat import Chat, ChosenModel
from turnstate.chat.terminal import FIRST_ROWS, TerminalView, converse
from turnstate.config import Settings
from turnstate.errors import StoreUnavailable
from turnstate.home import Home
from turnstate.tools import Approval, ApprovalRequest, run_command

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


class Keyboard:
    """A chat that asks for the approval of one call, and the keys that a person presses."""

    def __init__(self, folder: Path, **args: Any) -> None:
        self._folder, self._call = folder, ToolCallRequest(name="run_command", args=args)
        self._printed = io.StringIO()
        self.answer: Approval | None = None

    @property
    def text(self) -> str:
        return self._printed.getvalue()

    def press(self, *keys: str) -> None:
        """Press each key when a question is there; the last one answers it, and the chat ends."""

        async def main() -> None:
            with create_pipe_input() as typed, create_app_session(input=typed, output=DummyOutput()):
                self._view = TerminalView(self._folder, console=Console(file=self._printed, width=80))
                start = asyncio.get_running_loop().create_future()
                chatting = asyncio.create_task(talk(self._folder, self._view, start))
                asking = asyncio.create_task(self._ask())
                asking.add_done_callback(start.set_result)
                for key in keys:
                    while ((asked := self._view._answer) is None or asked.done()) and not asking.done():
                        await asyncio.sleep(0.001)
                    is_answer = key in [choice.key for choice in self._view._choices]
                    typed.send_text(key)
                    while is_answer and self._view._answer is asked and not asking.done():
                        await asyncio.sleep(0.001)
                await asking
                await chatting

        asyncio.run(main())

    async def _ask(self) -> None:
        question = ApprovalRequest(tool=run_command, call=self._call)
        self.answer = await self._view.approve(question)


def test_yes_can_be_said_once_everything_was_shown(tmp_path: Path) -> None:
    command = "\n".join(f"step {number}" for number in range(500))
    keyboard = Keyboard(tmp_path, command=command)
    keyboard.press("y", "m", "y", "a", "p", "m", "y", "e", "y")
    assert keyboard.answer == Approval(allow=True)
    assert [line.strip() for line in keyboard.text.splitlines()] == [f"$ step {n}" for n in range(500)]


def test_what_was_not_read_can_be_refused(tmp_path: Path) -> None:
    keyboard = Keyboard(tmp_path, command="step\n" * 500)
    keyboard.press("y", "n")
    assert keyboard.answer == Approval(allow=False)
    assert keyboard.text.count("step") == FIRST_ROWS


def test_a_long_line_is_shown_row_by_row_and_controls_are_visible(tmp_path: Path) -> None:
    command = "echo " + "a" * 10_000 + "\x1b[2K\u202e; rm\u00a0-rf\u2800work"
    keyboard = Keyboard(tmp_path, command=command)
    keyboard.press("y", "m", "y")
    assert keyboard.answer == Approval(allow=True)
    rows = keyboard.text.splitlines()
    assert all(len(row) <= 80 for row in rows)
    assert all(row.startswith("↪ ") for row in rows[1:])
    shown = "".join(row[2:] for row in rows)
    assert shown == "$ echo " + "a" * 10_000 + "\\x1b[2K\\u202e; rm\\xa0-rf\\u2800work"
