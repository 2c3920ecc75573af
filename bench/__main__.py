"""Run all measurements, or those named on the command line."""

from __future__ import annotations

import platform
import sys
from importlib import import_module

BENCHES = ("encoding", "counting", "startup", "windows", "sessions", "servers", "checkpoints")


def main() -> None:
    """Run the benches and print their tables."""
    names = sys.argv[1:] or BENCHES
    if unknown := [name for name in names if name not in BENCHES]:
        sys.exit(f"no bench is called {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    print(
        f"Python {platform.python_version()}, {platform.machine()}; best of several rounds; read the ratios"
    )
    for name in names:
        print(f"\n# {name}")
        import_module(f"bench.{name}").main()


if __name__ == "__main__":
    main()
