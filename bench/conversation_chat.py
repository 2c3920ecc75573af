"""The processor time of a line typed in a chat, at two lengths, inside and outside of a Git repository.

The model answers at once, in this process, and nothing is printed, so the time is that of the chat, the
agent, the session, the store and the checkpoints. Git runs in other processes, whose time is not counted. A
line is answered with words, or with a call that writes one of 100 files, which is a checkpoint inside of a
repository, and then with words.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

from turnstate import SessionManager, ToolCallRequest
from turnstate.agent import AgentEvent
from turnstate.chat import Chat, ChosenModel
from turnstate.chat.view import PlainView
from turnstate.config import Settings
from turnstate.home import Home
from turnstate.models import Finished, ModelEvent, ModelRequest, TextDelta, ToolCallMade, UsageReported
from turnstate.snapshots import Snapshots

from .conversation_operations import talked
from .session_messages import agent
from .window_print import goal, ms, table, times

LENGTHS = (100, 10_000)
FILES = 100
LINES = 30
GOAL = 1.5
PLACES = {"outside of a repository": False, "inside of a Git repository": True}
ASKED = {"a typed line": "Is the lamp lit?", "a file written": "Write it down."}


class Immediate(ChosenModel):
    """A model that answers at once."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Answer a request."""
        is_call = request.messages[-1].text == ASKED["a file written"]
        if is_call:
            content = f"There are {len(request.messages)} messages, and it is {time.time_ns()}.\n"
            args = {"path": "file-1.txt", "content": content}
            yield ToolCallMade(ToolCallRequest(name="write_file", args=args))
        else:
            yield TextDelta("The lamp is lit, and all ships are in.")
        yield UsageReported(input=1_000, output=10)
        yield Finished("tool_calls" if is_call else "stop")


class Silent(PlainView):
    """A view that shows nothing."""

    async def event(self, event: AgentEvent) -> None:
        """Show nothing."""

    async def notice(self, text: str) -> None:
        """End the benchmark: a chat that takes no checkpoints, for example, is not what is measured."""
        raise RuntimeError(text)

    async def error(self, text: str) -> None:
        """End the benchmark."""
        raise RuntimeError(text)


async def report(folder: Path) -> None:
    """Measure, and print the table."""
    found = dict[str, dict[int, float]]()
    for place, is_repository in PLACES.items():
        lines = await _measured(folder / place.replace(" ", "-"), is_repository)
        found |= {f"{asked} {place}": spent for asked, spent in lines.items()}
    short, long = LENGTHS
    print(f"\nA chat in a folder of {FILES} files: processor time without git's, ms, medians of {LINES}")
    table(
        ["", f"{short:,} messages", f"{long:,}", "ratio"],
        [[line, ms(one[short]), ms(one[long]), times(one[long] / one[short])] for line, one in found.items()],
    )
    for line, one in found.items():
        ratio = one[long] / one[short]
        goal(f"{line}: {long:,} messages at most {GOAL:g} × {short:,}", times(ratio), ratio <= GOAL)


async def _measured(folder: Path, is_repository: bool) -> dict[str, dict[int, float]]:
    """Return the median processor time of each kind of line, by length."""
    folder.mkdir()
    home, spent = (
        Home(folder / "home"),
        {asked: {length: list[float]() for length in LENGTHS} for asked in ASKED},
    )
    async with SessionManager.open(f"sqlite:///{folder}/chat.db") as sessions:
        chats = dict[int, Chat]()
        for length in LENGTHS:
            workspace = _workspace(folder / f"work-{length}", is_repository)
            chats[length] = await _begun(sessions, workspace, home)
            await talked(sessions, chats[length].session, agent(length))
            for words in ASKED.values():  # the first makes the cut, and the second the shadow repository
                await chats[length].handle(words)
        for number in range(LINES):
            for length in LENGTHS[:: -1 if number % 2 else 1]:
                for asked, words in ASKED.items():
                    start = time.process_time()
                    await chats[length].handle(words)
                    spent[asked][length].append(time.process_time() - start)
        for chat in chats.values():
            await chat.close()
    return {
        asked: {length: statistics.median(one) for length, one in by_length.items()}
        for asked, by_length in spent.items()
    }


async def _begun(sessions: SessionManager, workspace: Path, home: Home) -> Chat:
    """Begin a chat in a folder."""
    settings = Settings.load(workspace, home=home)
    model = Immediate("scripted@http://127.0.0.1:9/v1", settings)
    chat = Chat(
        sessions,
        Silent(),
        model,
        user="u",
        workspace=workspace,
        allow=["write_file"],
        settings=settings,
        snapshots=Snapshots(home=home, workspace=workspace),
        home=home,
    )
    await chat.use_agent(None)
    await chat.begin()
    return chat


def _workspace(folder: Path, is_repository: bool) -> Path:
    """Create a folder with files."""
    folder.mkdir()
    for number in range(FILES):
        (folder / f"file-{number}.txt").write_text(f"This is file {number}.\n" * 20)
    if is_repository:
        subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    return folder
