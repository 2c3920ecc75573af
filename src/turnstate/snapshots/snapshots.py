"""Snapshots of sessions as files: written whole, verified when read, trusted only if they are our own.

Each session has its own folder with its newest three snapshots. A snapshot is durable when `write` returns;
older ones are removed only after it is durable. `restore` returns the newest usable one. All methods block:
call them from a thread to keep an event loop free. Threads and processes may write and restore concurrently.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from .. import strict_json
from ..context.snapshot import ContextSnapshot
from ..errors import DamagedSnapshot, ForeignSnapshot, InputError, NewerFormat, SnapshotFailed
from ..home import Home, SigningKey
from ..message import Message
from ..own_files import SNAPSHOT_FOLDER
from ..wire_text import described
from .folder import (
    DAMAGED,
    SUFFIX,
    RefusedFile,
    SnapshotFolder,
    file_name,
    folder_name,
    is_own,
    newest_first,
    next_number,
)
from .seal import MAX_BYTES, SealCheck, State, opened, sealed


class SnapshotFile(Struct, frozen=True, kw_only=True):
    """A file in the folder of a session, and its state."""

    path: Path
    state: State
    reason: str = ""
    timestamp: int | None = None
    token_count: int | None = None


class RestoredSnapshot(Struct, frozen=True, kw_only=True):
    """The newest snapshot that could be used."""

    snapshot: ContextSnapshot
    path: Path
    foreign: bool = False
    system_texts: tuple[str, ...] = ()
    passed_over: tuple[SnapshotFile, ...] = ()


def disarmed(snapshot: ContextSnapshot) -> tuple[ContextSnapshot, tuple[str, ...]]:
    """Return a foreign snapshot without system authority, and the system texts that it contained."""
    texts = [_whole_text(message) for message in snapshot.messages if message.role == "system"]
    if snapshot.summary is not None and snapshot.summary not in texts:
        texts.append(snapshot.summary)
    messages = tuple(
        message.replace(kind="foreign") if message.role == "system" else message
        for message in snapshot.messages
    )
    return replace(snapshot, messages=messages, summary=None), tuple(texts)


def _whole_text(message: Message) -> str:
    """Return the text of all parts, with descriptions of the parts that are not text."""
    return "\n".join(described(part) for part in message.parts)


_READ_TRIES = 10  # a file that disappears during a read was replaced by newer ones: read again
_MAX_REASONS = 3  # shown in an error


def newest(
    folder: SnapshotFolder, *, session: str, key: SigningKey | None, trust: bool
) -> RestoredSnapshot | None:
    """Return the snapshot to restore, or None if there are none. Raise an error if none is usable."""
    passed_over: dict[str, SnapshotFile] = {}
    for _ in range(_READ_TRIES):
        with suppress(FileNotFoundError):
            restored = _first_usable(folder, session, key, trust, passed_over)
            if restored is None and passed_over:
                raise _refusal(session, passed_over.values())
            return restored
    raise DamagedSnapshot(
        f"the snapshots of session {session!r:.80} keep disappearing while they are read; try again"
    )


def listing(folder: SnapshotFolder, *, session: str, key: SigningKey | None) -> tuple[SnapshotFile, ...]:
    """Return the state of each file, newest first, including files that were set aside."""
    found = []
    for name in newest_first(folder.names()):
        if name.endswith((SUFFIX, SUFFIX + DAMAGED)):
            with suppress(FileNotFoundError):
                found.append(_found(folder, name, _verdict(folder, name, session, key)))
    return tuple(found)


def _first_usable(
    folder: SnapshotFolder,
    session: str,
    key: SigningKey | None,
    trust: bool,
    passed_over: dict[str, SnapshotFile],
) -> RestoredSnapshot | None:
    for name in newest_first(name for name in folder.names() if name.endswith(SUFFIX)):
        own_name = is_own(name, session=session, key=key)
        if own_name or trust:
            verdict = _verdict(folder, name, session, key)
        else:
            verdict = SealCheck(state="foreign", reason="this installation did not write it")
        if verdict.snapshot and (trust or verdict.state == "own"):
            restored = _restored(verdict.snapshot, folder.path / name, own=verdict.state == "own")
            return replace(restored, passed_over=tuple(passed_over.values()))
        aside = folder.set_aside(name) if own_name and verdict.state == "damaged" else name
        passed_over[name] = _found(folder, aside, verdict)
    return None


def _verdict(folder: SnapshotFolder, name: str, session: str, key: SigningKey | None) -> SealCheck:
    try:
        return opened(folder.read(name, limit=MAX_BYTES), session=session, key=key)
    except FileNotFoundError:
        raise
    except (RefusedFile, OSError) as error:
        return SealCheck(state="unreadable", reason=getattr(error, "strerror", None) or str(error))


def _found(folder: SnapshotFolder, name: str, verdict: SealCheck) -> SnapshotFile:
    path, snapshot = folder.path / name, verdict.snapshot
    if snapshot is None:
        return SnapshotFile(path=path, state=verdict.state, reason=verdict.reason)
    return SnapshotFile(
        path=path,
        state=verdict.state,
        reason=verdict.reason,
        timestamp=snapshot.timestamp,
        token_count=snapshot.token_count,
    )


def _restored(snapshot: ContextSnapshot, path: Path, *, own: bool) -> RestoredSnapshot:
    if own:
        return RestoredSnapshot(snapshot=snapshot, path=path)
    harmless, texts = disarmed(snapshot)
    return RestoredSnapshot(snapshot=harmless, path=path, foreign=True, system_texts=texts)


def _refusal(session: str, passed_over: Iterable[SnapshotFile]) -> InputError:
    passed = tuple(passed_over)
    states = {found.state for found in passed}
    shown = "; ".join(f"{found.path.name!r:.80}: {found.reason}" for found in passed[:_MAX_REASONS])
    more = f"; and {len(passed) - _MAX_REASONS} more" if len(passed) > _MAX_REASONS else ""
    reasons = f"none of {len(passed)} snapshots of session {session!r:.80} can be used ({shown}{more})"
    if "newer" in states:
        return NewerFormat(f"{reasons}; update Turnstate to read the newer ones")
    if "foreign" in states:
        return ForeignSnapshot(
            f"{reasons}; pass trust=True to load snapshots that others wrote", passed_over=passed
        )
    renamed = sum(found.path.name.endswith(DAMAGED) for found in passed)
    kept = f"{renamed} of the files were renamed to *{DAMAGED}" if renamed else "the files were left in place"
    return DamagedSnapshot(f"{reasons}; {kept}", passed_over=passed)


FOLDER = SNAPSHOT_FOLDER
KEPT = 3

_TRIES = 10  # another process may remove the folder or our temporary file


class Snapshots:
    """The snapshots of all sessions in one folder.

    A relative folder is inside the workspace, and no link on the way to it is followed, since others may
    control the workspace. An absolute folder is used as given.
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
        """The folder that contains the folders of the sessions."""
        return self._anchor.joinpath(*self._parts)

    def check(self) -> None:
        """Raise `SnapshotFailed` if the folder cannot be written, `HomeUnusable` if there is no key."""
        self._home.key()
        new = not self.folder.exists()
        with (
            self._translated("snapshots cannot be written; choose another folder, or make this one writable"),
            SnapshotFolder.opened(self._anchor, self._parts, make=True) as folder,
        ):
            folder.probe()
        if new:
            self._write_gitignore()

    def write(self, session_id: str, snapshot: ContextSnapshot) -> Path:
        """Write a snapshot durably, then remove all but the newest three; return its path."""
        strict_json.check_text(session_id, at="session_id")
        key = self._home.key()
        data = sealed(snapshot, session=session_id, key=key)
        with self._translated(
            f"the snapshot of session {session_id!r:.80} was not written; the older ones were kept"
        ):
            for _ in range(_TRIES):
                with suppress(FileNotFoundError):
                    return self._write(session_id, data, key)
            return self._write(session_id, data, key)

    def restore(self, session_id: str, *, trust: bool = False) -> RestoredSnapshot | None:
        """Return the newest snapshot that can be used, or None if there is none at all.

        With ``trust``, return the newest intact one, whoever wrote it. If snapshots exist but none can be
        used, raise ForeignSnapshot, NewerFormat or DamagedSnapshot with a reason for each.
        """
        with self._reading(session_id) as folder:
            if folder is None:
                return None
            return newest(folder, session=session_id, key=self._home.known_key(), trust=trust)

    def list(self, session_id: str) -> tuple[SnapshotFile, ...]:
        """Return all snapshots of a session, newest first, even foreign and damaged ones; change nothing."""
        with self._reading(session_id) as folder:
            if folder is None:
                return ()
            return listing(folder, session=session_id, key=self._home.known_key())

    def erase(self, session_id: str) -> int:
        """Remove the folder of a session with every file in it; return the number of files."""
        with self._reading(session_id) as folder:
            if folder is None:
                return 0
            with self._translated(f"the snapshots of session {session_id!r:.80} were not all erased"):
                return folder.erase()

    def withdraw(self, session_id: str, written: Path) -> None:
        """Remove a snapshot that `write` returned, if it is still there."""
        with self._reading(session_id) as folder:
            if folder is None:
                return
            failing = self._translated(f"a snapshot of session {session_id!r:.80} was not withdrawn")
            with failing, suppress(FileNotFoundError):
                folder.remove(written.name)

    def _write(self, session_id: str, data: bytes, key: SigningKey) -> Path:
        new = not self.folder.exists()
        with SnapshotFolder.opened(self._anchor, self._where(session_id), make=True) as folder:

            def own() -> list[str]:
                return [name for name in folder.names() if is_own(name, session=session_id, key=key)]

            def name() -> str:
                return file_name(next_number(own(), now=self._clock()), session=session_id, key=key)

            written = folder.add(data, name=name)
            with suppress(OSError):  # the snapshot is durable; older ones are removed next time
                for outdated in newest_first(own())[KEPT:]:
                    if outdated != written:
                        folder.remove(outdated)
                folder.sweep(beside=written)
        if new:
            self._write_gitignore()
        return folder.path / written

    def _write_gitignore(self) -> None:
        """Make Git ignore the folder: conversations are private, but workspaces get published."""
        with suppress(OSError), SnapshotFolder.opened(self._anchor, self._parts) as folder:
            folder.add(b"*\n", name=lambda: ".gitignore")

    def _where(self, session_id: str) -> tuple[str, ...]:
        return (*self._parts, folder_name(session_id))

    @contextmanager
    def _reading(self, session_id: str) -> Iterator[SnapshotFolder | None]:
        strict_json.check_text(session_id, at="session_id")
        with ExitStack() as stack:
            try:
                opening = SnapshotFolder.opened(self._anchor, self._where(session_id))
                folder: SnapshotFolder | None = stack.enter_context(opening)
            except FileNotFoundError:
                folder = None
            except OSError as error:
                raise DamagedSnapshot(
                    f"the snapshots of session {session_id!r:.80} cannot be read in {self.folder}: "
                    f"{error.strerror} (links are not followed)"
                ) from error
            yield folder

    @contextmanager
    def _translated(self, text: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SnapshotFailed(f"{text}: {error.strerror or error}, at {self.folder}") from error
