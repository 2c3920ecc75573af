"""What belongs to Turnstate is known by content, by path through all links, and by inode."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from turnstate.own_files import APPLICATION, kind_of, main_file
from turnstate.shadow.folder import About, make
from turnstate.shadow.protected import (
    InUse,
    Opened,
    Owned,
    OwnPlaces,
    is_in_use,
    is_shadow_repository,
)
from turnstate.shadow.values import FileEntry, Listing

SQLITE = b"SQLite format 3\0"
STORE = SQLITE + bytes(52) + APPLICATION.to_bytes(4, "big")


@pytest.mark.parametrize(
    ("head", "name", "kind"),
    [
        (STORE, b"any", "store"),
        (SQLITE + bytes(56), b"any", "database"),
        (SQLITE, b"cut short", "database"),
        (b"SQLite format 3", b"any", "file"),
        (b"", b"empty-wal", "file"),
        (b"\x37\x7f\x06\x82", b"x-wal", "database"),
        (b"\x37\x7f\x06\x82", b"x", "file"),
    ],
)
def test_a_file_is_told_by_its_first_bytes(head: bytes, name: bytes, kind: str) -> None:
    assert kind_of(head, name) == kind


@pytest.mark.parametrize(
    ("path", "main"),
    [
        (b"d/x.db-wal", b"d/x.db"),
        (b"x-y-shm", b"x-y"),
        (b"x-journal", b"x"),
        (b"x-walk", None),
        (b"wal", None),
    ],
)
def test_the_main_file_follows_from_the_name(path: bytes, main: bytes | None) -> None:
    assert main_file(path) == main


def test_an_empty_journal_is_no_sign_of_use(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    (tmp_path / "x.db-journal").write_bytes(b"")
    assert not is_in_use(os.fsencode(path))
    (tmp_path / "x.db-journal").write_bytes(b"x")
    assert is_in_use(os.fsencode(path))
    assert not is_in_use(os.fsencode(tmp_path / ("x" * 255)))


def test_a_database_that_this_process_has_open_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(SQLITE + bytes(496))
    with Opened(os.fsencode(path)) as file:
        file.check()
    with path.open("rb"), Opened(os.fsencode(path)) as file, pytest.raises(InUse):
        file.check()
    with Opened(os.fsencode(path)) as file:
        file.check()


def owned(tree: Path, *places: str | Path) -> Owned:
    return OwnPlaces(tree, [tree / place for place in places]).now()


def test_a_place_is_known_with_the_links_on_the_way_and_the_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "real.db").write_bytes(b"")
    os.symlink("d", tmp_path / "way")
    os.symlink("way/../d/real.db", tmp_path / "link.db")
    found = owned(tmp_path, "link.db")
    beside = {b"d/real.db" + side for side in (b"", b"-wal", b"-shm", b"-journal")}
    assert found.paths == {b"link.db", b"way", *beside}
    status = (tmp_path / "d" / "real.db").stat()
    assert found.is_at(b"another name", status.st_dev, status.st_ino)
    assert not found.is_at(b"another name", status.st_dev, 0)


def test_links_in_a_circle_and_places_elsewhere_do_no_harm(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    os.symlink("b", tree / "a")
    os.symlink("a", tree / "b")
    assert {b"a", b"b"} <= owned(tree, "a").paths
    assert owned(tree, tmp_path / "elsewhere", "/", tree).paths == frozenset()


def test_a_listing_is_left_without_what_is_ours() -> None:
    entry = FileEntry(False, 0o644, "x")
    files = dict.fromkeys((b"a", b"home/key", b"home/c/d", b"s/.openstarry/snapshots/1", b"homely"), entry)
    folders = dict.fromkeys((b"home", b"home/c", b"s", b"s/.openstarry", b"s/.openstarry/snapshots"), 0o755)
    left = Owned(paths=frozenset([b"home"])).without(Listing(files, folders))
    assert set(left.files) == {b"a", b"homely"}
    assert set(left.folders) == {b"s", b"s/.openstarry"}


def test_a_shadow_repository_is_told_from_a_folder_that_looks_like_one(tmp_path: Path) -> None:
    make(tmp_path / "shadow", About(work_tree=os.fsencode(tmp_path)))
    names = {os.fsencode(name) for name in os.listdir(tmp_path / "shadow")}
    assert is_shadow_repository(os.fsencode(tmp_path / "shadow"), names)
    assert not is_shadow_repository(os.fsencode(tmp_path / "shadow"), names - {b"lock"})
    (tmp_path / "shadow" / "about.json").unlink()
    os.mkfifo(tmp_path / "shadow" / "about.json")
    assert not is_shadow_repository(os.fsencode(tmp_path / "shadow"), names)
