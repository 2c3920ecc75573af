"""Progress of an export and an import is told in the middle of a long session, too, and never goes back."""

from __future__ import annotations

import io

import pytest

from turnstate.archive import ArchivedBranch, ArchivedEntry, ArchivedSession, ArchiveEnd, Header
from turnstate.archive.format import ArchiveLine
from turnstate.cli.commands.export import STEP, WHOLE, _ArchiveProgress
from turnstate.cli.commands.import_ import STEP as BYTES
from turnstate.cli.commands.import_ import _Lines

pytestmark = pytest.mark.req("P3")


def session(entries: int) -> list[ArchiveLine]:
    return [
        ArchivedSession(id="a", counter="c", created=1, active=1, version=1),
        ArchivedBranch(id=1, created=1, operation="create", entries=entries),
        *(ArchivedEntry(branch=1, seq=seq, id=str(seq), kind="note") for seq in range(1, entries + 1)),
    ]


def test_an_export_tells_how_far_it_is_inside_of_a_long_session() -> None:
    steps = list[tuple[int, int]]()
    far = _ArchiveProgress(lambda far, done: steps.append((far, done)))
    for line in [Header(), *session(0), *session(4 * STEP), *session(1), ArchiveEnd(sessions=3)]:
        far.add(line)
    quarters = [(WHOLE + WHOLE * quarter // 4, 2) for quarter in (1, 2, 3, 4)]
    assert steps == [(WHOLE, 1), *quarters, (2 * WHOLE, 2), (3 * WHOLE, 3)]


def test_an_import_tells_how_many_bytes_it_has_read() -> None:
    data, steps = b"x" * (BYTES // 4 - 1) + b"\n", list[int]()
    assert len(list(_Lines(io.BytesIO(data * 9), steps.append))) == 9
    assert steps == [BYTES, 2 * BYTES, len(data) * 9]
