"""A program that writes snapshots in child processes and cuts them off at every call to the system.

    python -m tests.faults.snapshot_cuts DIRECTORY SCENE FAULT [WRITER]

It prints a line of JSON for each call that was cut: what the child said, and what is left on the disk.
`kill` dies before the call, `torn` after it (and in the middle of a write), `fail` makes it fail.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.unit.snapshots.snapshot_scenes import SESSION, files, keeper, session_folder, snapshot
from turnstate.errors import TurnstateError
from turnstate.snapshots import Snapshots

UNCUT = 7  # the exit code of a child that makes fewer calls
CALLS = ["open", "mkdir", "fchmod", "write", "fsync", "stat", "listdir", "link", "rename", "unlink"]


def cut(at: int, fault: str) -> list[int]:
    """Let the call of that number, counted over all of them, be the one that goes wrong.

    Return the number of calls that are left until then, which changes.
    """
    left = [at]

    def faulty(name: str, really: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] != 0:
                return really(*arguments, **options)
            if fault == "fail":
                raise OSError(errno.ENOSPC, f"no space left for {name}")
            if fault == "torn" and name == "write":
                really(arguments[0], arguments[1][: len(arguments[1]) // 2])
            elif fault == "torn":
                with suppress(OSError):
                    really(*arguments, **options)
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError

        return call

    for name in CALLS:
        setattr(os, name, faulty(name, getattr(os, name)))
    return left


def careless(kept: Snapshots) -> None:
    """Write as one should not: the old ones go first, and the new one grows under its final name."""
    for name in files(kept):
        os.unlink(session_folder(kept) / name)
    whole = keeper(kept.folder.parents[2]).write("elsewhere", snapshot(4)).read_bytes()
    file = os.open(session_folder(kept) / f"{'9' * 16}-{'0' * 16}-{'0' * 16}.json", os.O_WRONLY | os.O_CREAT)
    os.write(file, whole)


def careful(kept: Snapshots) -> None:
    kept.write(SESSION, snapshot(4, text="tide " * 2_000))


def in_a_child(act: Callable[[Snapshots], None], kept: Snapshots, at: int, fault: str) -> tuple[str, bool]:
    """Return what the child said last, or nothing where it was killed before it could, and if it was cut."""
    reading, writing = os.pipe()
    child, say = os.fork(), os.write
    if child == 0:
        left = cut(at, fault)
        try:
            act(kept)
            say(writing, b"written")
        except TurnstateError as error:
            say(writing, type(error).__name__.encode())
        except BaseException as error:
            say(writing, repr(error).encode())
        os._exit(UNCUT if left[0] > 0 else 0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with open(reading, "rb") as pipe:
        return pipe.read().decode(), status != UNCUT << 8


def after(kept: Snapshots, said: str) -> dict[str, object]:
    """Look at what is left, and go on as if nothing had happened."""
    folder = session_folder(kept)
    left = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    outcome: dict[str, object] = {"said": said, "files": sum(name.endswith(".json") for name in left)}
    outcome["litter"] = [name for name in left if not name.endswith(".json")]
    try:
        restored = kept.restore(SESSION)
        outcome["restored"] = restored.snapshot.token_count if restored else None
        outcome["passed_over"] = len(restored.passed_over) if restored else 0
        kept.write(SESSION, snapshot(5))
        again = kept.restore(SESSION)
        outcome["later"] = again.snapshot.token_count if again else None
    except TurnstateError as error:
        outcome["error"] = repr(error)
    return outcome


def main(directory: str, scene: str, fault: str, writer: str = "careful") -> None:
    act = {"careful": careful, "careless": careless}[writer]
    for at in range(1, 1_000):
        kept = keeper(Path(directory) / f"{at}")
        for number in (1, 2, 3) if scene == "three" else ():
            kept.write(SESSION, snapshot(number))
        said, is_cut = in_a_child(act, kept, at, fault)
        print(json.dumps({"at": at, **after(kept, said)}))
        if not is_cut:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
