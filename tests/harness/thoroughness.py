"""How often a test repeats a fault or draws an example: little in `make test`, much in `make faults`.

`TURNSTATE_THOROUGH=10` and more selects the long version. Random faults come from one seed per test run. The
short version always has the same one, so that the same code gets the same verdict; every long run has a new
one, which is printed with the counts: set `TURNSTATE_SEED` to repeat it. Timing still differs between runs.
"""

from __future__ import annotations

import os
import secrets
import zlib
from collections.abc import Callable
from random import Random

from hypothesis import HealthCheck, settings

THOROUGH = int(os.environ.get("TURNSTATE_THOROUGH", "1"))
LONG = THOROUGH >= 10
SHORT_SEED = 7


def _seed() -> int:
    """Return one seed for all processes of a test run."""
    if given := os.environ.get("TURNSTATE_SEED"):
        return int(given)
    if not LONG:
        return SHORT_SEED
    return zlib.crc32(os.environ.get("PYTEST_XDIST_TESTRUNUID", secrets.token_hex(8)).encode())


SEED = _seed()


def runs(quick: int, *, long: int) -> int:
    """Return the number of repetitions; `long` is the number for `TURNSTATE_THOROUGH=10`."""
    return long * THOROUGH // 10 if LONG else quick


def examples(quick: int, *, long: int, steps: int = 50) -> settings:
    """Return Hypothesis settings with that many examples; `steps` is the length of a stateful example."""
    return settings(
        max_examples=runs(quick, long=long),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )


def rng(name: str) -> Random:
    """Return the random numbers of one test."""
    return Random(f"{SEED} {name}")


def report(record_property: Callable[[str, object], None], title: str, **counts: int) -> None:
    """Add counts to the summary of the test run, under a title that names the seed."""
    named = {what.replace("_", " "): count for what, count in counts.items()}
    record_property("counted", (f"{title} (seed {SEED})", named))
    print(f"{title}: {named}, TURNSTATE_SEED={SEED}")
