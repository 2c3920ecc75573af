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
from tests.properties.machine import Machine, Step, View, enabled_steps, shown, view_of
from tests.properties.machine_steps import RandomMachine
from turnstate import Budget
from turnstate.context.cut import MAX_CONVERSATION_STATE_HISTORY_LEN

__all__ = ["DISK", "Failed", "Played", "failing_seed", "played", "replay"]

STEPS = 25 if LONG else 10
SHRINK_SECONDS = 20.0
SMALL_CAP = 3
"""Exchanges that a state shows in every fourth run, so that conversations are longer than what is loaded."""
DISK = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())


class Failed(AssertionError):
    """A run failed; the steps that lead there can be played again."""


class Played(NamedTuple):
    """A run: its steps, what its state showed at the end under some budgets, and its cap."""

    seed: int
    steps: list[Step]
    view: View
    budgets: list[Budget]
    cap: int


async def _play(store: str, folder: Path, seed: int, steps: Sequence[Step] | int) -> Played:
    """Play a number of random steps, or some given ones; the steps so far are noted on what is raised."""
    rng = Random(seed)
    cap = SMALL_CAP if seed % 4 == 3 and store != "files" else MAX_CONVERSATION_STATE_HISTORY_LEN
    machine = RandomMachine(
        f"sqlite:///{folder}/{seed}.db" if store == "sqlite" else "",
        by_session=rng.choice([0.0, 0.0, 0.3, 0.6]),
        turns=rng.choice([0, 3, 9]),
        tree=folder / str(seed) if store == "files" else None,
        cap=cap,
    )
    done = list[Step]()
    with state_cap(cap):
        try:
            await machine.begin()
            for number in range(steps if isinstance(steps, int) else len(steps)):
                step = _drawn(machine, rng) if isinstance(steps, int) else steps[number]
                done.append(step)
                if not await machine.play(step):
                    done.pop()
            await machine.play(Step("load_again" if machine.is_long else "commit"))
            windows = [shown(machine.state, budget) for budget in machine.budgets]
            return Played(seed, done, view_of(machine.state, windows), machine.budgets, cap)
        except Exception as error:
            raise Failed(done, f"{type(error).__name__}: {error}") from error
        finally:
            await machine.close()


def _drawn(machine: Machine, rng: Random) -> Step:
    weights = enabled_steps(machine)
    (name,) = rng.choices(list(weights), list(weights.values()))
    return Step(name, rng.randrange(10_000), rng.randrange(10_000))


def played(store: str, seed: int, folder: Path, *, steps: int = STEPS) -> Played:
    """Play random steps; if they fail, raise `Failed` with the shortest list found that fails, too."""
    try:
        return asyncio.run(_play(store, folder, seed, steps))
    except Failed as failure:
        done, why = failure.args
        shortest = _shrunk(store, seed, done)
        listed = "".join(f"    {tuple(step)},\n" for step in shortest)
        again = f"replay({store!r}, {seed}, [\n{listed}])"
        raise Failed(f"seed {seed} on {store}: {why}\n{again}") from failure.__cause__


def replay(store: str, seed: int, steps: Sequence[Sequence[object]]) -> None:
    """Play given steps; the seed decides how it begins, and how often a handle is used, not the state."""
    with tempfile.TemporaryDirectory(dir=DISK) as folder:
        asyncio.run(_play(store, Path(folder), seed, [Step(*one) for one in steps]))  # type: ignore[arg-type]


def failing_seed(seeds: Sequence[int]) -> int | None:
    """Return the first seed whose steps fail in memory, without making them shorter; None if none does."""
    with tempfile.TemporaryDirectory(dir=DISK) as folder:
        for seed in seeds:
            try:
                asyncio.run(_play("memory", Path(folder), seed, STEPS))
            except Failed:
                return seed
    return None


def _shrunk(store: str, seed: int, steps: list[Step]) -> list[Step]:
    """Return a shorter list that fails: pieces are left out as long as it does, and for some seconds."""
    deadline, size = time.monotonic() + SHRINK_SECONDS, max(1, len(steps) // 2)
    while size and time.monotonic() < deadline:
        start, before = 0, len(steps)
        while start < len(steps) and time.monotonic() < deadline:
            fewer = steps[:start] + steps[start + size :]
            if _fails(store, seed, fewer):
                steps = fewer
            else:
                start += size
        size = size if len(steps) < before else size // 2
    return steps


def _fails(store: str, seed: int, steps: list[Step]) -> bool:
    try:
        replay(store, seed, steps)
    except Failed:
        return True
    return False
