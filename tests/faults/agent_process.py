"""An agent in a process of its own, to be killed: `python agent_process.py FOLDER [--forgetful]`.

Its model is a script that follows from the conversation, so every process continues where the last one was
killed. Each call appends a line to a file, which shows afterwards how often it ran. With `--forgetful` the
agent does not write down which calls it starts: the planted bug.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from turnstate import Budget, Message, SessionManager, ToolCallRequest
from turnstate.agent import Agent, ToolManager, tool
from turnstate.models import ModelRequest
from turnstate.session import Turn
from turnstate.testing import ScriptedModel
from turnstate.tools import Approvals, Rule

ROUNDS = 12
SESSION = "killed"


def next_reply(request: ModelRequest) -> Message:
    """Return the reply that follows from the number of replies so far: two calls, or the last word."""
    done = sum(message.role == "assistant" for message in request.messages)
    if done == ROUNDS:
        return Message.assistant("Done.")
    names = ("pay", "look") if done % 2 else ("pay", "pay")
    return Message.assistant(
        tool_calls=[
            ToolCallRequest(name=name, args={"what": f"{done}.{place}"}) for place, name in enumerate(names)
        ]
    )


def tools(folder: Path) -> ToolManager:
    def note(what: str) -> None:
        with (folder / "ran").open("a") as file:
            file.write(f"{what}\n")
            file.flush()
            os.fsync(file.fileno())

    @tool
    async def pay(what: str) -> str:
        """Do something that must not be done twice."""
        note(f"pay {what}")
        await asyncio.sleep(0.002)
        return f"paid {what}"

    @tool(idempotent=True)
    async def look(what: str) -> str:
        """Do something that may be done again."""
        note(f"look {what}")
        return f"looked at {what}"

    return ToolManager([pay, look], approvals=Approvals([Rule("*", "allow")]))


async def main(folder: Path) -> None:
    async with SessionManager.open(f"sqlite:///{folder}/agent.db") as sessions:
        session = await sessions.open_or_create(SESSION)
        model = ScriptedModel(*[next_reply] * 100)
        agent = Agent(model=model, session=session, tools=tools(folder), budget=Budget(100_000))
        empty = not await session.messages(last=1)
        run = agent.run("Go.") if empty else agent.resume()
        async for event in run:
            print(type(event).__name__, flush=True)


async def _forgets(self: Turn, calls: Any) -> None:
    """Write nothing down: the planted bug."""


if __name__ == "__main__":
    if "--forgetful" in sys.argv:
        Turn.started = _forgets  # type: ignore[method-assign]
    asyncio.run(main(Path(sys.argv[1])))
