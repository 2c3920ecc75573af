"""The chat in a terminal: the help, the first prompt of a long session, and a key's echo while text streams.

Times are what a person sees, in a pseudoterminal, including the start of the process. The time of a bare
``python -c pass`` is printed as well, since the interpreter takes a large part of a start.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.harness.chat_model import ChatModel
from tests.harness.terminal import Terminal
from turnstate import Budget, SessionManager
from turnstate.catalog import named

from .session_messages import agent

__all__ = ["main"]

PROGRAM = str(Path(sys.executable).with_name("turnstate"))
LENGTHS = (100, 100_000)
STARTS = 5
KEYS = 150
PAUSE = 0.03


def main() -> None:
    """Print the three times."""
    bare = _started(sys.executable, "-c", "pass")
    helped = _started(PROGRAM, "--help")
    print(f"turnstate --help: {helped * 1000:.0f} ms; python -c pass: {bare * 1000:.0f} ms")
    with tempfile.TemporaryDirectory() as folder, ChatModel() as model:
        place = Path(folder)
        asyncio.run(_fill(place, Budget.of(named(model.address.partition("@")[0]))))
        for length in LENGTHS:
            times = [_first_prompt(place, model.address, f"s{length}") for _ in range(STARTS)]
            print(f"first prompt, {length:,} messages: {statistics.median(times) * 1000:.0f} ms")
        echoes = sorted(_echoes(place, model.address))
        middle, late = statistics.median(echoes), echoes[int(len(echoes) * 0.99)]
        print(f"echo of a key while text streams: {middle * 1000:.1f} ms, p99 {late * 1000:.1f} ms")


def _started(*command: str) -> float:
    """Return the median time of a command."""
    times = list[float]()
    for _ in range(STARTS):
        begun = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, env=_environment(), check=True)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def _environment() -> dict[str, str]:
    """Return an environment that writes bytecode files, since an installed package has them."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}


async def _fill(folder: Path, budget: Budget) -> None:
    """Create the sessions to resume, with the cut that the last request of a chat would have made."""
    async with SessionManager.open(f"sqlite:///{folder}/chat.db") as sessions:
        for length in LENGTHS:
            session = await sessions.create(id=f"s{length}", user="u", title=f"{length} messages")
            messages = agent(length)
            for at in range(0, length, 1_000):
                await session.append(*messages[at : at + 1_000])
            await session.window(budget)


def _start(folder: Path, address: str, *arguments: str) -> Terminal:
    command = [PROGRAM, "chat", "--model", address, "--no-memory", "--user", "u", *arguments]
    env = {"TURNSTATE_HOME": str(folder / "home"), "TURNSTATE_STORE": f"sqlite:///{folder}/chat.db"}
    env["PYTHONDONTWRITEBYTECODE"] = ""
    return Terminal(command, folder=folder, env=env, columns=80, rows=24)


def _first_prompt(folder: Path, address: str, session: str) -> float:
    """Return the time until the prompt of a session can be typed into."""
    begun = time.perf_counter()
    with _start(folder, address, "--resume", session) as terminal:
        while "›".encode() not in terminal.raw:
            terminal.read(0.002)
        return time.perf_counter() - begun


def _echoes(folder: Path, address: str) -> list[float]:
    """Return the times from a key press to its appearance while an answer streams."""
    times = list[float]()
    with _start(folder, address) as terminal:
        terminal.wait("/help")
        terminal.enter("slow 100000")
        terminal.wait("word25")
        for number in range(KEYS):
            key = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[number % 26]  # the text has none of them
            terminal.read(PAUSE)
            size = len(terminal.raw)
            begun = time.perf_counter()
            terminal.type(key)
            while key.encode() not in terminal.raw[size:]:
                terminal.read(0.001)
            times.append(time.perf_counter() - begun)
        terminal.type("\x03")
    return times


if __name__ == "__main__":
    main()
