"""Snapshots on the disk: written whole, checked when they are read, trusted only when they are ours.

Each session has a folder of its own with its newest three. A snapshot is on the disk when `write`
returns, and what it makes superfluous goes only then. `restore` gives the newest that can be used.
Everything blocks; call it from a thread where a loop must stay free. Many threads and processes
may write and restore at once.
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
from ..home import SNAPSHOT_FOLDER, Home, Key
from ..message import Message
from ..value import check_number
from ..wire_text import described
from .folder import (
    DAMAGED,
    SUFFIX,
    Folder,
    Unreadable,
    file_name,
    folder_name,
    is_own,
    newest_first,
    next_number,
)
from .seal import MAX_BYTES, State, Verdict, opened, sealed

__all__ = [
    "FOLDER",
    "KEPT",
    "Found",
    "Restored",
    "SnapshotPace",
    "Snapshots",
    "from_elsewhere",
    "listing",
    "newest",
]

# What restoring gives: a snapshot, where it came from, and what was passed over on the way to it.


class Found(Struct, frozen=True, kw_only=True):
    """A file in the folder of a session, and what it is."""

    path: Path
    state: State
    reason: str = ""
    timestamp: int | None = None
    token_count: int | None = None


class Restored(Struct, frozen=True, kw_only=True):
    """The newest snapshot that could be used."""

    snapshot: ContextSnapshot
    path: Path
    foreign: bool = False
    system_texts: tuple[str, ...] = ()
    passed_over: tuple[Found, ...] = ()


def from_elsewhere(snapshot: ContextSnapshot) -> tuple[ContextSnapshot, tuple[str, ...]]:
    """Take its authority from a snapshot, and tell what it would have said with it."""
    texts = [_whole_text(message) for message in snapshot.messages if message.role == "system"]
    if snapshot.summary is not None and snapshot.summary not in texts:
        texts.append(snapshot.summary)
    messages = tuple(
        message.replace(kind="foreign") if message.role == "system" else message
        for message in snapshot.messages
    )
    return replace(snapshot, messages=messages, summary=None), tuple(texts)


def _whole_text(message: Message) -> str:
    """Write all parts, not only those that are words."""
    return "\n".join(described(part) for part in message.parts)


# Which snapshot to restore: the newest that is whole and ours, and a word about each that is not.


_CHOICE_TRIES = 10  # a file that goes away while we look was overtaken by newer ones: look again
_SHOWN = 3  # reasons that an error repeats


def newest(folder: Folder, *, session: str, key: Key | None, trust: bool) -> Restored | None:
    """Choose the snapshot to restore; nothing where there is none, an error where none can be used."""
    passed_over: dict[str, Found] = {}
    for _ in range(_CHOICE_TRIES):
        with suppress(FileNotFoundError):
            restored = _first_usable(folder, session, key, trust, passed_over)
            if restored is None and passed_over:
                raise _refusal(session, passed_over.values())
            return restored
    raise DamagedSnapshot(f"the snapshots of session {session!r:.80} go away while they are read")


def listing(folder: Folder, *, session: str, key: Key | None) -> tuple[Found, ...]:
    """Tell what each file is, newest first, those that were set aside included."""
    found = []
    for name in newest_first(folder.names()):
        if name.endswith((SUFFIX, SUFFIX + DAMAGED)):
            with suppress(FileNotFoundError):
                found.append(_found(folder, name, _verdict(folder, name, session, key)))
    return tuple(found)


def _first_usable(
    folder: Folder, session: str, key: Key | None, trust: bool, passed_over: dict[str, Found]
) -> Restored | None:
    for name in newest_first(name for name in folder.names() if name.endswith(SUFFIX)):
        own_name = is_own(name, session=session, key=key)
        if own_name or trust:
            verdict = _verdict(folder, name, session, key)
        else:
            verdict = Verdict(state="foreign", reason="this installation did not write it")
        if verdict.snapshot and (trust or verdict.state == "own"):
            restored = _restored(verdict.snapshot, folder.path / name, own=verdict.state == "own")
            return replace(restored, passed_over=tuple(passed_over.values()))
        aside = folder.set_aside(name) if own_name and verdict.state == "damaged" else name
        passed_over[name] = _found(folder, aside, verdict)
    return None


def _verdict(folder: Folder, name: str, session: str, key: Key | None) -> Verdict:
    try:
        return opened(folder.read(name, limit=MAX_BYTES), session=session, key=key)
    except FileNotFoundError:
        raise
    except (Unreadable, OSError) as error:
        return Verdict(state="unreadable", reason=getattr(error, "strerror", None) or str(error))


def _found(folder: Folder, name: str, verdict: Verdict) -> Found:
    path, snapshot = folder.path / name, verdict.snapshot
    if snapshot is None:
        return Found(path=path, state=verdict.state, reason=verdict.reason)
    return Found(
        path=path,
        state=verdict.state,
        reason=verdict.reason,
        timestamp=snapshot.timestamp,
        token_count=snapshot.token_count,
    )


def _restored(snapshot: ContextSnapshot, path: Path, *, own: bool) -> Restored:
    if own:
        return Restored(snapshot=snapshot, path=path)
    disarmed, texts = from_elsewhere(snapshot)
    return Restored(snapshot=disarmed, path=path, foreign=True, system_texts=texts)


def _refusal(session: str, passed_over: Iterable[Found]) -> InputError:
    passed = tuple(passed_over)
    states = {found.state for found in passed}
    shown = "; ".join(f"{found.path.name!r:.80}: {found.reason}" for found in passed[:_SHOWN])
    more = f"; and {len(passed) - _SHOWN} more" if len(passed) > _SHOWN else ""
    reasons = f"none of {len(passed)} snapshots of session {session!r:.80} can be used ({shown}{more})"
    if "newer" in states:
        return NewerFormat(f"{reasons}; update Turnstate to read the newer")
    if "foreign" in states:
        return ForeignSnapshot(
            f"{reasons}; ask for a restore with trust to load what others wrote", passed_over=passed
        )
    return DamagedSnapshot(f"{reasons}; the files are kept where they are", passed_over=passed)


FOLDER = SNAPSHOT_FOLDER
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
        strict_json.check_text(session_id, at="session_id")
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
        """Return the newest snapshot that can be used, or nothing where there is none at all.

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
        """Remove the folder of a session and every file in it, whoever wrote it; return how many went."""
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
        strict_json.check_text(session_id, at="session_id")
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


# When to write: often enough to lose little, rarely enough to cost little, and always at the end.


class SnapshotPace:
    """At most one snapshot in so many seconds, and none of the last changes forgotten."""

    def __init__(self, every: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        check_number("every", every, least=0, most=86_400)
        self._every = every
        self._clock = clock
        self._begun: float | None = None
        self._pending = False

    @property
    def pending(self) -> bool:
        """Whether something changed since the last snapshot was begun."""
        return self._pending

    def changed(self) -> None:
        """Note that there is something to write."""
        self._pending = True

    def due(self) -> bool:
        """Return True if to write now."""
        return self._pending and self._left() <= 0

    def wait(self) -> float | None:
        """Return the seconds until the next snapshot is due, or nothing where nothing changed."""
        return max(0.0, self._left()) if self._pending else None

    def begin(self) -> None:
        """Begin a snapshot: it covers what changed until now, and what changes while it is written is new."""
        self._pending = False
        self._begun = self._clock()

    def _left(self) -> float:
        if self._begun is None:
            return 0.0
        passed = self._clock() - self._begun
        return self._every - passed if passed >= 0 else 0.0  # a clock that ran backwards delays nothing
