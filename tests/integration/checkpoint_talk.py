"""A conversation that changes files, as an agent's loop would lead it, with its checkpoints."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from turnstate import Message, SessionManager, ToolCallRequest, ToolCallResult, formats
from turnstate.checkpoints import CheckpointManager
from turnstate.conversation import ConversationState, fields
from turnstate.home import Home
from turnstate.session import Session

Files = dict[str, str]


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
            state = await session.conversation()
            checkpoints = await CheckpointManager.open(state, self.tree, session=session, home=self.home)
            yield Talk(self, session, state, checkpoints)

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

    def __init__(
        self, desk: Desk, session: Session, state: ConversationState, checkpoints: CheckpointManager
    ) -> None:
        self.desk, self.session, self.state, self.checkpoints = desk, session, state, checkpoints

    async def turn(self, said: str, *changes: dict[str, str | None]) -> str | None:
        """Let the user say something, a tool make each change, and the assistant answer."""
        self.state.set_next_user_message(said)
        for change in changes:
            await self.tool(**change)
        self.state.push_assistant_message(Message.assistant(f"did {said}"))
        kept = await self.checkpoints.turn_finished(said)
        await self.session.commit(self.state)
        return kept.label if kept else None

    async def tool(self, **change: str | None) -> str | None:
        """Let the assistant call a tool, run it, and take its result in."""
        call = self.call()
        self.desk.write(**change)
        self.answer(call)
        kept = await self.checkpoints.tool_finished("write", call=call.id)
        return kept.label if kept else None

    def call(self, *names: str) -> ToolCallRequest:
        """Let the assistant call tools, the last of which is given."""
        calls = [ToolCallRequest(name=name, args={"n": n}) for n, name in enumerate(names or ["write"])]
        self.state.push_assistant_message(Message.assistant("Let me.", tool_calls=calls))
        return calls[-1]

    def answer(self, call: ToolCallRequest, result: str = "done") -> None:
        self.state.add_tool_results([ToolCallResult(tool_call_id=call.id, result=result)])

    @property
    def seen(self) -> dict[str, Any]:
        """Everything that is kept of the conversation."""
        return fields(self.state)

    @property
    def labels(self) -> list[str]:
        return [turn.label for turn in self.checkpoints.turns()]

    async def check(self) -> None:
        """Check that the log says what the state says, and that every provider takes the next request."""
        loaded = await self.session.conversation()
        assert fields(loaded) == self.seen
        if loaded.next_message is not None:
            _validate(loaded)
        loaded.set_next_user_message("And now?")
        _validate(loaded)


def _validate(state: ConversationState) -> None:
    messages = state.preview().messages
    for name in formats.names():
        provider = formats.get(name)
        assert provider.validate(provider.render(messages), request=True) == [], name


def played(scene: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a coroutine that is given a desk a test that pytest runs."""

    @functools.wraps(scene)
    def play(desk: Desk, **others: Any) -> None:
        asyncio.run(scene(desk, **others))

    return play
