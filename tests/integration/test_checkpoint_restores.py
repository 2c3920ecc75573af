"""A restore brings bytes and modes back exactly, and touches nothing that it could not undo."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from tests.integration.checkpoint_scene import Scene, Trees, git, scene, state, write
from turnstate.checkpoints import Changes, KeptPath
from turnstate.errors import CheckpointError, RestoreFailed
from turnstate.shadow import restore


@pytest.fixture
def here(tmp_path: Path) -> Scene:
    return scene(tmp_path)


def reasons(kept: tuple[KeptPath, ...]) -> dict[bytes, str]:
    return {one.path: one.reason for one in kept}


def varied(tree: Path) -> Trees:
    """Fill a work tree with files of all kinds."""
    write(tree, "plain", "one\r\ntwo\n")
    write(tree, "program", "#!/bin/sh\n", 0o755)
    write(tree, "private/secret", "s", 0o600)
    write(tree, "odd", b"\0\xff", 0o4751)
    write(tree, "deep/a/b/c", "c", 0o444)
    write(tree, "empty-file")
    (tree / "private").chmod(0o700)
    (tree / "hollow" / "inner").mkdir(parents=True)
    (tree / "shared").mkdir()
    (tree / "shared").chmod(0o2775)
    os.symlink("plain", tree / "link")
    os.symlink("/nowhere/at all", tree / "broken")
    return state(tree)


def emptied(tree: Path) -> None:
    for path in tree.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def turned_around(tree: Path) -> None:
    """Make files of folders, folders of files, links of both."""
    emptied(tree)
    write(tree, "plain/x", "a folder now")
    write(tree, "deep", "a file now")
    os.symlink("/etc", tree / "private")
    os.symlink("/etc/passwd", tree / "program")
    write(tree, "link", "no link", 0o640)
    (tree / "odd").mkdir()


def all_changed(tree: Path) -> None:
    for path in tree.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.write_text(f"changed {path.name}")
            path.chmod(0o666)


@pytest.mark.req("O2", "O3")
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("change", [emptied, turned_around, all_changed])
def test_bytes_and_modes_come_back_exactly(change: object, hard: bool, here: Scene) -> None:
    before = varied(here.tree)
    repository = here.open()
    repository.snapshot("0")
    change(here.tree)
    changed = state(here.tree)
    restored = repository.restore("0", hard=hard)
    assert restored.kept == ()
    assert state(here.tree) == before
    assert repository.diff("0").files == ()
    assert not repository.has_changes()
    assert repository.restore("undo", hard=True).kept == ()
    assert state(here.tree) == changed


@pytest.mark.req("O2")
def test_a_soft_restore_keeps_newer_files(here: Scene) -> None:
    write(here.tree, "a", "1")
    repository = here.open()
    repository.snapshot("0")
    write(here.tree, "a", "2")
    write(here.tree, "new/b", "1")
    repository.snapshot("1")
    assert repository.restore("0").changes == Changes(modified=(b"a",))
    assert (here.tree / "a").read_text() == "1"
    assert (here.tree / "new" / "b").read_text() == "1"


@pytest.mark.req("O2", "O3")
def test_a_hard_restore_removes_newer_files_that_a_snapshot_has_and_no_others(here: Scene) -> None:
    write(here.tree, "a", "1")
    repository = here.open()
    repository.snapshot("0")
    for name in ("kept/x", "gone/y", "again"):
        write(here.tree, name, "1")
    repository.snapshot("1")
    (here.tree / "again").unlink()
    repository.snapshot("2")
    write(here.tree, "again", "since")
    write(here.tree, "kept/mine", "since")
    write(here.tree, "mine", "since")
    (here.tree / "mine too").mkdir()
    restored = repository.restore("0", hard=True)
    assert restored.changes == Changes(deleted=(b"again", b"gone/y", b"kept/x"))
    assert state(here.tree).keys() == {b"a", b"kept", b"kept/mine", b"mine", b"mine too"}
    repository.restore("undo")
    assert (here.tree / "again").read_text() == "since"


@pytest.mark.req("O3", "O4")
def test_ignored_files_are_never_touched_even_if_a_snapshot_has_them(here: Scene) -> None:
    write(here.tree, "x.log", "old")
    write(here.tree, "y.log", "old")
    write(here.tree, "place", "a file once")
    repository = here.open()
    repository.snapshot("0")
    write(here.tree, ".gitignore", "*.log\n")
    write(here.tree, "x.log", "precious")
    (here.tree / "y.log").unlink()
    (here.tree / "place").unlink()
    write(here.tree, "place/z.log", "precious, too")
    write(here.tree, "place/tracked", "1")
    repository.snapshot("1")
    restored = repository.restore("0", hard=True)
    assert reasons(restored.kept).keys() == {b"x.log", b"place"}
    assert (here.tree / "x.log").read_text() == "precious"
    assert (here.tree / "place" / "z.log").read_text() == "precious, too"
    assert (here.tree / "y.log").read_text() == "old"


def test_a_file_that_changes_while_others_are_restored_is_left_alone(
    here: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        write(here.tree, name, "1")
    repository = here.open()
    repository.snapshot("0")
    for name in ("a", "b"):
        write(here.tree, name, "2")
    write(here.tree, "d", "2")
    repository.snapshot("1")
    really = restore.perform

    def late(*arguments: object, **options: object) -> object:
        write(here.tree, "b", "3")
        write(here.tree, "d", "3")
        return really(*arguments, **options)

    monkeypatch.setattr("turnstate.shadow.repository.perform", late)
    restored = repository.restore("0", hard=True)
    assert reasons(restored.kept).keys() == {b"b", b"d"}
    assert [(here.tree / name).read_text() for name in "abcd"] == ["1", "3", "1", "3"]
    assert restored.changes == Changes(modified=(b"a",))


def test_a_restore_never_writes_through_a_link(here: Scene, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside, "x", "mine")
    write(here.tree, "d/x", "1")
    repository = here.open()
    repository.snapshot("0")
    shutil.rmtree(here.tree / "d")
    os.symlink(outside, here.tree / "d")
    repository.restore("0")
    assert (outside / "x").read_text() == "mine"
    assert (here.tree / "d" / "x").read_text() == "1"
    assert not (here.tree / "d").is_symlink()


@pytest.mark.req("O4")
def test_a_link_that_is_ignored_and_in_the_way_is_not_followed(here: Scene, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    write(here.tree, "d/x", "1")
    repository = here.open()
    repository.snapshot("0")
    shutil.rmtree(here.tree / "d")
    os.symlink(outside, here.tree / "d")
    write(here.tree, ".gitignore", "/d\n")
    restored = repository.restore("0")
    assert b"d/x" in reasons(restored.kept)
    assert list(outside.iterdir()) == []
    assert (here.tree / "d").is_symlink()


@pytest.mark.req("O3")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_without_room_nothing_is_changed_and_nothing_is_left_behind(
    number: int, here: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    varied(here.tree)
    repository = here.open()
    repository.snapshot("0")
    all_changed(here.tree)
    before, really, room = state(here.tree), os.write, [2]

    def full(descriptor: int, data: bytes) -> int:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(here.tree)):
            room[0] -= 1
            if room[0] < 0:
                raise OSError(number, os.strerror(number))
        return really(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RestoreFailed, match="no file was changed"):
        repository.restore("0", hard=True)
    assert state(here.tree) == before
    monkeypatch.setattr(os, "write", really)
    assert here.open().recovered is None
    assert repository.restore("0").kept == ()


def test_a_journal_that_cannot_be_read_is_set_aside(here: Scene) -> None:
    write(here.tree, "a", "1")
    here.open().snapshot("0")
    write(here.shadow, "restore.journal", "damaged")
    assert here.open().recovered is None
    assert (here.shadow / "restore.damaged").read_text() == "damaged"


@pytest.mark.req("O1", "O3")
def test_a_restore_leaves_the_users_repository_as_it_is(here: Scene) -> None:
    git(here.tree, "init", "--quiet")
    write(here.tree, "a", "1")
    git(here.tree, "add", "a")
    git(here.tree, "commit", "--quiet", "-m", "x")
    repository = here.open()
    repository.snapshot("0")
    write(here.tree, "a", "2")
    before = state(here.tree / ".git")
    repository.restore("0", hard=True)
    assert state(here.tree / ".git") == before
    assert (here.tree / "a").read_text() == "1"


@pytest.mark.req("O3")
def test_a_restore_that_could_not_end_is_finished_before_anything_else(
    here: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = varied(here.tree)
    repository = here.open()
    repository.snapshot("0")
    all_changed(here.tree)
    changed = state(here.tree)
    with monkeypatch.context() as failing:
        failing.setattr(restore._RestoreRun, "place", lambda _: os.stat("/no such file"))
        with pytest.raises(CheckpointError, match="cannot be used"):
            repository.restore("0")
    assert state(here.tree) != before
    assert repository.snapshots()
    assert repository.recovered is not None
    assert state(here.tree) == before
    undo = repository.recovered.undo
    assert here.open().recovered is None
    repository.restore(undo)
    assert state(here.tree) == changed


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_that_is_replaced_keeps_its_owner(here: Scene) -> None:
    path = write(here.tree, "a", "1", 0o4755)
    repository = here.open()
    repository.snapshot("0")
    path.write_text("2")
    os.chown(path, 65534, 65534)
    repository.restore("0")
    after = path.stat()
    assert (after.st_uid, after.st_gid, after.st_mode & 0o7777) == (65534, 65534, 0o4755)
    assert path.read_text() == "1"
