"""Runs of the random machine: a seed becomes a list of steps, and a failing list is made shorter.

The list is printed as a call of `replay`, which can be put into a test. `TURNSTATE_SEED` repeats all runs.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.harness.state_cap import state_cap
from tests.harness.thoroughness import LONG
from tests.properties.machine import ALL, Machine, Step, alike, enabled_steps
from tests.properties.machine_process import Process
from tests.properties.machine_steps import RandomMachine
from turnstate.stores import connect

STEPS = 25 if LONG else 10
SHRINK_SECONDS = 20.0
SMALL_CAP = 3
"""Exchanges that a view shows in every fourth run, so that conversations are longer than that."""
DISK = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())


class Failed(AssertionError):
    """A run failed; the steps that lead there can be played again."""


class Place(NamedTuple):
    """Where runs have their conversations: a store, a folder for files, and another process."""

    url: str = "memory:"
    tree: Path | None = None
    process: Process | None = None


async def _play(place: Place, seed: int, steps: Sequence[Step] | int) -> list[Step]:
    """Play a number of random steps, or some given ones; the steps so far are noted on what is raised."""
    rng, done = Random(seed), list[Step]()
    cap = SMALL_CAP if seed % 4 == 3 and not place.tree else ALL
    store = await connect(place.url)
    with state_cap(cap), alike() as ids, tempfile.TemporaryDirectory(dir=place.tree or DISK) as folder:
        tree = Path(folder) if place.tree else None
        url, process = place.url, place.process
        machine = RandomMachine(
            store, ids, url=url, turns=rng.choice([0, 3, 9]), tree=tree, cap=cap, process=process
        )
        try:
            await machine.begin()
            for number in range(steps if isinstance(steps, int) else len(steps)):
                step = _drawn(machine, rng) if isinstance(steps, int) else steps[number]
                done.append(step)
                if not await machine.play(step):
                    done.pop()
            return done
        except Exception as error:
            raise Failed(done, f"{type(error).__name__}: {error}") from error
        finally:
            await store.close()


def _drawn(machine: Machine, rng: Random) -> Step:
    weights = enabled_steps(machine)
    (name,) = rng.choices(list(weights), list(weights.values()))
    return Step(name, rng.randrange(10_000), rng.randrange(10_000))


def played(place: Place, seed: int, *, steps: int = STEPS) -> list[Step]:
    """Play random steps; if they fail, raise `Failed` with the shortest list found that fails, too."""
    try:
        return asyncio.run(_play(place, seed, steps))
    except Failed as failure:
        done, why = failure.args
        shortest = _shrunk(place, seed, done)
        listed = "".join(f"    {tuple(step)},\n" for step in shortest)
        where = f", url={place.url!r}" if place.url != Place().url else ", tree=True" if place.tree else ""
        again = f"replay({seed}, [\n{listed}]{where})"
        raise Failed(f"seed {seed} on {place.url}: {why}\n{again}") from failure.__cause__


def replay(
    seed: int, steps: Sequence[Sequence[object]], *, url: str = Place().url, tree: bool = False
) -> None:
    """Play given steps; the seed decides how it begins."""
    place = Place(url, DISK if tree else None)
    asyncio.run(_play(place, seed, [Step(*one) for one in steps]))  # type: ignore[arg-type]


def failing_seed(seeds: Sequence[int]) -> int | None:
    """Return the first seed whose steps fail in memory, without making them shorter; None if none does."""
    for seed in seeds:
        try:
            asyncio.run(_play(Place(), seed, STEPS))
        except Failed:
            return seed
    return None


def _shrunk(place: Place, seed: int, steps: list[Step]) -> list[Step]:
    """Return a shorter list that fails: pieces are left out as long as it does, and for some seconds."""
    deadline, size = time.monotonic() + SHRINK_SECONDS, max(1, len(steps) // 2)
    while size and time.monotonic() < deadline:
        start, before = 0, len(steps)
        while start < len(steps) and time.monotonic() < deadline:
            fewer = steps[:start] + steps[start + size :]
            if _fails(place, seed, fewer):
                steps = fewer
            else:
                start += size
        size = size if len(steps) < before else size // 2
    return steps


def _fails(place: Place, seed: int, steps: list[Step]) -> bool:
    try:
        asyncio.run(_play(place, seed, steps))
    except Failed:
        return True
    return False
