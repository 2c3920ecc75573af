"""Start-up time of Turnstate, compared with a bare interpreter."""

from __future__ import annotations

import subprocess
import sys
import time

ROUNDS = 15


def seconds(*command: str) -> float:
    """Return the best time of a command over all rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Print start-up times."""
    python = sys.executable
    bare = seconds(python, "-c", "pass")
    rows = {
        "python -c pass": bare,
        "import turnstate": seconds(python, "-c", "import turnstate"),
        "import pydantic (a peer's values)": seconds(python, "-c", "import pydantic; pydantic.BaseModel"),
        "import toktok (what we load late)": seconds(python, "-c", "import toktok"),
        "turnstate --help": seconds(python, "-m", "turnstate", "--help"),
    }
    for name, value in rows.items():
        print(f"{name:36} {value * 1000:7.1f} ms   {(value - bare) * 1000:+7.1f} ms beyond bare Python")
