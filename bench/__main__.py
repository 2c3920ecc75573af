"""Run all benchmarks, or those named on the command line."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from . import session_contest, window_speed
from .window_print import Recorder

BENCHES = (
    "codec",
    "counters",
    "startup",
    "windows",
    "digest",
    "sessions",
    "servers",
    "search",
    "checkpoints",
    "memory",
    "facts",
    "agent",
    "chat",
    "conversation",
)


BRIEFLY = 1.0
"""Seconds per contestant and case of the sessions benchmark with `--brief`: about ten minutes in total."""

FEW = 3
"""Minimum rounds per timing of a window with `--brief`."""


def main() -> None:
    """Run the benchmarks and print their tables."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", default=BENCHES, help=", ".join(BENCHES))
    parser.add_argument("--json", metavar="FILE", type=Path, help="write what is printed to a file, too")
    parser.add_argument("--brief", action="store_true", help="give each contestant in a case less time")
    given = parser.parse_args()
    if given.brief:
        session_contest.ENOUGH, window_speed.ROUNDS = BRIEFLY, FEW
    if unknown := [name for name in given.names if name not in BENCHES]:
        parser.error(f"there is no benchmark {', '.join(unknown)}; choose from {', '.join(BENCHES)}")
    print(
        f"Python {platform.python_version()}, {platform.machine()}; best of several rounds; read the ratios"
    )
    found = dict[str, dict[str, Any]]()
    for name in given.names:
        print(f"\n# {name}")
        found[name] = recorded(name)
        if given.json:  # after each one, so that an interrupted run keeps the earlier results
            given.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")


def recorded(name: str) -> dict[str, Any]:
    """Run a benchmark; return what it printed, with the date, the machine and the time it took."""
    recorder, load, started = Recorder(sys.stdout), os.getloadavg()[0], time.monotonic()
    with redirect_stdout(recorder):
        import_module(f"bench.{name}").main()
    return {
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "load": round(load, 1),
        "seconds": round(time.monotonic() - started),
        "printed": recorder.found,
    }


if __name__ == "__main__":
    main()
