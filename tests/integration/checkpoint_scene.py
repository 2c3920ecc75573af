"""Work trees to make checkpoints of, and what stands in them, told exactly."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import NamedTuple

from turnstate.checkpoints import ShadowRepository

Trees = dict[bytes, tuple[int, bytes]]


def state(folder: Path) -> Trees:
    """Return the mode and the bytes of everything in a folder, links as links, `.git` included."""
    found = Trees()
    top = os.fsencode(folder)
    for above, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(above, name)
            found[os.path.relpath(path, top)] = _thing(path)
    return found


def _thing(path: bytes) -> tuple[int, bytes]:
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return mode, os.readlink(path)
    return mode, Path(os.fsdecode(path)).read_bytes() if stat.S_ISREG(mode) else b""


def git(folder: Path, *arguments: str) -> str:
    """Run git as a user would, without the configuration of this machine."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    clean |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=u", "-c", "user.email=u@example.org")
    done = subprocess.run(["git", *who, *arguments], cwd=folder, env=clean, capture_output=True, check=True)
    return os.fsdecode(done.stdout)


def write(folder: Path, name: str, content: str | bytes = "", mode: int = 0o644) -> Path:
    """Write a file and the folders that it stands in."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(mode)
    return path


class Scene(NamedTuple):
    """A work tree, and the folder for its checkpoints."""

    tree: Path
    shadow: Path

    def open(self, **options: object) -> ShadowRepository:
        return ShadowRepository.open(self.shadow, self.tree, **options)

    def kept(self, name: str = "refs/heads/history") -> set[bytes]:
        """Name the files that a snapshot holds."""
        said = self.git("ls-tree", "-r", "-z", "--name-only", f"{name}:files")
        return {os.fsencode(path) for path in said.split("\0")[:-1]}

    def git(self, *arguments: str) -> str:
        """Look into the shadow repository."""
        return git(self.shadow, "--git-dir", str(self.shadow / "repository"), *arguments)


def scene(folder: Path) -> Scene:
    """Make an empty work tree."""
    (folder / "work").mkdir()
    return Scene(folder / "work", folder / "home" / "checkpoints" / "one")
