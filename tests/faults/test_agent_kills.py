"""An agent that is killed or cancelled at any moment goes on: valid history, nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable
from contextlib import aclosing
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.faults import agent_scene
from tests.faults.fork_server import Died, ForkServer
from tests.harness.programs import environment, program
from tests.harness.thoroughness import report, rng, runs
from turnstate.entry import UNCERTAIN

MOST_EVENTS = 12
"""Events that a process tells at most before it is killed; a run has about sixty."""

MOST_KILLS = 40
"""Kills after which a run should long have ended."""

LONGEST_PAUSE = 0.03
"""Seconds after an event within which it is killed: a step takes less."""


def lived(fork_server: ForkServer, folder: Path, dice: Random | None, plant: str) -> tuple[bool, list[Any]]:
    """Run the agent until a random moment, or without dice until it dies by itself.

    Return whether it had ended by then, and what it told.
    """
    with fork_server.agent(folder, plant=plant) as worker:
        heard = list[Any]()
        try:
            for _ in range(dice.randrange(MOST_EVENTS)) if dice else count():
                heard.append(worker.hear())
            time.sleep(dice.uniform(0, LONGEST_PAUSE) if dice else 0)
        except Died:
            pass
        heard += worker.kill()
    for failure in (one["text"] for one in heard if one["event"] == "failed"):
        raise RuntimeError(failure)
    return any(one["event"] == "Ended" for one in heard), heard


def run_to_the_end(fork_server: ForkServer, folder: Path, dice: Random | None, plant: str = "") -> int:
    """Kill and resume until the agent is done, and check after each kill; return the number of kills."""
    kills, heard, ended = 0, list[Any](), False
    agent_scene.prepared(folder)
    while not ended:
        ended, told = lived(fork_server, folder, dice, plant)
        heard += told
        kills += not ended
        assert kills < MOST_KILLS, "the agent does not get any further"
        asyncio.run(agent_scene.check(folder, heard))
        agent_scene.check_payments(folder)
    asyncio.run(agent_scene.check_end(folder))
    return kills


@pytest.mark.timeout(1_200)
@pytest.mark.req("P1", "G6", "O3")
def test_an_agent_killed_at_random_moments_ends_its_run_and_does_nothing_twice(
    fork_server: ForkServer, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    dice, kills, number = rng("agent kills"), 0, 0
    while kills < runs(10, long=200):
        number += 1
        kills += run_to_the_end(fork_server, folder / str(number), dice)
    report(record_property, "agents killed", kills=kills, runs=number)


CAUGHT = {"forgetful": "paid twice", "hasty": "'event': 'result'", "stale": "other files"}


@pytest.mark.parametrize("plant", CAUGHT)
def test_a_planted_bug_of_an_agent_is_caught(plant: str, fork_server: ForkServer, folder: Path) -> None:
    with pytest.raises(AssertionError, match=CAUGHT[plant]):
        run_to_the_end(fork_server, folder / plant, None, plant)


async def cancelled(folder: Path, dice: Random) -> tuple[bool, list[Any], int]:
    """Run the agent and cancel it, up to three times; return if it ended, what it told, and the cancels."""
    heard, cancels = list[Any](), 0

    async def followed() -> None:
        async with aclosing(agent_scene.events(folder, sessions, session, checkpoints)) as events:
            async for event in events:
                heard.append(event)

    async with agent_scene.opened(folder) as (sessions, session, checkpoints):
        for _ in range(dice.randrange(1, 4)):  # the same handle goes on, or another one
            task, before = asyncio.ensure_future(followed()), len(heard)
            wanted = before + dice.randrange(MOST_EVENTS)
            while not task.done() and len(heard) < wanted:
                await asyncio.sleep(0)
            for _ in range(dice.randrange(40)):
                await asyncio.sleep(0)
            if dice.random() < 0.5:
                await asyncio.sleep(dice.uniform(0, LONGEST_PAUSE))
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()):
                raise error
            await agent_scene.check_session(session, heard)
            if heard and heard[-1]["event"] == "Ended":
                return True, heard, cancels
            cancels += 1
    return False, heard, cancels


@pytest.mark.timeout(1_200)
@pytest.mark.req("P1", "O3")
def test_an_agent_cancelled_at_random_moments_ends_its_run_and_does_nothing_twice(
    folder: Path, record_property: Callable[[str, object], None]
) -> None:
    dice, cancels, number = rng("agent cancels"), 0, 0
    while cancels < runs(10, long=200):
        number += 1
        place, heard, ended = agent_scene.prepared(folder / str(number)), list[Any](), False
        while not ended:
            ended, told, more = asyncio.run(cancelled(place, dice))
            heard += told
            cancels += more
            asyncio.run(agent_scene.check(place, heard))
            agent_scene.check_payments(place)
        asyncio.run(agent_scene.check_end(place))
    report(record_property, "agents cancelled", cancels=cancels, runs=number)


def killed_while_it_asks(folder: Path, *plant: str) -> None:
    """Kill an agent while its second call is being asked about, and check what is left and what resumes."""
    folder.mkdir()
    command = program("tests.faults.asked_process", folder, *plant)
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        told = [json.loads(first.stdout.readline()) for _ in range(3)]
        first.kill()
    assert told == [{"asked": "shop"}, {"asked": "bank"}, {"ready": True}]
    second = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, check=True, timeout=60)
    told = [json.loads(line) for line in second.stdout.splitlines()]
    assert {"call": "shop", "result": UNCERTAIN} in told
    assert {"asked": "shop"} not in told
    assert {"asked": "bank"} in told, "not asked again"
    assert {"call": "bank", "result": "paid at bank"} in told
    assert (folder / "paid").read_text().split() == ["shop", "bank"]


@pytest.mark.req("P1")
def test_a_kill_while_a_call_is_asked_about_leaves_it_unstarted_and_asks_again(folder: Path) -> None:
    with pytest.raises(AssertionError, match="not asked again"):
        killed_while_it_asks(folder / "planted", "batch")
    killed_while_it_asks(folder / "today")
