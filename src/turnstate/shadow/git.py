"""Runs git so that only the arguments decide what it does, and encodes git objects.

The environment is built from scratch: no variables of the user except the few that programs need to run,
no configuration except our repository's own and the command line, no hooks, prompts, pagers or replaced
objects. Only plumbing commands run; they read the index or the configuration of a repository in the work
tree only where a method here asks for it. Every git process inherits the lock, so the repository stays
locked if git outlives us. One long-running process answers all queries about objects.

New objects are written as one pack that is synced once; loose objects would each need their own sync. We
read the files ourselves, so no filter, line-ending conversion or odd name can interfere. `index-pack`
checks the pack and stores it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import resource
import shlex
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import BinaryIO, Self

from msgspec import Struct

from .. import files
from ..errors import CheckpointError, CheckpointsBusy, CheckpointsDamaged, GitFailed, GitMissing

OLDEST = (2, 36)
"""The first version with `core.fsync`, without which a checkpoint would not survive a power cut, and with
`cat-file --batch-command`."""

_CONFIG_SECONDS = 5.0  # reading a setting takes a few milliseconds
_LOCK_SECONDS = 30.0  # a snapshot takes less
_DESCRIPTORS = 100  # a restore syncs 64 files at once; git, its pipes and the folders on the way need a dozen
_MAX_SECONDS = 900.0  # after that git counts as hung; the first snapshot of a huge tree takes a few
_SETTINGS = {
    "core.fsync": "all",
    "core.fsyncMethod": "fsync",
    "core.compression": "1",  # speed matters more than disk space: the user waits for the snapshot
    "core.bigFileThreshold": "16m",  # larger files count as binary and are not compared line by line
    "core.hooksPath": "/dev/null",
    "core.attributesFile": "/dev/null",
    "core.fsmonitor": "false",
    "gc.auto": "0",
    "core.commitGraph": "false",  # we never write this file or the next two; if one exists, it is not ours
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
COMMIT, TREE, BLOB = "commit", "tree", "blob"
FILE, EXECUTABLE, LINK, FOLDER = b"100644", b"100755", b"120000", b"40000"
AROUND = "kind around"
"""The header of a snapshot taken before or after a restore."""

_NUMBERS = {COMMIT: 1, TREE: 2, BLOB: 3}
_FAST = 1
_CHUNK = 1 << 20
_AUTHOR = "Turnstate <turnstate@localhost>"


def _check_descriptors() -> None:
    """Raise CheckpointError if this process cannot open as many files as an operation may need at once.

    In the middle of one, a file that cannot be opened would be taken for missing or damaged.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        left = most - len(os.listdir("/dev/fd"))
    except FileNotFoundError:  # a system that does not list them
        return
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        left = 0
    if most != resource.RLIM_INFINITY and left < _DESCRIPTORS:
        raise CheckpointError(
            f"checkpoints may need {_DESCRIPTORS} files open at once, and this process can open only "
            f"{left} more; nothing was changed; close some, or raise `ulimit -n`"
        )


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Lock a shadow repository; the lock lasts until the last process that holds it closes it or exits."""
    _check_descriptors()
    try:
        lock = files.lock(folder / "lock", seconds=_LOCK_SECONDS)
    except files.LockTimeout:
        raise CheckpointsBusy(
            f"another process is using the checkpoints in {folder}; try again when it has finished"
        ) from None
    except OSError as error:
        raise CheckpointsDamaged(
            f"{folder} holds no checkpoints that can be locked: {error}; "
            "`turnstate checkpoint clean SESSION` removes them"
        ) from error
    try:
        yield lock
    finally:
        files.unlock(lock)


class Git:
    """Runs git on one bare repository; leaving its `with` block stops the process that reads ``objects``."""

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
        self.objects = Objects(self._start_reading)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.objects.close()

    def apart(self, objects: Path, *, alone: bool = False) -> Git:
        """Return a Git that writes objects elsewhere; it also reads the repository's, unless ``alone``."""
        return Git(self.folder, held=self._held, objects=objects, alone=alone)

    @property
    def objects_folder(self) -> Path:
        """The folder that objects are written to."""
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
        """Run a command and return its output. Raise GitFailed for an exit code that is not ``fine``."""
        done = _completed(
            self._command(arguments, settings),
            input=input,
            env=self._environment(work_tree) | ({"GIT_INDEX_FILE": str(index)} if index else {}),
            cwd=work_tree or self.folder,
            held=self._held,
        )
        if done.returncode not in fine:
            raise self._failed(arguments[0], done.returncode, done.stderr)
        return done.stdout

    def users_path(self, setting: str, *, at: Path, repository: Path | None) -> Path | None:
        """Return a path from the user's own git configuration for a folder; no setting takes effect.

        The caller passes the repository, because git's own search for it would open any file called HEAD.
        """
        named = {name: os.environ[name] for name in ("HOME", "XDG_CONFIG_HOME") if name in os.environ}
        named |= {"GIT_DIR": str(repository)} if repository else {}
        command = [self._program, "config", "-z", "--type=path", "--get", setting]
        env = {"PATH": _safe_path(), "LC_ALL": "C", **named}
        done = _completed(command, env=env, cwd=at if repository else Path("/"), timeout=_CONFIG_SECONDS)
        found = os.fsdecode(done.stdout.rstrip(b"\0"))
        return at / found if done.returncode == 0 and found else None

    def _start_reading(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603
            self._command(("cat-file", "--batch-command"), None),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment(None),
            cwd=self.folder,
            pass_fds=self._held,
        )

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
        text = stderr.decode(errors="replace").strip()
        last = text.splitlines()[-1] if text else f"exit code {code}"
        return GitFailed(f"git {command} failed in {self.folder}: {last}", stderr=text)


