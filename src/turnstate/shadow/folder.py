"""Erasing the checkpoints of a conversation: every copy of a file that they hold goes, or it is told.

Nothing in them is read, so it works whatever their condition is.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec

from .. import files
from ..errors import CheckpointError, CheckpointsBusy, CheckpointsDamaged, NewerFormat, WorkTreeRefused
from ..home import Home

__all__ = [
    "ASIDE",
    "HISTORY",
    "About",
    "checked_work_tree",
    "copy_aside",
    "discard",
    "erase",
    "folder_for",
    "is_in_repository",
    "lay_out",
    "locked",
    "make",
    "open_up",
    "read_about",
    "remove",
    "set_aside",
    "sweep",
    "write_about",
]

# The folder of a shadow repository: made whole or not at all, locked at work, swept after a crash.


ASIDE = "damaged"
"""The folder that damaged files are moved to."""


HISTORY = "refs/heads/history"
"""The newest checkpoint; the first parents of it are the checkpoints before."""

_FORMAT = 1
_PACKED = re.compile(r"[0-9a-f]{40} refs/(?:heads|tags|restores|rules|was)/[A-Za-z0-9._-]+")
_LOCK_SECONDS = 30.0  # seconds to wait for another process; a snapshot takes less
_FILES = {
    "HEAD": b"ref: " + HISTORY.encode() + b"\n",
    "config": b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tlogAllRefUpdates = false\n",
    "info/attributes": b"* -text -eol -ident -filter -working-tree-encoding\n",
    "info/exclude": b"",
}
_OURS = {
    "": {"HEAD", "config", "info", "objects", "refs"},
    "info": {"attributes", "exclude"},
    "objects/info": set[str](),
}
_PLAIN = ("packs", "stamps", "intent.lock")  # files beside the repository that are made anew if missing
_PASSING = ("rules-", "live-")  # how the names of folders begin that come and go
_FOLDERS = ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info")


class About(msgspec.Struct, frozen=True, kw_only=True):
    """Whose checkpoints these are."""

    format: int = _FORMAT
    work_tree: bytes
    tenant: str = ""
    session: str = ""


def make(folder: Path, about: About) -> None:
    """Make a shadow repository, on the disk and whole before it has its name; of two at once, one wins."""
    files.make_folder(folder.parent)
    draft = folder.parent / f".{folder.name}.{secrets.token_hex(8)}.tmp"
    contents = {f"repository/{name}": data for name, data in _FILES.items()} | {"lock": b""}
    contents["about.json"] = msgspec.json.encode(about)
    try:
        for name in _FOLDERS:
            files.make_folder(draft / "repository" / name)
        for name, data in contents.items():
            with files.open_folder((draft / name).parent) as descriptor:
                files.write_new(Path(name).name, data, folder=descriptor)
        for one in sorted({(draft / name).parent for name in contents}):
            files.sync_folder(one)
        os.rename(draft, folder)  # fails where another one stands, since that is not empty
        files.sync_folder(folder.parent)
    except OSError as error:
        if (folder / "about.json").exists():
            return
        raise CheckpointError(
            f"no checkpoints can be kept in {folder}: {error}; if something else is there, move it away, "
            "or remove it (`turnstate checkpoint clean SESSION`)"
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def read_about(folder: Path) -> About:
    """Read whose checkpoints stand in a folder."""
    try:
        about = msgspec.json.decode((folder / "about.json").read_bytes(), type=About)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointsDamaged(
            f"{folder} holds no checkpoints that can be read: about.json, which names the work tree, is "
            f"damaged ({error}); name the work tree and force it (--work-tree DIR --force), or remove the "
            "checkpoints (`turnstate checkpoint clean SESSION`)"
        ) from error
    if about.format > _FORMAT:
        raise NewerFormat(f"the checkpoints in {folder} were written by a newer Turnstate; update this one")
    return about


def write_about(folder: Path, about: About) -> None:
    """Say anew whose checkpoints stand in a folder."""
    files.replace(folder / "about.json", msgspec.json.encode(about))


def lay_out(folder: Path) -> list[str]:
    """Write anew what is the same in every shadow repository, and say what was not there as it should be."""
    repository, found = folder / "repository", list[str]()
    for path in (folder / name for name in _PLAIN):
        if path.is_dir():
            found.append(f"{path.name} is not a file")
            set_aside(folder, path)
    for path in (repository, *(repository / name for name in _FOLDERS)):
        if path.is_dir():
            continue
        found.append(f"{path.relative_to(folder)} is no folder")
        set_aside(folder, path)
        files.make_folder(path)
    for name, data in _FILES.items():
        if _read(repository / name) != data:
            found.append(f"{(repository / name).relative_to(folder)} is damaged")
            set_aside(folder, repository / name)
            files.replace(repository / name, data)
    _unpack_references(repository)
    for name, ours in _OURS.items():
        for path in (repository / name).iterdir():
            if path.name not in ours and not path.name.startswith(_PASSING):
                found.append(f"{path.relative_to(folder)} is not ours")
                set_aside(folder, path)
    return found


def set_aside(folder: Path, path: Path) -> None:
    """Move something out of the way that is not ours or not what it was, if it is there."""
    if os.path.lexists(path):
        files.make_folder(folder / ASIDE)
        os.rename(path, folder / ASIDE / f"{path.name}.{secrets.token_hex(4)}")


def copy_aside(folder: Path, path: Path) -> None:
    """Keep a damaged file aside, by a second name, while it stays where it is."""
    files.make_folder(folder / ASIDE)
    aside = folder / ASIDE / f"{path.name}.{secrets.token_hex(4)}"
    try:
        os.link(path, aside, follow_symlinks=False)
    except OSError:  # a file system without second names
        shutil.copy2(path, aside, follow_symlinks=False)


def _unpack_references(repository: Path) -> None:
    """Make files of references that somebody has packed: each is checked by itself here."""
    for line in (_read(repository / "packed-refs") or b"").decode(errors="replace").splitlines():
        id, _, name = line.partition(" ")
        path = repository / name
        if _PACKED.fullmatch(line) and not path.exists():
            files.make_folder(path.parent)
            files.replace(path, id.encode() + b"\n")


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Lock a shadow repository; the lock is released when its last holder ends, killed or not."""
    try:
        lock = files.lock(folder / "lock", seconds=_LOCK_SECONDS)
    except files.LockTimeout:
        raise CheckpointsBusy(
            f"another process is at work on the checkpoints in {folder}; try again after it"
        ) from None
    except OSError as error:
        raise CheckpointsDamaged(
            f"{folder} holds no checkpoints that can be locked: {error}; "
            "`turnstate checkpoint clean SESSION` removes them"
        ) from error
    try:
        yield lock
    finally:
        os.close(lock)


