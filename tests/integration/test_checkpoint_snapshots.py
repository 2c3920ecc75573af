"""Snapshots hold the files of a moment, are told apart, and read only what changed."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from tests.integration.checkpoint_scene import Scene, scene, state, write
from turnstate.checkpoints import Changes, SnapshotLimits
from turnstate.errors import CheckpointError, GitMissing, NewerFormat, UnknownCheckpoint, WorkTreeRefused
from turnstate.shadow import folder, packs
from turnstate.shadow import new_snapshot as capture


@pytest.fixture
def here(tmp_path: Path) -> Scene:
    return scene(tmp_path)


def reads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """List the files that are read from now on."""
    read, seen = capture.read_regular, list[bytes]()

    def listening(path: bytes, **options: object) -> object:
        seen.append(os.path.basename(path))
        return read(path, **options)

    monkeypatch.setattr(capture, "read_regular", listening)
    return seen


def settled(path: Path) -> None:
    """Wait until a later change of the file would show."""
    while time.time_ns() < path.stat().st_ctime_ns + 150_000_000:
        time.sleep(0.01)


@pytest.mark.req("O2")
def test_a_snapshot_says_what_changed_since_the_last_one(here: Scene) -> None:
    write(here.tree, "a", "1")
    write(here.tree, "d/b", "1")
    repository = here.open()
    assert repository.snapshot("0").changes == Changes(added=(b"a", b"d/b"))
    write(here.tree, "a", "2")
    write(here.tree, "c", "1")
    (here.tree / "d" / "b").unlink()
    changes = repository.snapshot("1").changes
    assert changes == Changes(added=(b"c",), modified=(b"a",), deleted=(b"d/b",))
    assert here.git("fsck", "--strict") == ""


@pytest.mark.req("O2")
def test_snapshots_are_listed_in_the_order_in_which_they_were_taken(here: Scene) -> None:
    repository = here.open(clock=lambda: 1_700_000_000.5)
    for tag in ("0", "1.1", "1.2", "1", "2.1", "1.2"):
        write(here.tree, "a", tag + str(time.time_ns()))
        repository.snapshot(tag, f"turn {tag}\nand more")
    listed = repository.snapshots()
    assert [one.tag for one in listed] == ["0", "1.1", "1", "2.1", "1.2"]
    assert {one.seconds for one in listed} == {1_700_000_000}
    assert listed[0].message == "turn 0\nand more"


def test_changes_are_noticed_before_a_snapshot_is_taken(here: Scene) -> None:
    repository = here.open()
    assert repository.has_changes()
    write(here.tree, "a", "1")
    repository.snapshot("0")
    assert not repository.has_changes()
    (here.tree / "a").chmod(0o600)
    assert repository.has_changes()
    repository.snapshot("1")
    (here.tree / "empty").mkdir()
    assert repository.has_changes()
    assert repository.snapshot("2").changes == Changes(added=(b"empty/",))


@pytest.mark.req("O1")
def test_taking_a_snapshot_changes_nothing_in_the_work_tree(here: Scene) -> None:
    write(here.tree, "a", "1", 0o600)
    before, when = state(here.tree), (here.tree / "a").stat()
    repository = here.open()
    repository.snapshot("0")
    repository.diff("0")
    after = (here.tree / "a").stat()
    assert state(here.tree) == before
    assert (after.st_mtime_ns, after.st_ctime_ns) == (when.st_mtime_ns, when.st_ctime_ns)


def test_files_that_did_not_change_are_not_read_again(here: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        settled(write(here.tree, name, name))
    here.open().snapshot("0")
    seen = reads(monkeypatch)
    write(here.tree, "b", "2")
    here.open().snapshot("1")
    assert {*seen} == {b"b"}  # twice, if it is too new to tell whether it is still being written


def test_a_file_that_was_just_written_is_read_again(here: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(here.tree, "a", "1")
    repository = here.open()
    with monkeypatch.context() as at_once:
        at_once.setattr(time, "time_ns", lambda: path.stat().st_ctime_ns + 1_000_000)
        repository.snapshot("0")
    seen = reads(monkeypatch)
    repository.snapshot("1")
    assert seen == [b"a"]


def test_a_change_that_keeps_size_and_time_is_noticed(here: Scene) -> None:
    path = write(here.tree, "a", "1")
    repository = here.open()
    repository.snapshot("0")
    settled(path)
    repository.snapshot("1")
    when = path.stat()
    path.write_text("2")
    os.utime(path, ns=(when.st_atime_ns, when.st_mtime_ns))
    assert repository.snapshot("2").changes.modified == (b"a",)


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "foreign"])
def test_what_is_remembered_may_be_lost(damage: str, here: Scene) -> None:
    settled(write(here.tree, "a", "1"))
    repository = here.open()
    repository.snapshot("0")
    stamps = here.shadow / "stamps"
    data = bytearray(stamps.read_bytes())
    data[-1] ^= 1
    if damage == "gone":
        stamps.unlink()
    else:
        stamps.write_bytes({"cut": data[:-5], "flipped": data, "foreign": b"x"}[damage])
    packs = set((here.shadow / "repository" / "objects" / "pack").glob("*.pack"))
    assert not repository.snapshot("1").changes
    (new,) = set((here.shadow / "repository" / "objects" / "pack").glob("*.pack")) - packs
    assert new.stat().st_size < 300  # the commit alone: what is kept is not kept twice


@pytest.mark.req("O2")
def test_a_difference_is_told_in_lines_and_in_text(here: Scene) -> None:
    write(here.tree, "a", "one\ntwo\n")
    write(here.tree, "b", b"\0\1")
    write(here.tree, "c", "x")
    repository = here.open()
    repository.snapshot("0")
    write(here.tree, "a", "one\n2\n3\n")
    write(here.tree, "b", b"\0\2")
    write(here.tree, "c", "x", 0o640)
    live = repository.diff("0")
    assert [(file.path, file.lines_added, file.lines_removed, file.binary) for file in live.files] == [
        (b"a", 2, 1, False),
        (b"b", 0, 0, True),
        (b"c", 0, 0, False),
    ]
    assert "-two\n+2\n+3\n" in live.text
    assert "c" in live.text.splitlines()[-1]
    later = repository.snapshot("1")
    assert repository.diff("0", "1") == live == repository.diff("0", later.commit)
    assert repository.diff("1").files == ()


def test_comparing_with_live_files_keeps_nothing(here: Scene) -> None:
    write(here.tree, "a", "1")
    repository = here.open()
    repository.snapshot("0")
    write(here.tree, "a", "2" * 1000)
    before = state(here.shadow / "repository")
    repository.diff("0")
    assert state(here.shadow / "repository") == before


def test_many_packs_become_few_and_nothing_is_lost(here: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "MAX_PACKS", 3)
    repository = here.open()
    for number in range(9):
        write(here.tree, f"f{number}", f"{number}" * 50)
        repository.snapshot(f"{number}")
    assert len(list((here.shadow / "repository" / "objects" / "pack").glob("*.pack"))) <= 4
    assert here.git("fsck", "--strict", "--connectivity-only") == ""
    assert [len(here.kept(f"{number}")) for number in range(9)] == list(range(1, 10))


def test_an_unknown_checkpoint_is_told(here: Scene) -> None:
    repository = here.open()
    for name in ("7", "no such", "--all", "HEAD", "0" * 40, "refs/heads/history"):
        with pytest.raises(UnknownCheckpoint, match="no checkpoint"):
            repository.diff(name)


@pytest.mark.parametrize(
    "tag", ["a b", "../x", "a..b", "x.lock", "-x", "x.", "é", "x" * 200, "a/b", "x\n", "a" * 40]
)
def test_a_tag_that_git_could_not_keep_is_refused(tag: str, here: Scene) -> None:
    with pytest.raises(CheckpointError, match="not a valid tag"):
        here.open().snapshot(tag)


def test_cleaning_removes_the_checkpoints_and_no_file(here: Scene) -> None:
    write(here.tree, "a", "1")
    repository = here.open()
    repository.snapshot("0")
    assert repository.clean() > 0
    assert list(here.shadow.parent.iterdir()) == []
    assert (here.tree / "a").read_text() == "1"
    assert here.open().snapshots() == []


def test_too_many_files_are_refused_and_it_is_said_what_to_do(here: Scene) -> None:
    for number in range(5):
        write(here.tree, f"{number}")
    with pytest.raises(WorkTreeRefused, match="more than 4 files"):
        here.open(limits=SnapshotLimits(entries=4)).snapshot("0")


def test_checkpoints_of_another_folder_are_not_mistaken(here: Scene, tmp_path: Path) -> None:
    write(here.tree, "a", "1")
    here.open().snapshot("0")
    shutil.copytree(here.tree, tmp_path / "moved")
    moved = Scene(tmp_path / "moved", here.shadow)
    with pytest.raises(WorkTreeRefused, match="force it if the folder was moved"):
        moved.open()
    assert not moved.open(force=True).diff("0").files


def test_checkpoints_of_a_newer_version_are_left_alone(here: Scene) -> None:
    here.open()
    about = here.shadow / "about.json"
    about.write_text(about.read_text().replace('"format":1', '"format":2'))
    with pytest.raises(NewerFormat, match="update"):
        here.open()


def test_a_machine_without_git_is_told(here: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(here.tree))
    with pytest.raises(GitMissing, match="install git"):
        here.open()


def test_an_old_git_is_told(here: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "bin/git", "#!/bin/sh\necho git version 2.30.2\n", 0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(GitMissing, match=r"2\.36 or newer"):
        here.open()


def test_what_a_killed_process_left_is_swept(here: Scene) -> None:
    repository = here.open()
    repository.snapshot("0")
    inside = here.shadow / "repository"
    left = [
        "refs/heads/history.lock",
        "packed-refs.lock",
        "objects/pack/tmp_pack_x",
        "objects/pack/pack-1.pack",
    ]
    for name in left:
        write(inside, name)
    (inside / "rules-x").mkdir()
    here.open().snapshot("1")
    assert not any((inside / name).exists() for name in [*left, "rules-x"])
    assert [one.tag for one in here.open().snapshots()] == ["0", "1"]


@pytest.mark.parametrize(
    "name",
    [
        "refs/heads/history.lock",
        "config.lock",
        "objects/pack/tmp_pack_x",
        "objects/tmp_obj_x",
        "rules-x/0",
        "live-x/pack/0",
        "hooks/post-update",
        "../stamps.x.tmp",
    ],
)
def test_what_another_process_left_is_swept_by_one_that_has_the_checkpoints_open(
    name: str, here: Scene
) -> None:
    repository = here.open()
    repository.snapshot("0")
    write(here.shadow / "repository", name)
    repository.has_changes()
    assert not (here.shadow / "repository" / name).exists()


@pytest.mark.parametrize("name", ["HEAD", "config", "info/attributes", "info/exclude"])
def test_a_file_of_the_layout_that_was_damaged_meanwhile_is_rewritten(name: str, here: Scene) -> None:
    repository = here.open()
    repository.snapshot("0")
    path = here.shadow / "repository" / name
    before = path.read_bytes()
    path.write_bytes(b"x" * len(before) or b"x")
    repository.has_changes()
    assert path.read_bytes() == before


def test_nothing_is_swept_or_checked_while_no_file_has_changed(
    here: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = here.open()
    write(here.tree, "a", "1")
    repository.snapshot("0")

    def fail(*_: object) -> None:
        pytest.fail("files have not changed since they were checked")

    for name in ("sweep", "repair_layout"):
        monkeypatch.setattr(folder, name, fail)
    write(here.tree, "a", "2")
    repository.snapshot("1")
    repository.restore("0")
    assert not repository.has_changes()
