"""The chat on a terminal, without a terminal: what ends it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from turnstate import SessionManager
from turnstate.chat import Chat, ChosenModel
from turnstate.chat.terminal import TerminalView, converse
from turnstate.config import Settings
from turnstate.errors import StoreUnavailable
from turnstate.home import Home


def test_a_failure_ends_the_chat_and_leaves_no_prompt_that_nobody_answers(tmp_path: Path) -> None:
    async def fails() -> None:
        raise StoreUnavailable("the disk is full")

    async def talk() -> None:
        home = Home(tmp_path)
        settings = Settings.load(tmp_path, home=home)
        with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
            view, model = TerminalView(tmp_path), ChosenModel("gpt-5", settings)
            async with SessionManager.open("memory:") as sessions:
                chat = Chat(
                    sessions, view, model, user="ann", workspace=tmp_path, settings=settings, home=home
                )
                await asyncio.wait_for(converse(chat, view, fails()), 30)

    with pytest.raises(StoreUnavailable, match="the disk is full"):
        asyncio.run(talk())
