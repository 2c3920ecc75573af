"""Which snapshot to restore: the newest that is whole and ours, and a word about each that is not.

    own, whole       taken
    damaged          set aside under another name, the next older is tried
    foreign          passed over where it stands; taken only if its user says so
    newer            written by a newer Turnstate: passed over where it stands
    unreadable       a link, a pipe, a giant, a disk that fails: passed over where it stands

A file whose name this installation did not give is foreign without being read, and is never touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from ..context.snapshot import ContextSnapshot
from ..errors import DamagedSnapshot, ForeignSnapshot, InputError, NewerFormat
from ..home import Key
from .folder import DAMAGED, Folder, Unreadable
from .names import SUFFIX, is_own, newest_first
from .restored import Found, Restored, from_elsewhere
from .seal import MAX_BYTES, Verdict, opened

__all__ = ["listing", "newest"]

_TRIES = 10  # a file that goes away while we look was overtaken by newer ones: look again
_SHOWN = 3  # reasons that an error repeats


def newest(folder: Folder, *, session: str, key: Key | None, trust: bool) -> Restored | None:
    """Choose the snapshot to restore; nothing where there is none, an error where none can be used."""
    passed_over: dict[str, Found] = {}
    for _ in range(_TRIES):
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
