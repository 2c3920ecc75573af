"""A restore walks a name at a time, over no link, and waits for the disk as a crowd."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnstate.shadow.git import BLOB, object_id
from turnstate.shadow.values import FileEntry
from turnstate.shadow.work_tree import ParallelSync, PathState, SafeTree


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "file").write_text("x")
    os.symlink(tmp_path, tmp_path / "tree" / "out")
    os.mkfifo(tmp_path / "tree" / "pipe")
    return tmp_path / "tree"


@pytest.fixture
def ground(tree: Path) -> Iterator[SafeTree]:
    with SafeTree.opened(tree) as ground:
        yield ground


def test_a_link_is_not_entered(ground: SafeTree) -> None:
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        ground.enter(b"out")
    assert ground.nearest(b"out/tree/a") == b""
    assert ground.nearest(b"a/b/c/d") == b"a/b"
    assert ground.state_of(b"out/tree", most=10).kind in ("nothing", "other")


def test_what_stands_at_a_path_is_told_by_its_bytes(ground: SafeTree, tree: Path) -> None:
    blob = object_id(BLOB, b"x")
    assert ground.state_of(b"a/file", most=10) == PathState("file", blob)
    assert ground.state_of(b"a/file", most=10).matches(FileEntry(False, 0o644, blob))
    assert not ground.state_of(b"a/file", most=10).matches(FileEntry(True, 0, blob))
    assert ground.state_of(b"out", most=10) == PathState("link", object_id(BLOB, os.fsencode(tree.parent)))
    assert ground.state_of(b"a/file", most=0).kind == "other"
    assert ground.state_of(b"pipe", most=10).kind == "other"
    assert ground.state_of(b"a", most=10).kind == "folder"
    assert ground.state_of(b"a/missing", most=10).kind == "nothing"
    assert ground.state_of(b"a/file/below", most=10).kind == "nothing"


def test_a_mode_is_set_on_a_file_and_on_nothing_behind_a_link(ground: SafeTree, tree: Path) -> None:
    before = tree.parent.stat().st_mode
    with pytest.raises(OSError, match="symbolic links"):
        ground.set_mode(b"out", 0o777)
    with pytest.raises(OSError, match="no longer a file"):
        ground.set_mode(b"pipe", 0o777)
    assert tree.parent.stat().st_mode == before
    os.close(ground.set_mode(b"a/file", 0o604))
    assert (tree / "a" / "file").stat().st_mode & 0o7777 == 0o604


def test_a_folder_is_made_where_nothing_else_stands(ground: SafeTree, tree: Path) -> None:
    ground.make_folder(b"a/new")
    ground.make_folder(b"a/new")
    assert (tree / "a" / "new").stat().st_mode & 0o777 == 0o700
    with pytest.raises(OSError, match="Not a directory"):
        ground.make_folder(b"a/file")


def test_every_file_is_synced_once_and_closed() -> None:
    synced, before = list[int](), set(os.listdir("/proc/self/fd"))
    with ParallelSync(synced.append) as syncing:
        added = [os.open("/dev/null", os.O_RDONLY) for _ in range(200)]
        for descriptor in added:
            syncing.add(descriptor)
    assert len(synced) == 200
    assert set(os.listdir("/proc/self/fd")) <= before


def test_a_file_that_cannot_be_synced_is_told_and_all_are_closed() -> None:
    def failing(descriptor: int) -> None:
        raise OSError(5, f"{descriptor} is lost")

    def synced() -> None:
        with ParallelSync(failing) as syncing:
            for _ in range(3):
                syncing.add(os.open("/dev/null", os.O_RDONLY))

    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="is lost"):
        synced()
    assert set(os.listdir("/proc/self/fd")) <= before