def sweep(folder: Path) -> None:
    """Remove what a killed process left half done; only the holder of the lock may."""
    repository = folder / "repository"
    packs = repository / "objects" / "pack"
    left = [*repository.glob("*.lock"), *(repository / "refs").rglob("*.lock"), *packs.glob("tmp_*")]
    left += [index for index in packs.glob("pack-*.idx") if not index.with_suffix(".pack").exists()]
    left += [*repository.glob("objects/tmp_*"), *folder.glob("*.tmp"), *repository.glob("*.tmp")]
    for path in left:
        if not path.is_dir():
            path.unlink(missing_ok=True)
    doomed = folder.parent.glob(f".{glob.escape(folder.name)}.*.tmp")
    for path in (*repository.glob("rules-*"), *repository.glob("live-*"), *doomed):
        shutil.rmtree(path, ignore_errors=True)


def remove(folder: Path) -> int:
    """Remove a shadow repository, unusable from the first moment on; say how many bytes it had."""
    if not folder.is_dir() or folder.is_symlink():
        size = folder.lstat().st_size
        folder.unlink()
        return size
    open_up(folder)
    size = sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
    doomed = folder.parent / f".{folder.name}.{secrets.token_hex(8)}.tmp"
    os.rename(folder, doomed)
    files.sync_folder(folder.parent)
    shutil.rmtree(doomed, ignore_errors=True)
    return size


