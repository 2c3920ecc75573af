"""A program for several processes at once: wait for the start, then write snapshots or ask for the key.

python -m tests.faults.snapshot_race DIRECTORY key
python -m tests.faults.snapshot_race DIRECTORY write WRITER COUNT
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.unit.snapshots.snapshot_scenes import SESSION, keeper, snapshot
from turnstate.home import Home


def main(directory: str, what: str, writer: str = "0", count: str = "0") -> None:
    root = Path(directory)
    print("ready", flush=True)
    while not (root / "start").exists():
        time.sleep(0.0005)
    if what == "key":
        print(Home(root / "home").key().sign("test"))
        return
    kept = keeper(root)
    for number in range(int(count)):
        kept.write(SESSION, snapshot(int(writer) * 1_000 + number, text="tide " * 500))


if __name__ == "__main__":
    main(*sys.argv[1:])
