"""The git program, run so that nothing but its arguments decides what it does.

The environment is made from nothing: no variable of the user's, no configuration but our own
repository's and what stands on the command line, no hooks, prompts, pagers or replaced objects.
Only plumbing is run, which reads neither index nor configuration of a repository in the work tree.
A process that dies takes its children's lock with it only when they are gone: they hold it open.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import BinaryIO, cast

from ..errors import CheckpointsDamaged, GitFailed, GitMissing
from .objects import object_id

__all__ = ["OLDEST", "Git", "Objects", "find_git"]

OLDEST = (2, 36)
"""The first that knows `core.fsync`, without which a checkpoint would not survive a power cut."""

_SOON = 5.0  # seconds to read a setting, which takes some milliseconds
_PATIENCE = 900.0  # seconds until git counts as hung; a first snapshot of a huge tree takes a few
_SETTINGS = {
    "core.fsync": "all",
    "core.fsyncMethod": "fsync",
    "core.compression": "1",  # the user waits for the snapshot, not for the disk space
    "core.bigFileThreshold": "16m",  # what is larger is told as binary, not compared line by line
    "core.hooksPath": "/dev/null",
    "core.attributesFile": "/dev/null",
    "core.fsmonitor": "false",
    "gc.auto": "0",
    "core.commitGraph": "false",  # we write none of these; one that is found is not ours
    "core.multiPackIndex": "false",
    "pack.writeReverseIndex": "false",
    "protocol.allow": "never",
}
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_FLUSH": "0",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}
_NEEDED = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")


class Git:
    """Git on one bare repository."""

    def __init__(
        self,
        folder: Path,
        *,
        held: Collection[int] = (),
        objects: Path | None = None,
        alone: bool = False,
    ) -> None:
        self.folder = folder
        self._program = find_git(_safe_path())
        self._held = tuple(held)
        self._objects, self._alone = objects, alone

    def apart(self, objects: Path, *, alone: bool = False) -> Git:
        """Write objects elsewhere from now on, and read those of the repository, too, unless ``alone``."""
        return Git(self.folder, held=self._held, objects=objects, alone=alone)

    @property
    def objects_folder(self) -> Path:
        """Where objects are written."""
        return self._objects or self.folder / "objects"

    def run(
        self,
        *arguments: str,
        input: bytes | BinaryIO = b"",
        work_tree: Path | None = None,
        index: Path | None = None,
        settings: dict[str, str] | None = None,
        fine: Collection[int] = (0,),
    ) -> bytes:
        """Run a command to its end and give what it said."""
        done = _ended(
            self._command(arguments, settings),
            input=input,
            env=self._environment(work_tree) | ({"GIT_INDEX_FILE": str(index)} if index else {}),
            cwd=work_tree or self.folder,
            held=self._held,
        )
        if done.returncode not in fine:
            raise self._failed(arguments[0], done.returncode, done.stderr)
        return done.stdout

    @contextmanager
    def objects(self, *, only_ask: bool = False) -> Iterator[Objects]:
        """Read objects, or ask for them, one after the other, from one process."""
        with subprocess.Popen(  # noqa: S603
            self._command(("cat-file", "--batch-check" if only_ask else "--batch"), None),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment(None) | {"GIT_FLUSH": "1"},
            cwd=self.folder,
            pass_fds=self._held,
        ) as process:
            try:
                yield Objects(process)
            except BaseException:
                process.kill()
                raise

    def users_path(self, setting: str, *, at: Path, repository: Path | None) -> Path | None:
        """Read a path from the user's own configuration as it counts in a folder; nothing takes effect.

        The repository of the folder is named, since git would open whatever is called HEAD on its search.
        """
        named = {name: os.environ[name] for name in ("HOME", "XDG_CONFIG_HOME") if name in os.environ}
        named |= {"GIT_DIR": str(repository)} if repository else {}
        command = [self._program, "config", "-z", "--type=path", "--get", setting]
        env = {"PATH": _safe_path(), "LC_ALL": "C", **named}
        done = _ended(command, env=env, cwd=at if repository else Path("/"), timeout=_SOON)
        found = os.fsdecode(done.stdout.rstrip(b"\0"))
        return at / found if done.returncode == 0 and found else None

    def _command(self, arguments: tuple[str, ...], settings: dict[str, str] | None) -> list[str]:
        chosen = _SETTINGS | (settings or {})
        options = [word for name, value in chosen.items() for word in ("-c", f"{name}={value}")]
        return [self._program, *options, *arguments]

    def _environment(self, work_tree: Path | None) -> dict[str, str]:
        environment = _ENVIRONMENT | {name: os.environ[name] for name in _NEEDED if name in os.environ}
        environment |= {"PATH": _safe_path(), "HOME": str(self.folder), "GIT_DIR": str(self.folder)}
        if work_tree is not None:
            environment["GIT_WORK_TREE"] = str(work_tree)
        if self._objects is not None:
            environment["GIT_OBJECT_DIRECTORY"] = str(self._objects)
            if not self._alone:
                environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _quoted(self.folder / "objects")
        return environment

    def _failed(self, command: str, code: int, stderr: bytes) -> GitFailed:
        said = stderr.decode(errors="replace").strip()
        last = said.splitlines()[-1] if said else f"it ended with {code}"
        return GitFailed(f"git {command} failed in {self.folder}: {last}", stderr=said)


class Objects:
    """A running `cat-file`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._asking, self._answering = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)

    def read(self, name: str) -> bytes:
        """Return the content of an object; raise CheckpointsDamaged unless it is what its name says."""
        head = self._asked(name)
        if len(head) != 3:
            raise CheckpointsDamaged(f"object {name} is missing, or cannot be read")
        size = int(head[2])
        data = self._answering.read(size + 1)
        if len(data) != size + 1 or object_id(head[1].decode(), data[:-1]) != name:
            raise CheckpointsDamaged(f"object {name} is damaged")
        return data[:-1]

    def has(self, name: str) -> bool:
        """Tell whether there is such an object, where that was all to be asked."""
        return len(self._asked(name)) == 3

    def _asked(self, name: str) -> list[bytes]:
        try:
            self._asking.write(name.encode() + b"\n")
            self._asking.flush()
        except BrokenPipeError:
            return []
        return self._answering.readline().split()


