"""A conversation that changes files, as an agent's loop would lead it, with its checkpoints."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from turnstate import Budget, Message, SessionManager, ToolCallRequest, ToolCallResult, formats
from turnstate.checkpoints import CheckpointManager
from turnstate.conversation import ConversationState, fields, from_json, to_json
from turnstate.home import Home
from turnstate.session import Session

Files = dict[str, str]

ALL = 10_000
"""More exchanges than any of these conversations has."""

BUDGET = Budget(200_000)


class Desk:
    """A work tree, a home, and one session on a store; `started` begins a process on them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tree, self.home = folder, folder / "work", Home(folder / "home")
        self.tree.mkdir()
        self.url, self.id = f"sqlite:///{folder}/agent.db", ""

    @asynccontextmanager
    async def started(self, **settings: Any) -> AsyncIterator[Talk]:
        """Begin as a new process would: nothing of an earlier one is in memory."""
        async with await SessionManager.open(self.url, **settings) as sessions:
            session = await (sessions.open(self.id) if self.id else sessions.create(system="You work."))
            self.id = session.id
            checkpoints = await CheckpointManager.open(session, self.tree, home=self.home)
            yield Talk(self, session, checkpoints)

    @asynccontextmanager
    async def somebody_else(self) -> AsyncIterator[Session]:
        """Open the session as another process does."""
        async with await SessionManager.open(self.url) as sessions:
            yield await sessions.open(self.id)

    def write(self, **files: str | None) -> None:
        """Change files as a tool or a user does; None removes one."""
        for name, text in files.items():
            path = self.tree / name
            path.unlink(missing_ok=True) if text is None else path.write_text(text)

    @property
    def files(self) -> Files:
        return {path.name: path.read_text() for path in sorted(self.tree.iterdir()) if path.is_file()}


class Talk:
    """The conversation while a process runs."""

    def __init__(self, desk: Desk, session: Session, checkpoints: CheckpointManager) -> None:
        self.desk, self.session, self.checkpoints = desk, session, checkpoints

    async def turn(self, said: str, *changes: dict[str, str | None]) -> str | None:
        """Let the user say something, a tool make each change, and the assistant answer."""
        await self.say(said)
        for change in changes:
            await self.tool(**change)
        await self.reply(f"did {said}")
        kept = await self.checkpoints.turn_finished(said)
        return kept.label if kept else None

    async def say(self, text: str) -> None:
        """Let the user say something."""
        await self.session.append(Message.user(text))

    async def reply(self, text: str = "done") -> None:
        """Let the assistant say something."""
        await self.session.append(Message.assistant(text))

    async def tool(self, **change: str | None) -> str | None:
        """Let the assistant call a tool, run it, and take its result in."""
        call = await self.call()
        self.desk.write(**change)
        await self.answer(call)
        kept = await self.checkpoints.tool_finished("write", call=call.id)
        return kept.label if kept else None

    async def call(self, *names: str) -> ToolCallRequest:
        """Let the assistant call tools, the last of which is returned."""
        return (await self.calls(*(names or ["write"])))[-1]

    async def calls(self, *names: str) -> list[ToolCallRequest]:
        """Let the assistant call tools."""
        calls = [ToolCallRequest(name=name, args={"n": n}) for n, name in enumerate(names)]
        await self.session.append(Message.assistant("Let me.", tool_calls=calls))
        return calls

    async def answer(self, *calls: ToolCallRequest, result: str = "done") -> None:
        """Take in the results of calls, in one message."""
        results = [ToolCallResult(tool_call_id=call.id, result=result) for call in calls]
        await self.session.append(Message.tool(results))

    async def state(self) -> ConversationState:
        """Return the whole conversation."""
        return await self.session.conversation(last=ALL)

    async def seen(self) -> dict[str, Any]:
        """Return everything that is kept of the conversation."""
        return fields(await self.state())

    async def is_aside(self) -> bool:
        """Return True if a tangent is open."""
        return (await self.state()).is_in_tangent_mode()

    async def labels(self) -> list[str]:
        return [turn.label for turn in await self.checkpoints.turns()]

    async def check(self) -> None:
        """Check that every process sees the same, and that every provider takes the next request."""
        state = await self.state()
        async with self.desk.somebody_else() as other:
            seen = await other.conversation(last=ALL)
            assert fields(seen) == fields(state)
            expected = (await other.preview(BUDGET)).messages
        shown = (await self.session.preview(BUDGET)).messages
        assert shown == expected
        if state.next_message is not None:
            _validate(shown)
        later = from_json(to_json(state))
        later.set_next_user_message("And now?")
        _validate(later.preview().messages)


def _validate(messages: list[Message]) -> None:
    for name in formats.names():
        provider = formats.get(name)
        assert provider.validate(provider.render(messages), request=True) == [], name


def played(scene: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a coroutine that is given a desk a test that pytest runs."""

    @functools.wraps(scene)
    def play(desk: Desk, **others: Any) -> None:
        asyncio.run(scene(desk, **others))

    return play