class Objects:
    """Reads the objects of a repository through one git process, which starts with the first query."""

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        self._start = start
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, name: str) -> bytes:
        """Return the content of an object. Raise CheckpointsDamaged if it is missing or its id differs."""
        return self.read_typed(name)[1]

    def read_typed(self, name: str) -> tuple[str, bytes]:
        """Return the kind and the content of an object, as `read` does."""
        header, data = self._ask("contents", name)
        if len(header) != 3:
            raise CheckpointsDamaged(f"object {name} is missing, or cannot be read")
        kind = header[1].decode()
        if len(data) != int(header[2]) or object_id(kind, data) != name:
            raise CheckpointsDamaged(f"object {name} is damaged")
        return kind, data

    def has(self, name: str) -> bool:
        """Return True if the object exists."""
        return len(self._ask("info", name)[0]) == 3

    def close(self) -> None:
        """Stop the process; the next query starts another."""
        process, self._process = self._process, None
        if process is not None:
            with process:
                process.kill()

    def _ask(self, command: str, name: str) -> tuple[list[bytes], bytes]:
        """Return the header fields and the content of a reply; git exits at an object that it cannot read."""
        self._process = self._process or self._start()
        asking, answering = self._process.stdin, self._process.stdout
        assert asking is not None  # noqa: S101
        assert answering is not None  # noqa: S101
        header, data, is_complete = list[bytes](), b"", False
        try:
            os.write(asking.fileno(), f"{command} {name}\n".encode())
            header = answering.readline().split()
            size = int(header[2]) + 1 if command == "contents" and len(header) == 3 else 0
            data = answering.read(size)
            is_complete = bool(header) and len(data) == size
        except (BrokenPipeError, MemoryError, OverflowError):
            pass  # git has exited; or the object is damaged, and the size in its header is absurd
        finally:
            if not is_complete:
                self.close()
        return header, data[:-1]


@cache
def find_git(path: str) -> str:
    """Return the path of git. Raise GitMissing if it is missing or too old."""
    program = shutil.which("git", path=path)
    if program is None:
        raise GitMissing("there is no git on the PATH; install git to use checkpoints")
    try:
        said = _completed(
            [program, "--version"], env=_ENVIRONMENT | {"PATH": path}, cwd=Path("/")
        ).stdout.decode()
    except GitFailed as error:
        raise GitMissing(f"{program} cannot be run: {error}") from error
    version = re.search(r"(\d+)\.(\d+)", said)
    if version is None or tuple(map(int, version.groups())) < OLDEST:
        raise GitMissing(f"{program} is {said.strip()}; checkpoints need {OLDEST[0]}.{OLDEST[1]} or newer")
    return program


