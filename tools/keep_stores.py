"""Keep stores of today for the tests of tomorrow: `python tools/keep_stores.py`.

Writes a new set into `tests/kept` if the newest one is not of today's schemas and kinds of entries, and says
so if it is. `--replace` writes the newest set anew; use it only for a set that was never published, since a
set stands for the files that people have. Needs what the tests need: the servers of the extra `dev`.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.harness import kept_stores  # noqa: E402


def main() -> None:
    """Write a set, unless today's is there."""
    sets = kept_stores.sets()
    newest = sets[-1] if sets else None
    if newest and "--replace" not in sys.argv:
        if json.loads((newest / "about.json").read_text()) == kept_stores.about():
            print(f"{newest.relative_to(ROOT)} is of today's schemas; nothing was written")
            return
        newest = None
    folder = newest or kept_stores.KEPT / f"{len(sets) + 1:04}"
    with tempfile.TemporaryDirectory() as scratch:
        kept_stores.keep(Path(scratch) / "set", Path(scratch))
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(Path(scratch) / "set", folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder.relative_to(ROOT)}: {len(list(folder.iterdir()))} files, {size:,} bytes")


if __name__ == "__main__":
    main()
