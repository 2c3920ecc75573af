"""Programs that tests start: modules of the tests that run as processes of their own.

subprocess.run(program("tests.faults.killed_worker", folder), env=environment())
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def program(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module of the tests."""
    return [sys.executable, "-m", module, *map(str, arguments)]


def environment(**changes: str) -> dict[str, str]:
    """Return the environment in which a program finds the tests, whichever folder it runs in."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **changes}
