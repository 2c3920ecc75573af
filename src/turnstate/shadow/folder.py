"""The folder of a shadow repository: layout, cleanup after a crash, and removal.

A folder is created completely or not at all. A process that opens it, or finds that files in it have
changed, cleans up after crashed processes and rewrites the files that are the same in every repository.
Removal reads no file in the folder, so it works even on a damaged one: it removes every copy of a file, or
raises an error.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import secrets
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from .. import files, folder_gate
from ..errors import CheckpointError, CheckpointsDamaged, NewerFormat, WorkTreeRefused
from ..home import Home
from .git import locked

ASIDE = "damaged"
"""The folder that damaged files are moved to."""


HISTORY = "refs/heads/history"
"""The newest checkpoint; following first parents leads to the earlier ones."""

_FORMAT = 1
_PACKED = re.compile(r"[0-9a-f]{40} refs/(?:heads|tags|restores|rules|was)/[A-Za-z0-9._-]+")
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
_PLAIN = ("packs", "stamps", "intent.lock")  # files beside the repository that are rewritten if missing
_TEMPORARY = ("rules-", "live-")  # prefixes of temporary folders
_FOLDERS = ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info")


class About(Struct, frozen=True, kw_only=True):
    """The owner of the checkpoints: the work tree, and the tenant and session of the conversation."""

    format: int = _FORMAT
    work_tree: bytes
    tenant: str = ""
    session: str = ""


def make(folder: Path, about: About) -> None:
    """Create a shadow repository, complete and durable before it gets its name; in a race, one call wins."""
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
        os.rename(draft, folder)  # fails if the folder exists, since it is not empty
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
    """Return the owner of the checkpoints in a folder."""
    try:
        about = msgspec.json.decode(folder_gate.read_bytes(folder / "about.json"), type=About)
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
    """Replace the record of the owner of the checkpoints in a folder."""
    files.replace(folder / "about.json", msgspec.json.encode(about))


def repair_layout(folder: Path) -> list[str]:
    """Rewrite the files that are the same in every shadow repository; return what was missing or damaged."""
    repository, found = folder / "repository", list[str]()
    for path in (folder / name for name in _PLAIN):
        if path.is_dir():
            found.append(f"{path.name} is not a file")
            set_aside(folder, path)
    for path in (repository, *(repository / name for name in _FOLDERS)):
        if path.is_dir():
            continue
        found.append(f"{path.relative_to(folder)} is not a folder")
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
            if path.name not in ours and not path.name.startswith(_TEMPORARY):
                found.append(f"{path.relative_to(folder)} does not belong there")
                set_aside(folder, path)
    return found


def set_aside(folder: Path, path: Path) -> None:
    """Move a foreign or damaged file or folder to the folder of damaged files, if it exists."""
    if os.path.lexists(path):
        files.make_folder(folder / ASIDE)
        os.rename(path, folder / ASIDE / f"{path.name}.{secrets.token_hex(4)}")


def copy_aside(folder: Path, path: Path) -> None:
    """Copy a damaged file to the folder of damaged files, by a hard link if possible."""
    files.make_folder(folder / ASIDE)
    aside = folder / ASIDE / f"{path.name}.{secrets.token_hex(4)}"
    try:
        os.link(path, aside, follow_symlinks=False)
    except OSError:  # a file system without hard links
        shutil.copy2(path, aside, follow_symlinks=False)


def _unpack_references(repository: Path) -> None:
    """Write packed references as one file each, because they are checked one by one."""
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


def sweep(folder: Path) -> None:
    """Remove unfinished files of a crashed process; the caller must hold the lock."""
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
    """Remove a shadow repository and return its size in bytes; a rename makes it unusable immediately."""
    if not folder.is_dir() or folder.is_symlink():
        size = folder.lstat().st_size
        folder.unlink()
        return size
    make_accessible(folder)
    size = sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
    doomed = folder.parent / f".{folder.name}.{secrets.token_hex(8)}.tmp"
    os.rename(folder, doomed)
    files.sync_folder(folder.parent)
    shutil.rmtree(doomed, ignore_errors=True)
    return size


def make_accessible(folder: Path) -> None:
    """Make our own files and folders readable and writable for us."""
    waiting = [folder] if folder.is_dir() else []
    while waiting:
        path = waiting.pop()
        with suppress(OSError):  # another user owns it; the code that needs it reports that
            is_folder = path.is_dir()
            if not os.access(path, os.R_OK | (os.W_OK | os.X_OK if is_folder else 0)):
                path.chmod(path.stat().st_mode | (files.FOLDER_MODE if is_folder else files.FILE_MODE))
            waiting += [one for one in path.iterdir() if not one.is_symlink()] if is_folder else []


def folder_for(home: Home, tenant: str, conversation: str) -> Path:
    """Return the folder of a conversation's checkpoints; any id gives a safe name."""
    digest = hashlib.sha256(f"{len(tenant)}:{tenant}{conversation}".encode()).hexdigest()
    return home.path / "checkpoints" / digest[:40]


def is_in_repository(work_tree: Path) -> bool:
    """Return True if a folder is inside a Git repository."""
    real = Path(os.path.realpath(work_tree))
    return any(os.path.lexists(folder / ".git") for folder in (real, *real.parents))


def erase(home: Home, tenant: str, conversation: str) -> bool:
    """Remove a shadow repository and the remains of earlier removals; return True if there was anything."""
    return discard(home, tenant, conversation) is not None


def discard(home: Home, tenant: str, conversation: str) -> int | None:
    """Remove a shadow repository as `erase` does; return its size in bytes, or None if there was nothing."""
    folder = folder_for(home, tenant, conversation)
    size = None
    try:
        if os.path.lexists(folder):
            size = _remove_locked(folder)
        for left in folder.parent.glob(f".{glob.escape(folder.name)}.*.tmp"):
            size = size or 0
            shutil.rmtree(left)
    except OSError as error:
        raise CheckpointError(
            f"the checkpoints of {conversation:.80} in {folder} could not be erased: {error}; "
            "remove that folder by hand"
        ) from error
    return size


def _remove_locked(folder: Path) -> int:
    with ExitStack() as stack:
        with suppress(CheckpointsDamaged):  # a folder that cannot be locked is not in use
            stack.enter_context(locked(folder))
        return remove(folder)


def checked_work_tree(work_tree: Path, folder: Path, *, force: bool) -> Path:
    """Return the real path of a work tree. Raise WorkTreeRefused if no checkpoints may be taken of it."""
    try:
        real = work_tree.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise WorkTreeRefused(f"{work_tree} cannot be used: {error}") from error
    if not real.is_dir():
        raise WorkTreeRefused(f"{work_tree} is not a folder")
    shadow = folder.resolve()
    if real == shadow or shadow in real.parents:
        raise WorkTreeRefused(f"{real} is inside {shadow}, where checkpoints are stored; use another folder")
    if not force:
        _refuse_whole_machine(real)
    return real


def _refuse_whole_machine(real: Path) -> None:
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