def open_up(folder: Path) -> None:
    """Let ourselves into folders and files that are closed to us, where they are ours."""
    waiting = [folder] if folder.is_dir() else []
    while waiting:
        path = waiting.pop()
        with suppress(OSError):  # it is somebody else's, and whoever needs it will say so
            is_folder = path.is_dir()
            if not os.access(path, os.R_OK | (os.W_OK | os.X_OK if is_folder else 0)):
                path.chmod(path.stat().st_mode | (files.FOLDER_MODE if is_folder else files.FILE_MODE))
            waiting += [one for one in path.iterdir() if not one.is_symlink()] if is_folder else []


# Where checkpoints are kept, outside of all work trees, and where they are expected, inside of a Git one.


def folder_for(home: Home, tenant: str, conversation: str) -> Path:
    """Give the folder of a conversation's checkpoints; any id makes a harmless name."""
    digest = hashlib.sha256(f"{len(tenant)}:{tenant}{conversation}".encode()).hexdigest()
    return home.path / "checkpoints" / digest[:40]


def is_in_repository(work_tree: Path) -> bool:
    """Tell whether a folder lies in somebody's Git repository."""
    real = Path(os.path.realpath(work_tree))
    return any(os.path.lexists(folder / ".git") for folder in (real, *real.parents))


def erase(home: Home, tenant: str, conversation: str) -> bool:
    """Remove a shadow repository, and what an earlier removal left of it; tell whether there was one."""
    return discard(home, tenant, conversation) is not None


def discard(home: Home, tenant: str, conversation: str) -> int | None:
    """Remove a shadow repository as `erase` does; return its bytes, or None if there was none."""
    folder = folder_for(home, tenant, conversation)
    size = None
    try:
        if os.path.lexists(folder):
            size = _removed(folder)
        for left in folder.parent.glob(f".{glob.escape(folder.name)}.*.tmp"):
            size = size or 0
            shutil.rmtree(left)
    except OSError as error:
        raise CheckpointError(
            f"the checkpoints of {conversation:.80} in {folder} could not be erased: {error}; "
            "remove that folder by hand"
        ) from error
    return size


def _removed(folder: Path) -> int:
    with ExitStack() as stack:
        with suppress(CheckpointsDamaged):  # nobody can be at work on what cannot be locked
            stack.enter_context(locked(folder))
        return remove(folder)


# Which folders checkpoints are made of, and which are refused, and why.


def checked_work_tree(work_tree: Path, folder: Path, *, force: bool) -> Path:
    """Give the real path of a folder that checkpoints can be made of."""
    try:
        real = work_tree.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise WorkTreeRefused(f"{work_tree} cannot be used: {error}") from error
    if not real.is_dir():
        raise WorkTreeRefused(f"{work_tree} is not a folder")
    shadow = folder.resolve()
    if real == shadow or shadow in real.parents:
        raise WorkTreeRefused(f"{real} is inside of {shadow}, where the checkpoints are kept; work elsewhere")
    if not force:
        _refuse_too_much(real)
    return real


def _refuse_too_much(real: Path) -> None:
    if real == Path(real.anchor):
        raise WorkTreeRefused(
            f"{real} is the whole machine, and a restore would reach all of it; start in a project"
        )
    homes = {Path(home).resolve() for home in (os.path.expanduser("~"), os.environ.get("HOME", "")) if home}
    if real in homes:
        raise WorkTreeRefused(
            f"{real} is a home folder, and a restore would reach all of it; start in a project"
        )
    if above := next((home for home in homes if real in home.parents), None):
        raise WorkTreeRefused(
            f"{real} holds the home folder {above}, and a restore would reach it; start in a project"
        )
