"""How often a fault is repeated: a little in `make test`, at length in `make faults`.

Random faults come from one seed a run, which is printed beside the counts: set `TURNSTATE_SEED` to see
the same faults again. Moments still differ, as the machine does. `TURNSTATE_THOROUGH=10` and more is long.
"""

from __future__ import annotations

import os
import secrets
import zlib
from collections.abc import Callable
from random import Random

THOROUGH = int(os.environ.get("TURNSTATE_THOROUGH", "1"))
LONG = THOROUGH >= 10


def _seed() -> int:
    """Give all processes of one test run the same seed."""
    if given := os.environ.get("TURNSTATE_SEED"):
        return int(given)
    return zlib.crc32(os.environ.get("PYTEST_XDIST_TESTRUNUID", secrets.token_hex(8)).encode())


SEED = _seed()


def runs(quick: int, *, long: int) -> int:
    """Choose how many times something is done: `long` is the number for `TURNSTATE_THOROUGH=10`."""
    return long * THOROUGH // 10 if LONG else quick


def rng(name: str) -> Random:
    """Give the random numbers of one test."""
    return Random(f"{SEED} {name}")


def tell(record_property: Callable[[str, object], None], title: str, **counts: int) -> None:
    """Hand counts to the summary at the end of the run, under a title that names the seed."""
    named = {what.replace("_", " "): count for what, count in counts.items()}
    record_property("counted", (f"{title} (seed {SEED})", named))
    print(f"{title}: {named}, TURNSTATE_SEED={SEED}")
