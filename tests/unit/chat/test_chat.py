"""A chat that looks on at the session of another process, and what it says about its servers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from turnstate import Message, SessionManager
from turnstate.chat.chat import Chat
from turnstate.chat.view import Choice, PlainView
from turnstate.config import Settings
from turnstate.config.binding import META, Binding
from turnstate.home import Home
from turnstate.models.endpoint import endpoint_of


class Onlooker(PlainView):
    """A user who looks on, and what they see."""

    interactive = True

    def __init__(self) -> None:
        super().__init__()
        self.errors, self.outputs = list[str](), list[str]()

    async def choose(self, question: str, choices: list[Choice]) -> str:
        assert "open in another process" in question
        return "l"

    async def error(self, text: str) -> None:
        self.errors.append(text)

    async def output(self, text: str) -> None:
        self.outputs.append(text)


@pytest.mark.parametrize("is_bound", [True, False])
def test_looking_on_needs_no_model(is_bound: bool, tmp_path: Path) -> None:
    url, home = f"sqlite:///{tmp_path}/agent.db", Home(tmp_path / "home")
    binding = Binding.of(tmp_path, "gpt-5", endpoint_of("gpt-5"))
    meta = {META: binding.signed(home, "default", "s")} if is_bound else {}

    async def main() -> None:
        async with SessionManager.open(url) as theirs, SessionManager.open(url) as ours:
            session = await theirs.create(id="s", user="ann", meta=meta)
            await session.append(Message.user("Where is the lamp?"))
            async with session.lease():
                view = Onlooker()
                settings = Settings.load(tmp_path, home=home)
                chat = Chat(ours, view, None, user="ann", workspace=tmp_path, settings=settings, home=home)
                await chat.use_agent(None)
                try:
                    assert await chat.enter(await ours.open("s"))
                    await chat.handle("/context")
                    assert (chat.looking, view.errors) == (True, [])
                    assert chat.status.model == ("gpt-5" if is_bound else "")
                    assert (chat.status.tokens > 0, chat.status.limit > 0) == (True, is_bound)
                    await chat.handle("Go on.")
                    assert "/takeover takes it" in view.errors[0]
                finally:
                    await chat.close()

    asyncio.run(main())


def test_what_servers_do_that_they_should_not_is_listed(tmp_path: Path) -> None:
    async def main() -> None:
        async with SessionManager.open("memory:") as sessions:
            view, home = Onlooker(), Home(tmp_path / "home")
            settings = Settings.load(tmp_path, home=home)
            chat = Chat(sessions, view, None, user="ann", workspace=tmp_path, settings=settings, home=home)
            await chat.use_agent(None)
            try:
                chat.equipment.servers.notices.append("the MCP server loud prints \x1b[2J")
                await chat.handle("/mcp")
            finally:
                await chat.close()
            assert view.outputs == ["no MCP server is configured\nthe MCP server loud prints \\x1b[2J"]

    asyncio.run(main())
