"""Snapshots on the disk: written whole, checked when they are read, trusted only when they are ours.

Each session has a folder of its own with its newest three. A snapshot is on the disk when `write`
returns, and what it makes superfluous goes only then. `restore` gives the newest that can be used.
Everything blocks; call it from a thread where a loop must stay free. Many threads and processes
may write and restore at once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from .. import reader
from ..context.snapshot import ContextSnapshot
from ..errors import DamagedSnapshot, SnapshotFailed
from ..home import Home, Key
from .choice import listing, newest
from .folder import Folder
from .names import file_name, folder_name, is_own, newest_first, next_number
from .restored import Found, Restored
from .seal import sealed

__all__ = ["FOLDER", "KEPT", "Snapshots"]

FOLDER = ".openstarry/snapshots"
KEPT = 3

_TRIES = 10  # when somebody removed the folder, or took our file for one left behind


class Snapshots:
    """The snapshots of all sessions that are kept in one folder.

    A relative folder stands in the workspace, and no link on the way to it is followed, since the
    workspace may be somebody else's; an absolute one is taken as its user says it.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] = FOLDER,
        home: Home | None = None,
        *,
        workspace: str | os.PathLike[str] = ".",
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        absolute = os.path.isabs(folder)
        self._anchor = Path(os.path.abspath(folder if absolute else workspace))
        self._parts = () if absolute else Path(folder).parts
        self._home = home or Home.from_environment()
        self._clock = clock

    @property
    def folder(self) -> Path:
        """The folder in which each session has its own."""
        return self._anchor.joinpath(*self._parts)

    def check(self) -> None:
        """Raise `SnapshotFailed` if the folder cannot be written, `HomeUnusable` if there is no key."""
        self._home.key()
        new = not self.folder.exists()
        with (
            self._failing("snapshots cannot be kept; name another folder, or make this one writable"),
            Folder.opened(self._anchor, self._parts, make=True) as folder,
        ):
            folder.probe()
        if new:
            self._keep_out_of_commits()

    def write(self, session_id: str, snapshot: ContextSnapshot) -> Path:
        """Write a snapshot; on return it is on the disk, and all but the newest three are gone."""
        reader.check_text(session_id, at="session_id")
        key = self._home.key()
        data = sealed(snapshot, session=session_id, key=key)
        with self._failing(
            f"the snapshot of session {session_id!r:.80} was not written; the older ones stay"
        ):
            for _ in range(_TRIES):
                with suppress(FileNotFoundError):
                    return self._write(session_id, data, key)
            return self._write(session_id, data, key)

    def restore(self, session_id: str, *, trust: bool = False) -> Restored | None:
        """Give the newest snapshot that can be used, or nothing where there is none at all.

        With ``trust`` that is the newest whole one, whoever wrote it. Where there are some and none
        can be used, `ForeignSnapshot`, `NewerFormat` or `DamagedSnapshot` says why of each.
        """
        with self._reading(session_id) as folder:
            if folder is None:
                return None
            return newest(folder, session=session_id, key=self._home.known_key(), trust=trust)

    def list(self, session_id: str) -> tuple[Found, ...]:
        """List the snapshots of a session, newest first, foreign and damaged ones too; change nothing."""
        with self._reading(session_id) as folder:
            if folder is None:
                return ()
            return listing(folder, session=session_id, key=self._home.known_key())

    def erase(self, session_id: str) -> int:
        """Remove the folder of a session and every file in it, whoever wrote it; say how many went."""
        with self._reading(session_id) as folder:
            if folder is None:
                return 0
            with self._failing(f"the snapshots of session {session_id!r:.80} were not all erased"):
                return folder.erase()

    def withdraw(self, session_id: str, written: Path) -> None:
        """Remove a snapshot that `write` returned, if it is still there."""
        with self._reading(session_id) as folder:
            if folder is None:
                return
            failing = self._failing(f"a snapshot of session {session_id!r:.80} was not withdrawn")
            with failing, suppress(FileNotFoundError):
                folder.remove(written.name)

    def _write(self, session_id: str, data: bytes, key: Key) -> Path:
        new = not self.folder.exists()
        with Folder.opened(self._anchor, self._where(session_id), make=True) as folder:

            def own() -> list[str]:
                return [name for name in folder.names() if is_own(name, session=session_id, key=key)]

            def name() -> str:
                return file_name(next_number(own(), now=self._clock()), session=session_id, key=key)

            written = folder.add(data, name=name)
            with suppress(OSError):  # the snapshot is safe; what stays too long goes next time
                for superfluous in newest_first(own())[KEPT:]:
                    if superfluous != written:
                        folder.remove(superfluous)
                folder.sweep(beside=written)
        if new:
            self._keep_out_of_commits()
        return folder.path / written

    def _keep_out_of_commits(self) -> None:
        """Tell Git to leave the folder alone: conversations are private, workspaces get published."""
        with suppress(OSError), Folder.opened(self._anchor, self._parts) as folder:
            folder.add(b"*\n", name=lambda: ".gitignore")

    def _where(self, session_id: str) -> tuple[str, ...]:
        return (*self._parts, folder_name(session_id))

    @contextmanager
    def _reading(self, session_id: str) -> Iterator[Folder | None]:
        reader.check_text(session_id, at="session_id")
        with ExitStack() as stack:
            try:
                opening = Folder.opened(self._anchor, self._where(session_id))
                folder: Folder | None = stack.enter_context(opening)
            except FileNotFoundError:
                folder = None
            except OSError as error:
                raise DamagedSnapshot(
                    f"the snapshots of session {session_id!r:.80} cannot be read in {self.folder}: "
                    f"{error.strerror} (links are not followed)"
                ) from error
            yield folder

    @contextmanager
    def _failing(self, text: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SnapshotFailed(f"{text}: {error.strerror or error}, at {self.folder}") from error