def _completed(
    command: list[str],
    *,
    env: dict[str, str],
    cwd: Path,
    input: bytes | BinaryIO = b"",
    held: tuple[int, ...] = (),
    timeout: float = _MAX_SECONDS,
) -> subprocess.CompletedProcess[bytes]:
    """Run git and return its result, regardless of the exit code."""
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
        raise GitFailed(f"git did not finish within {timeout:.0f} s: {shlex.join(command)}") from error
    except OSError as error:
        raise GitFailed(f"git cannot be run in {cwd}: {error}") from error


def _safe_path() -> str:
    """Return the PATH without its relative entries, which would find programs in the work tree."""
    parts = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(part for part in parts if os.path.isabs(part))


def _quoted(path: Path) -> str:
    """Quote a path for a colon-separated list."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


class Leaf(Struct, frozen=True, gc=False):
    """One entry of a tree object."""

    name: bytes
    mode: bytes
    id: str


def object_id(kind: str, data: bytes) -> str:
    """Return the git id of an object."""
    digest = hashlib.sha1(b"%b %d\0" % (kind.encode(), len(data)), usedforsecurity=False)
    digest.update(data)
    return digest.hexdigest()


def tree(leaves: Iterable[Leaf]) -> bytes:
    """Return a tree object; git sorts a folder as if its name ended in a slash."""
    in_order = sorted(leaves, key=lambda leaf: leaf.name + b"/" if leaf.mode == FOLDER else leaf.name)
    return b"".join(b"%b %b\0%b" % (leaf.mode, leaf.name, bytes.fromhex(leaf.id)) for leaf in in_order)


def commit(
    root: str, *, parents: Iterable[str], seconds: int, message: str, checkpoint: bool = True
) -> bytes:
    """Return a commit object; if it is not a checkpoint, an extra header says so."""
    when = f"{_AUTHOR} {seconds} +0000"
    lines = [f"tree {root}", *(f"parent {parent}" for parent in parents)]
    lines += [f"author {when}", f"committer {when}", *([] if checkpoint else [AROUND])]
    text = "\n".join([*lines, "", message.replace("\0", " ")])
    return text.encode("utf-8", "replace") + b"\n"


class Pack:
    """New objects for a repository, in an unnamed temporary file."""

    def __init__(self, folder: os.PathLike[str]) -> None:
        self._file: BinaryIO = TemporaryFile(dir=folder)  # noqa: SIM115
        self._file.write(bytes(12))
        self._ids = set[str]()

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def add(self, kind: str, data: bytes, id: str = "") -> str:
        """Add an object unless the pack already has it, and return its id."""
        id = id or object_id(kind, data)
        if id not in self._ids:
            self._ids.add(id)
            self._file.write(_head(_NUMBERS[kind], len(data)))
            self._file.write(zlib.compress(data, _FAST))
        return id

    def finished(self) -> BinaryIO:
        """Complete the pack and return its file, positioned at the start."""
        self._file.seek(0)
        self._file.write(b"PACK" + struct.pack(">II", 2, len(self._ids)))
        self._file.seek(0)
        digest = hashlib.sha1(usedforsecurity=False)
        while chunk := self._file.read(_CHUNK):
            digest.update(chunk)
        self._file.write(digest.digest())
        self._file.flush()
        os.lseek(self._file.fileno(), 0, os.SEEK_SET)  # git reads the descriptor, not the buffer
        return self._file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: object, ___: TracebackType | None) -> None:
        self._file.close()


def _head(number: int, size: int) -> bytes:
    """Return the header of a packed object: its kind and four bits of its size, then seven bits per byte."""
    written, byte = bytearray(), (number << 4) | (size & 0x0F)
    size >>= 4
    while size:
        written.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    written.append(byte)
    return bytes(written)