@cache
def find_git(path: str) -> str:
    """Find a git program that is new enough."""
    program = shutil.which("git", path=path)
    if program is None:
        raise GitMissing("there is no git program on the PATH; install git to have checkpoints")
    try:
        said = _ended(
            [program, "--version"], env=_ENVIRONMENT | {"PATH": path}, cwd=Path("/")
        ).stdout.decode()
    except GitFailed as error:
        raise GitMissing(f"{program} cannot be run: {error}") from error
    version = re.search(r"(\d+)\.(\d+)", said)
    if version is None or tuple(map(int, version.groups())) < OLDEST:
        raise GitMissing(f"{program} is {said.strip()}; checkpoints need {OLDEST[0]}.{OLDEST[1]} or newer")
    return program


def _ended(
    command: list[str],
    *,
    env: dict[str, str],
    cwd: Path,
    input: bytes | BinaryIO = b"",
    held: tuple[int, ...] = (),
    timeout: float = _PATIENCE,
) -> subprocess.CompletedProcess[bytes]:
    """Run git to its end, however it ends."""
    try:
        return subprocess.run(  # noqa: S603
            command,
            input=input if isinstance(input, bytes) else None,
            stdin=None if isinstance(input, bytes) else input,
            capture_output=True,
            env=env,
            cwd=cwd,
            pass_fds=held,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise GitFailed(f"git did not end in {timeout:.0f} s: {shlex.join(command)}") from error
    except OSError as error:
        raise GitFailed(f"git cannot be run in {cwd}: {error}") from error


def _safe_path() -> str:
    """Leave out of the PATH what is relative: it would find programs in the work tree."""
    parts = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(part for part in parts if os.path.isabs(part))


def _quoted(path: Path) -> str:
    """Write a path for a list that is separated by colons."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'
