"""What is remembered of a file is worth something only if a later change would show."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from turnstate.shadow.new_snapshot import KnownFile, StatCache, is_settled, known_file
from turnstate.shadow.work_tree import FileStat

SECOND = 1_000_000_000
STAMP = FileStat(mode=0o100644, size=1, modified=5, changed=7 * SECOND + 1, inode=3, device=1)


@pytest.mark.parametrize(
    ("changed", "begun", "settled"),
    [
        (7 * SECOND + 1, 7 * SECOND + 1, False),
        (7 * SECOND + 1, 7 * SECOND + 50_000_000, False),
        (7 * SECOND + 1, 7 * SECOND + 200_000_000, True),
        (7 * SECOND, 7 * SECOND + 200_000_000, False),
        (7 * SECOND, 9 * SECOND + 1, True),
        (7 * SECOND + 1, 6 * SECOND, False),
    ],
)
def test_a_file_counts_as_settled_some_ticks_after_its_last_change(
    changed: int, begun: int, settled: bool
) -> None:
    assert is_settled(replace(STAMP, changed=changed), begun) is settled


@pytest.mark.parametrize("field", FileStat.__struct_fields__)
def test_any_field_that_differs_makes_a_file_unknown(field: str) -> None:
    memory = StatCache(files={b"a": KnownFile(STAMP, "1" * 40)})
    assert memory.found(b"a", STAMP) == KnownFile(STAMP, "1" * 40)
    assert memory.found(b"b", STAMP) is None
    assert memory.found(b"a", replace(STAMP, **{field: 99})) is None


def test_a_file_that_is_not_settled_is_kept_in_mind_and_never_found() -> None:
    begun = STAMP.changed + SECOND
    assert known_file(STAMP, "1", begun=begun).stamp == STAMP
    assert known_file(STAMP, "1", begun=STAMP.changed).stamp != STAMP


def test_what_is_remembered_is_read_back(tmp_path: Path) -> None:
    memory = StatCache(
        commit="2" * 40,
        tree="4" * 40,
        files={b"\xff\n": KnownFile(STAMP, "1" * 40)},
        frame=frozenset({"3" * 40}),
    )
    memory.save(tmp_path / "stamps")
    assert StatCache.load(tmp_path / "stamps") == memory
    assert memory.known() == {"1" * 40, "3" * 40}
    assert [path.name for path in tmp_path.iterdir()] == ["stamps"]


def test_a_memory_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    StatCache().save(tmp_path / "missing" / "stamps")
    assert StatCache.load(tmp_path / "missing" / "stamps") == StatCache()
