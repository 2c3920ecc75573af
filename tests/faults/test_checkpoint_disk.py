"""On a full disk a snapshot or a restore fails with a reason, and costs nothing that was there."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.faults.mounts import SmallDisk
from tests.harness.thoroughness import LONG
from turnstate.checkpoints import ShadowRepository
from turnstate.errors import CheckpointError, RestoreFailed

SIZE = 12 << 20
BIG = 200_000


def noise(seed: int) -> bytes:
    """Make bytes that do not compress."""
    return Random(seed).randbytes(BIG)


@pytest.mark.req("O3", "O4")
@pytest.mark.parametrize("room", [0, 4_096, 16_384, 65_536, 150_000] if LONG else [0, 65_536])
def test_a_snapshot_without_room_fails_and_those_before_it_stay(room: int, home: Path) -> None:
    with SmallDisk(home / "small", size=SIZE) as disk:
        tree = disk.path / "tree"
        tree.mkdir()
        (tree / "a").write_bytes(noise(1))
        kept = ShadowRepository.open(disk.path / "shadow", tree)
        kept.snapshot("0")
        (tree / "a").write_bytes(noise(2))
        disk.fill(leave=room)
        with pytest.raises(CheckpointError):
            kept.snapshot("1")
        with pytest.raises(CheckpointError):
            kept.restore("0")
        assert (tree / "a").read_bytes() == noise(2)
        assert [path.name for path in tree.iterdir()] == ["a"]
        disk.free()
        assert [one.tag for one in kept.snapshots()] == ["0"]
        kept.restore("0")
        assert (tree / "a").read_bytes() == noise(1)


@pytest.mark.req("O3")
def test_a_restore_without_room_in_the_work_tree_changes_nothing(home: Path) -> None:
    with SmallDisk(home / "small", size=SIZE) as disk:
        tree = disk.path / "tree"
        tree.mkdir()
        for name in ("a", "b"):
            (tree / name).write_bytes(noise(ord(name)))
        kept = ShadowRepository.open(home / "elsewhere" / "shadow", tree)
        kept.snapshot("0")
        for name in ("a", "b"):
            (tree / name).write_bytes(b"changed")
        disk.fill(leave=BIG + BIG // 2)
        with pytest.raises(RestoreFailed, match="No space left"):
            kept.restore("0", hard=True)
        assert {path.name: path.read_bytes() for path in tree.iterdir() if path.name in "ab"} == {
            "a": b"changed",
            "b": b"changed",
        }
        assert not [path for path in tree.iterdir() if path.name.startswith(".turnstate")]
        disk.free()
        assert kept.restore("0").kept == ()
        assert (tree / "b").read_bytes() == noise(ord("b"))


@pytest.mark.req("O3")
def test_a_damaged_pack_that_there_is_no_room_to_unpack_is_saved_when_there_is(home: Path) -> None:
    with SmallDisk(home / "small", size=SIZE) as disk:
        tree = disk.path / "tree"
        tree.mkdir()
        for name in "abcdefgh":
            (tree / name).write_text(name)
        (tree / "d").write_bytes(noise(1))
        kept = ShadowRepository.open(disk.path / "shadow", tree)
        kept.snapshot("0")
        (pack,) = disk.path.glob("shadow/repository/objects/pack/*.pack")
        pack.with_suffix(".idx").unlink()
        pack.chmod(0o600)
        pack.write_bytes(pack.read_bytes()[:-1])
        (tree / "d").write_text("changed")
        disk.fill(leave=BIG + BIG // 2)  # a copy of the pack, but not the file a second time
        with pytest.raises(CheckpointError):
            kept.restore("0")
        disk.free()
        kept.restore("0")
        assert (tree / "d").read_bytes() == noise(1)
