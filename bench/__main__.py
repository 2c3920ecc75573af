"""Run all benchmarks, or those named on the command line."""

from __future__ import annotations

import argparse
import platform
from importlib import import_module

BENCHES = ("codec", "counters", "startup", "windows", "sessions", "servers", "checkpoints", "memory")


def main() -> None:
    """Run the benchmarks and print their tables."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", default=BENCHES, help=", ".join(BENCHES))
    names = parser.parse_args().names
    if unknown := [name for name in names if name not in BENCHES]:
        parser.error(f"there is no benchmark {', '.join(unknown)}; choose from {', '.join(BENCHES)}")
    print(
        f"Python {platform.python_version()}, {platform.machine()}; best of several rounds; read the ratios"
    )
    for name in names:
        print(f"\n# {name}")
        import_module(f"bench.{name}").main()


if __name__ == "__main__":
    main()
