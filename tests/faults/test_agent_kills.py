"""An agent that is killed at any moment goes on: valid history, nothing lost, nothing done twice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import agent_process
import pytest
from thoroughness import report, rng, runs

from turnstate import Budget, SessionManager, formats
from turnstate.errors import NotFound

EVENTS = 60
"""More than one process reports."""


def killed(folder: Path, dice: Random, *options: str) -> bool:
    """Run the agent and kill it after some events; return True if it had ended by then."""
    process = subprocess.Popen(
        [sys.executable, agent_process.__file__, str(folder), *options], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as events:
        for _ in range(dice.randrange(1, EVENTS)):
            if not events.readline():
                break
        process.kill()
        events.read()
    return process.wait() == 0


async def check(folder: Path) -> None:
    """Check that the conversation is whole, and that its next request is valid for every provider."""
    async with SessionManager.open(f"sqlite:///{folder}/agent.db") as sessions:
        try:
            session = await sessions.open(agent_process.SESSION)
        except NotFound:  # it was killed before it began
            return
        window = await session.window(Budget(100_000))
        for name in formats.names():
            provider = formats.get(name)
            assert provider.validate(provider.render(window.messages)) == [], name
        answered = [
            result.tool_call_id for message in await session.messages() for result in message.tool_results
        ]
        assert len(set(answered)) == len(answered)


def ran(folder: Path) -> Counter[str]:
    return Counter((folder / "ran").read_text().splitlines())


def run_to_the_end(folder: Path, dice: Random, *options: str) -> int:
    """Kill and resume until the agent is done; return the number of kills."""
    kills = 0
    while not killed(folder, dice, *options):
        kills += 1
        if (folder / "agent.db").exists():
            asyncio.run(check(folder))
    return kills


@pytest.mark.req("P1", "G6")
def test_an_agent_killed_at_random_moments_ends_its_run_and_pays_at_most_once(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    dice, kills = rng("agent"), 0
    for number in range(runs(2, long=40)):
        folder = tmp_path / str(number)
        folder.mkdir()
        kills += run_to_the_end(folder, dice)
        paid = {what: count for what, count in ran(folder).items() if what.startswith("pay")}
        assert set(paid.values()) == {1}, paid
        asyncio.run(check(folder))
    report(record_property, "agents killed", kills=kills)


def test_an_agent_that_does_not_note_what_it_starts_is_caught(tmp_path: Path) -> None:
    dice = rng("forgetful")
    for number in range(30):
        folder = tmp_path / str(number)
        folder.mkdir()
        run_to_the_end(folder, dice, "--forgetful")
        if any(count > 1 for what, count in ran(folder).items() if what.startswith("pay")):
            return
    raise AssertionError("nothing was done twice, though nothing was noted")
