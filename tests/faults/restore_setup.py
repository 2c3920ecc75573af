"""A work tree whose restore needs every kind of step, and a process that is about to run it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.harness.programs import environment, program
from turnstate.checkpoints import ShadowRepository
from turnstate.own_files import APPLICATION

STORE = f"SQLite format 3\0{'':\0<52}{APPLICATION.to_bytes(4, 'big').decode()}"
"""The first bytes of a store. No restore may touch such a file."""
SECRET = "ignored when the restore begins, and not by the rules that it brings back"
State = dict[str, tuple[int, bytes]]


class Worker:
    """A process that waits before an operation on checkpoints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def begin(self) -> None:
        """Let the process continue."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        """Return its next line, or an empty text if it died."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def finishes(self) -> bool:
        """Let the process continue; return True if it finished."""
        self.begin()
        return self.hear() == "done"

    def kill(self) -> list[str]:
        """Kill the process and the git that it may have started; return its last lines."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        words = list[str]()
        while word := self.hear():
            words.append(word)
        return words


@contextmanager
def worker(operation: str, shadow: Path, tree: Path, plant: str = "") -> Iterator[Worker]:
    """Start a process that waits right before the operation."""
    command = program("tests.faults.restore_process", operation, shadow, tree, plant)
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment(), start_new_session=True, cwd="/", **pipes) as process:
        started = Worker(process)
        try:
            assert started.hear() == "ready"
            yield started
        finally:
            process.kill()


def write(tree: Path, name: str, content: str, mode: int = 0o644) -> None:
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(mode)


def state(tree: Path) -> State:
    found = State()
    for path in sorted(tree.rglob("*")):
        mode = path.lstat().st_mode
        content = (
            os.readlink(path).encode() if path.is_symlink() else b"" if path.is_dir() else path.read_bytes()
        )
        found[str(path.relative_to(tree))] = (mode, content)
    return found


class RestoreSetup:
    """The state before a restore; each run starts from a copy of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run, self.template = folder, folder / "run", folder / "template"
        self.tree, self.shadow = tree, shadow = self.run / "tree", self.run / "shadow"
        write(tree, ".gitignore", "*.ignored\n")
        write(tree, "same", "same")
        write(tree, "changed", "old", 0o640)
        write(tree, "gone/away", "old")
        write(tree, "was/folder", "old")
        write(tree, "was-file", "old")
        write(tree, "mode", "x", 0o755)
        write(tree, "agent.db", STORE + "old")
        write(tree, "mine", "not ignored yet")
        os.symlink("old", tree / "link")
        kept = ShadowRepository.open(shadow, tree)
        kept.snapshot("0")
        write(tree, "changed", "new", 0o600)
        shutil.rmtree(tree / "gone")
        shutil.rmtree(tree / "was")
        write(tree, "was", "a file now")
        (tree / "was-file").unlink()
        write(tree, "was-file/x", "a folder now")
        write(tree, "newer/file", "new")
        write(tree, "agent.db", STORE + "new")
        write(tree, "agent.db-wal", "never touched")
        (tree / "mode").chmod(0o700)
        (tree / "link").unlink()
        os.symlink("new", tree / "link")
        write(tree, "mine.ignored", "never touched")
        write(tree, ".gitignore", "*.ignored\nmine\n")
        write(tree, "mine", SECRET)
        kept.snapshot("1")
        write(tree, "changed", "newest", 0o600)  # in no snapshot when the restore begins
        self.before = state(tree)
        shutil.copytree(self.run, self.template, symlinks=True)

    def begin(self) -> tuple[Path, Path]:
        """Reset everything, at the path that the checkpoints name."""
        shutil.rmtree(self.run, ignore_errors=True)
        shutil.copytree(self.template, self.run, symlinks=True)
        return self.shadow, self.tree

    def target(self) -> State:
        """Return the files after a restore without a fault."""
        shadow, tree = self.begin()
        ShadowRepository.open(shadow, tree).restore("0", hard=True)
        return state(tree)


def leaked(shadow: Path) -> bool:
    """Return True if an object of the shadow repository holds a file that the user ignores."""
    command = ["git", "--git-dir", str(shadow / "repository"), "cat-file", "--batch-all-objects", "--batch"]
    return SECRET.encode() in subprocess.run(command, capture_output=True, check=True).stdout


def torn(before: State, now: State, target: State) -> Iterator[str]:
    """Yield files that have neither their old nor their new content."""
    for path, thing in now.items():
        name = path.rpartition("/")[2]
        if name.startswith(".turnstate-restoring-") or thing[0] & 0o170000 == 0o040000:
            continue
        if thing not in (before.get(path), target.get(path)):
            yield f"{path} is torn: {thing}"
    for path, thing in before.items():
        if target.get(path) == thing and now.get(path) != thing:
            yield f"{path} was touched"
