"""Several processes share the checkpoints of a work tree; damage is told and spreads to no file."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.checkpoint_scene import Scene, scene, write
from turnstate.checkpoints import ShadowRepository
from turnstate.errors import CheckpointError, CheckpointsBusy, CheckpointsDamaged, GitFailed
from turnstate.shadow import git
from turnstate.shadow.git import Git

TAKE = """
import sys
from turnstate.checkpoints import ShadowRepository
shadow, tree, name = sys.argv[1:]
for number in range(4):
    ShadowRepository.open(shadow, tree).snapshot(f"{name}.{number}")
"""


@pytest.fixture
def here(tmp_path: Path) -> Scene:
    return scene(tmp_path)


@pytest.mark.req("O2")
def test_processes_that_take_snapshots_at_once_lose_none(here: Scene) -> None:
    write(here.tree, "a", "1")
    command = [sys.executable, "-c", TAKE, str(here.shadow), str(here.tree)]
    running = [subprocess.Popen([*command, name]) for name in "abcd"]
    assert [process.wait() for process in running] == [0, 0, 0, 0]
    tags = {one.tag for one in here.open().snapshots()}
    assert tags == {f"{name}.{number}" for name in "abcd" for number in range(4)}
    assert len(here.git("rev-list", "refs/heads/history").split()) == 16
    assert here.git("fsck", "--strict") == ""
    assert [path.name for path in here.shadow.parent.iterdir()] == [here.shadow.name]


def test_whoever_waits_too_long_is_told(here: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = here.open()
    monkeypatch.setattr(git, "_LOCK_SECONDS", 0.05)
    with (here.shadow / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(CheckpointsBusy, match="another process"):
            repository.snapshot("0")
    repository.snapshot("0")


def test_a_folder_that_holds_something_else_is_not_taken(here: Scene) -> None:
    write(here.shadow, "mine", "1")
    with pytest.raises(CheckpointError, match="no checkpoints can be kept"):
        here.open()
    assert [path.name for path in here.shadow.iterdir()] == ["mine"]
    write(here.shadow, "about.json", "{}")
    with pytest.raises(CheckpointsDamaged, match="no checkpoints that can be read"):
        here.open()


def damage(here: Scene, blob: str) -> None:
    """Flip a byte of a blob in the pack that holds it."""
    for index in (here.shadow / "repository" / "objects" / "pack").glob("*.idx"):
        listed = subprocess.run(
            ["git", "show-index"], input=index.read_bytes(), capture_output=True, check=True
        )
        for line in listed.stdout.decode().splitlines():
            offset, id, *_ = line.split()
            if id == blob:
                pack = index.with_suffix(".pack")
                data = bytearray(pack.read_bytes())
                data[int(offset) + 3] ^= 0xFF
                pack.chmod(0o600)
                pack.write_bytes(data)


@pytest.mark.req("O3")
def test_damage_is_told_and_no_file_is_touched(here: Scene) -> None:
    write(here.tree, "a", "one" * 100)
    write(here.tree, "b", "one")
    repository = here.open()
    repository.snapshot("0")
    write(here.tree, "a", "two" * 100)
    write(here.tree, "b", "two")
    repository.snapshot("1")
    blob = here.git("rev-parse", "0:files/a").strip()
    damage(here, blob)
    with pytest.raises(CheckpointsDamaged, match=f"no file was changed: a is damaged .*{blob}"):
        repository.restore("0")
    assert {path.name: path.read_text() for path in here.tree.iterdir()} == {"a": "two" * 100, "b": "two"}
    assert here.open().recovered is None
    repository.restore("1")


def test_what_git_says_comes_with_the_error(here: Scene) -> None:
    here.open()
    with pytest.raises(GitFailed, match="git cat-file failed") as failure:
        Git(here.shadow / "repository").run("cat-file", "blob", "nothing")
    assert "Not a valid object name" in failure.value.stderr


def test_checkpoints_that_went_away_are_told(here: Scene) -> None:
    repository = here.open()
    ShadowRepository.open(here.shadow, here.tree).clean()
    with pytest.raises(CheckpointsDamaged, match="locked"):
        repository.snapshot("0")


def test_a_lock_of_checkpoints_that_were_removed_and_made_again_is_not_the_lock(
    here: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.open()
    really = fcntl.flock

    def overtaken(lock: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", really)
        here.open().clean()
        here.open()
        really(lock, how)

    monkeypatch.setattr(fcntl, "flock", overtaken)
    with git.locked(here.shadow) as lock, (here.shadow / "lock").open() as other:
        assert os.path.samestat(os.fstat(lock), os.fstat(other.fileno()))
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
