"""The workspace: files that tools read and write, confined to one folder.

A path is resolved one name at a time from a descriptor of the folder, and no link is followed. So neither
``..`` nor a link leads out of it, nor a folder that is swapped for a link in the meantime. A write replaces
the whole file atomically and keeps its mode. Stores, snapshots and checkpoints of Turnstate inside the folder
are not touched, and nothing is written to the ``.git`` of a repository.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .. import folder_gate
from ..errors import InputError
from ..folder_walk import FileInfo, folder_at, listed, walk
from ..shadow.work_tree import SafeTree

MAX_READ = 64_000_000
"""Maximum bytes of a file to read; a longer one is refused."""

_READING = folder_gate.READING | os.O_NOFOLLOW | os.O_NONBLOCK
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class OutsideWorkspace(InputError):
    """A path leads out of the workspace, or goes through a link."""


class WorkspaceFiles:
    """Reads and writes files below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.realpath(root))
        if not self.root.is_dir():
            raise InputError(f"the workspace {str(self.root)!r:.200} is not a folder")
        self.changing = threading.Lock()
        """Held while a tool reads a file and writes it back: the tools of a batch run concurrently."""

    def relative(self, path: str) -> str:
        """Return a path relative to the workspace; raise `OutsideWorkspace` if it leads out of it."""
        if "\0" in path:
            raise InputError("a path must not contain a NUL character")
        if not path:
            raise InputError("a path must not be empty; use . for the workspace itself")
        joined = os.path.normpath(os.path.join(self.root, path))
        inside = os.path.relpath(joined, self.root)
        if inside == os.pardir or inside.startswith(os.pardir + os.sep):
            raise OutsideWorkspace(f"{path!r:.200} is outside of the workspace {self.root}")
        return "" if inside == os.curdir else inside

    def writable(self, path: str) -> str:
        """Return a path relative to the workspace; raise `InputError` if tools must not write there.

        Who writes to ``.git`` runs programs: its hooks and its configuration name commands.
        """
        inside = self.relative(path)
        if not inside:
            raise InputError(f"{path!r:.200} is a folder; give the path of a file")
        if any(_is_of_git(name) for name in inside.split(os.sep)):
            raise InputError(
                f"{path!r:.200} belongs to git, and tools do not write there; run a git command instead"
            )
        return inside

    def read(self, path: str) -> bytes:
        """Return the bytes of a file."""
        with SafeTree.opened(self.root) as tree:
            folder, name = self._entered(tree, path)
            try:
                with folder_gate.opened(name, _READING, folder=folder) as descriptor:
                    status = os.fstat(descriptor)
                    if not stat.S_ISREG(status.st_mode):
                        raise InputError(f"{path!r:.200} is not a file")
                    if status.st_size > MAX_READ:
                        size = f"{status.st_size:,} bytes; at most {MAX_READ:,} are read"
                        raise InputError(f"{path!r:.200} has {size}")
                    with open(descriptor, "rb", closefd=False) as file:
                        return file.read(MAX_READ)
            except OSError as error:
                raise _fault(path, error) from None

    def write(self, path: str, data: bytes) -> bool:
        """Replace a file, or create it and its folders; return True if it is new."""
        relative = os.fsencode(self.writable(path))
        with SafeTree.opened(self.root) as tree:
            if refusal := tree.refusal(relative):
                raise InputError(f"{path!r:.200} cannot be written: {refusal}")
            self._make_folders(tree, path, os.path.dirname(relative))
            folder, name = self._entered(tree, path)
            mode = self._mode(path, name, folder)
            draft = f".{secrets.token_hex(8)}.tmp".encode()
            try:
                with open(os.open(draft, _NEW, 0o666, dir_fd=folder), "wb") as file:
                    if mode is not None:
                        os.fchmod(file.fileno(), mode)
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError as error:
                with suppress(OSError):
                    os.unlink(draft, dir_fd=folder)
                raise InputError(f"{path!r:.200} cannot be written: {error.strerror}") from None
            return mode is None

    def list(self, path: str = ".") -> list[FileInfo]:
        """Return what is in a folder, sorted by name; links are listed but not followed."""
        relative = self.relative(path)
        try:
            with folder_at(self.root, relative) as folder:
                return listed(folder, relative)
        except OSError as error:
            raise _fault(path, error) from None

    def walk(self, path: str = ".") -> Iterator[FileInfo]:
        """Yield the files below a folder, sorted; skip folders that no one edits, such as ``.git``."""
        relative = self.relative(path)
        try:
            with folder_at(self.root, relative) as top:
                for _, found in walk(top, relative):
                    yield from (one for one in found if one.kind == "file")
        except OSError as error:
            raise _fault(path, error) from None

    def _entered(self, tree: SafeTree, path: str) -> tuple[int, bytes]:
        """Return the descriptor of a path's folder, valid while the tree is open, and the last name."""
        folder, name = os.path.split(os.fsencode(self.relative(path)))
        try:
            return tree.enter(folder), name or b"."
        except OSError as error:
            raise _fault(path, error) from None

    def _make_folders(self, tree: SafeTree, path: str, folder: bytes) -> None:
        names = folder.split(b"/") if folder else []
        for end in range(1, len(names) + 1):
            below = b"/".join(names[:end])
            try:
                tree.enter(below)
            except FileNotFoundError:
                os.mkdir(names[end - 1], 0o777, dir_fd=tree.enter(b"/".join(names[: end - 1])))
            except OSError as error:
                raise _fault(path, error) from None

    def _mode(self, path: str, name: bytes, folder: int) -> int | None:
        """Return the permissions of the file to replace; None if it does not exist."""
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(status.st_mode):
            raise OutsideWorkspace(f"{path!r:.200} is a link, and links are not followed")
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path!r:.200} is not a file")
        return stat.S_IMODE(status.st_mode)


def _is_of_git(name: str) -> bool:
    """Return True if some file system takes a name for ``.git``, by the rules that git itself applies."""
    shown = "".join(one for one in name if unicodedata.category(one) != "Cf")  # HFS+ ignores them
    return shown.partition(":")[0].rstrip(" .").lower() in (".git", "git~1")  # NTFS ignores the rest


def _fault(path: str, error: OSError) -> InputError:
    match error:
        case FileNotFoundError():
            return InputError(f"{path!r:.200} does not exist")
        case NotADirectoryError():
            return OutsideWorkspace(f"{path!r:.200} goes through a file or a link; links are not followed")
        case _ if error.errno == errno.ELOOP:
            return OutsideWorkspace(f"{path!r:.200} is a link, and links are not followed")
        case _:
            return InputError(f"{path!r:.200} cannot be opened: {error.strerror}")
