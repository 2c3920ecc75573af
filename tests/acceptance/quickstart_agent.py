"""The agent of the quick start, as a process that can be killed.

It imports the page and the SDKs once, which takes seconds, and forks a process for each life of an agent, so
that the life after a `kill -9` begins at once. A line of standard input starts an agent: its loop, the URL of
the provider, the store, the number of turns, and the turn in which the second tool never ends, in the second
life. A life continues the turn that the one before left, and goes on until all turns are done. A tool that
begins is told on standard output, as `<process> <life> <turn> <tool>`, and the end as `ended <exit code>`.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "quickstart.md"
SESSION = "support-42"
OUTPUT = "\n".join(f"line {n}: nothing of note in sector {n * 7}" for n in range(80))


def page() -> dict[str, Any]:
    """Return what the Python of the page defines."""
    namespace: dict[str, Any] = {"__name__": "quickstart"}
    for body in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(body, PAGE.name, "exec"), namespace)
    return namespace


async def life(names: dict[str, Any], loop: str, url: str, store: str, turns: int) -> None:
    """Continue what is pending, then take the turns that are left."""
    if "claude" in loop:
        client = names["AsyncAnthropic"](base_url=url, api_key="key", max_retries=0)
    else:
        client = names["AsyncOpenAI"](base_url=f"{url}/v1", api_key="key", max_retries=0)
    take = names[loop]
    async with names["SessionManager"].open(store) as sessions:
        session = await sessions.open_or_create(SESSION, user="u1", system="You watch over the jobs.")
        if await session.pending():
            await again(names, take, client, session)
        said = sum(message.role == "user" for message in await session.messages())
        keyed = loop == "after"
        for number in range(said, turns):
            await take(client, session, words(number), *([f"key {number}"] if keyed else []))
        if keyed:
            await repeat(names, session, turns)
    await client.close()


async def repeat(names: dict[str, Any], session: Any, turns: int) -> None:
    """Repeat every request under its key, and check that each gets the answer of its own turn."""
    last = list[Any]()
    for message in await session.messages():
        if message.role == "user":
            last.append(None)
        elif message.role == "assistant":
            last[-1] = message
    for number in range(turns):
        turn = session.turn(words(number), budget=names["Budget"](16_000), key=f"key {number}")
        async with turn:
            if turn.answer != last[number]:
                raise AssertionError(f"turn {number} was answered with {turn.answer}")


def words(number: int) -> str:
    return f"turn {number}: how is the job? " + "word " * 20


async def again(names: dict[str, Any], take: Any, client: Any, session: Any) -> None:
    """Run the calls that a life before left open, and continue its turn."""
    async with session.turn(budget=names["Budget"](16_000)) as turn:
        for call in turn.calls:
            await turn.result(call, await names["run"](call.name, call.args))
    await take(client, session)


def lived(names: dict[str, Any], loop: str, url: str, store: str, turns: int, stuck: int) -> int:
    """Run an agent through all its lives, and return the exit code of the last."""
    lives = 0

    async def run(name: str, args: dict[str, Any]) -> str:
        os.write(1, f"{os.getpid()} {lives} {args['n']} {name}\n".encode())
        if (lives, args["n"], name) == (2, stuck, "listen"):
            await asyncio.Event().wait()
        return f"{name} {args['n']}:\n{OUTPUT}"

    names["run"] = run
    while True:
        lives += 1
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(life(names, loop, url, store, turns))
                os._exit(0)
            finally:
                traceback.print_exc()
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    defined = page()
    for line in sys.stdin:
        code = lived(defined, *line.split("\t")[:3], *map(int, line.split("\t")[3:]))
        os.write(1, f"ended {code}\n".encode())
