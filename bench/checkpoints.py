"""Snapshots of a work tree compared with plain `git add -A` and `git commit`, equally durable.

Both save the same files in one folder on one disk, one after the other, with `core.fsync=all`. Git gets its
own repository next to the tree and an empty configuration, so neither has an advantage. The first snapshot of
each size is taken once, the others several times; the median is printed.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from turnstate.checkpoints import ShadowRepository

from .window_print import table, times

SIZES = (2_000, 50_000)
CHANGED = 20
ROUNDS = 3
IN_A_FOLDER = 40
WORDS = "the of and for while return import class self value None True lambda yield async await".split()
STEPS = ("first", "none changed", f"{CHANGED} changed", f"restore {CHANGED}", "restore all")


class Keeper(Protocol):
    """Saves the files of a work tree and restores them."""

    name: str
    folder: Path

    def keep(self, tag: str) -> None:
        """Save the current files durably."""
        ...

    def bring_back(self, tag: str) -> None:
        """Restore the files of a snapshot."""
        ...


class Ours:
    """The shadow repository."""

    name = "Turnstate"

    def __init__(self, folder: Path, tree: Path) -> None:
        self.folder = folder
        self._kept = ShadowRepository.open(folder, tree, force=True)  # the benchmark is in an ignored folder

    def keep(self, tag: str) -> None:
        """Take a snapshot."""
        self._kept.snapshot(tag)

    def bring_back(self, tag: str) -> None:
        """Restore a snapshot, which takes two more snapshots."""
        self._kept.restore(tag, hard=True)


class PlainGit:
    """Plain Git, configured to wait for the disk."""

    name = "git add + commit"

    def __init__(self, folder: Path, tree: Path) -> None:
        self.folder, self._tree = folder, tree
        self._run("init", "--quiet")
        self._run("config", "core.fsync", "all")
        self._run("config", "gc.auto", "0")

    def keep(self, tag: str) -> None:
        """Add everything and commit."""
        self._run("add", "-A")
        self._run("commit", "--quiet", "--allow-empty", "-m", tag)
        self._run("tag", "--force", tag)

    def bring_back(self, tag: str) -> None:
        """Check out a commit's files."""
        self._run("checkout", "--quiet", tag, "--", ".")

    def _run(self, *arguments: str) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        clean |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
        clean |= {"GIT_DIR": str(self.folder), "GIT_WORK_TREE": str(self._tree)}
        who = ("-c", "user.name=bench", "-c", "user.email=bench@example.org")
        subprocess.run(["git", *who, *arguments], env=clean, cwd=self._tree, check=True, capture_output=True)


def main() -> None:
    """Print all tables."""
    home = Path(__file__).parents[1] / ".bench"
    home.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix="checkpoints-") as folder:
        for count in SIZES:
            report(Path(folder) / str(count), count)


def report(folder: Path, count: int, *, rounds: int = ROUNDS) -> None:
    """Measure a tree of `count` files, and print the results."""
    tree = folder / "tree"
    grow(tree, count)
    keepers: list[Keeper] = [Ours(folder / "ours", tree), PlainGit(folder / "plain", tree)]
    spent = {keeper.name: measured(keeper, tree, rounds) for keeper in keepers}
    ours, plain = (spent[keeper.name] for keeper in keepers)
    size = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file())
    print(f"\n{count:,} files, {size / 1e6:,.0f} MB; seconds, both with core.fsync=all")
    print(
        "a restore of ours keeps the moments before and after and waits for the disk; git checkout does not"
    )
    rows = [
        [step, f"{ours[step]:,.2f}", f"{plain[step]:,.2f}", times(ours[step] / plain[step])] for step in STEPS
    ]
    kept = [disk(keeper.folder) for keeper in keepers]
    rows.append(["disk, MB", *(f"{one / 1e6:,.1f}" for one in kept), times(kept[0] / kept[1])])
    table(["", *spent, "ratio"], rows)
    shutil.rmtree(folder)


def measured(keeper: Keeper, tree: Path, rounds: int) -> dict[str, float]:
    """Time every step; return the median of several rounds if the step can be repeated."""
    series = dict[str, list[float]]((step, []) for step in STEPS)
    series["first"].append(timed(lambda: keeper.keep("start")))
    for number in range(rounds):
        series["none changed"].append(timed(lambda: keeper.keep("same")))
        change(tree, number)
        series[f"{CHANGED} changed"].append(timed(lambda: keeper.keep("changed")))
        series[f"restore {CHANGED}"].append(timed(lambda: keeper.bring_back("start")))
    for path in tree.iterdir():
        shutil.rmtree(path)
    series["restore all"].append(timed(lambda: keeper.bring_back("start")))
    return {step: statistics.median(all_of) for step, all_of in series.items()}


def grow(tree: Path, count: int) -> None:
    """Write files like those of a project: a few thousand bytes of text each, a few dozen per folder."""
    rolled = random.Random(count)
    for number in range(count):
        folder = tree / f"part{number // (IN_A_FOLDER * 25)}" / f"module{number // IN_A_FOLDER % 25}"
        if number % IN_A_FOLDER == 0:
            folder.mkdir(parents=True)
        words = rolled.choices(WORDS, k=min(4_000, int(rolled.expovariate(1 / 400)) + 20))
        lines = (" ".join(words[start : start + 9]) for start in range(0, len(words), 9))
        (folder / f"file{number}.py").write_text(f"# {number}\n" + "\n".join(lines) + "\n")
    time.sleep(0.2)  # so that the files are older than the clock's resolution


def change(tree: Path, number: int) -> None:
    """Write other text to some files throughout the tree."""
    files = sorted(tree.rglob("*.py"))
    for path in files[number :: len(files) // CHANGED][:CHANGED]:
        path.write_text(f"# changed {number} {time.time_ns()}\n" * 60)


def timed(act: Callable[[], None]) -> float:
    """Return how long a call takes, in seconds of wall-clock time."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def disk(folder: Path) -> int:
    """Return the bytes that a folder takes on the disk, in whole blocks."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


if __name__ == "__main__":
    main()
