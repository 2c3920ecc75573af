"""A file that another program writes in place is captured whole or not at all, and the user is told.

A process of its own rewrites a file in place, in small pieces, all of them with the same byte: a capture of
two kinds of bytes is torn. It never holds still, or rests between two rounds.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness.thoroughness import report, runs
from turnstate.checkpoints import ShadowRepository
from turnstate.shadow import new_snapshot as snapshot
from turnstate.shadow.values import Snapshot

SIZE, PIECE = 1 << 20, 4096
WRITER = """
import os, sys, time
file, rest = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), float(sys.argv[2])
letter = 0
while True:
    letter = (letter + 1) % 26
    for place in range(0, {SIZE}, {PIECE}):
        os.pwrite(file, bytes([97 + letter]) * {PIECE}, place)
    if letter == 1:
        print("written", flush=True)
    time.sleep(rest)
""".replace("{SIZE}", str(SIZE)).replace("{PIECE}", str(PIECE))


@contextmanager
def written_in_place(path: Path, *, rest: float = 0) -> Iterator[None]:
    """Let a process rewrite a file in place, with rests of so many seconds between two rounds."""
    command = [sys.executable, "-c", WRITER, str(path), str(rest)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "written\n"
            yield
        finally:
            process.kill()


def captures(tmp_path: Path, count: int, *, rest: float = 0) -> Iterator[tuple[Snapshot, bytes | None]]:
    """Take snapshots while a file is written; yield each with its content of that file."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "still").write_text("still")
    repository = ShadowRepository.open(tmp_path / "shadow", tree)
    with written_in_place(tree / "moving", rest=rest):
        for number in range(count):
            taken = repository.snapshot(f"t{number}")
            yield taken, content(repository, taken, "moving")


def content(repository: ShadowRepository, taken: Snapshot, name: str) -> bytes | None:
    """Return the bytes of a file in a snapshot, or None if it is not in it."""
    git = ["git", "--git-dir", str(repository.folder / "repository"), "cat-file", "blob"]
    asked: Any = subprocess.run([*git, f"{taken.commit}:files/{name}"], capture_output=True)
    return asked.stdout if asked.returncode == 0 else None


def is_torn(data: bytes | None) -> bool:
    return data is not None and len(set(data)) > 1


@pytest.mark.req("O1")
def test_a_file_that_never_holds_still_is_left_out_and_named(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    whole = left = 0
    for taken, data in captures(tmp_path, runs(3, long=60)):
        assert not is_torn(data)
        moving = [one.path for one in taken.left_out if one.moving]
        assert moving == ([b"moving"] if data is None else [])
        whole, left = whole + (data is not None), left + (data is None)
    report(record_property, "captures of a file that never holds still", whole=whole, left_out=left)
    assert left


@pytest.mark.req("O1")
def test_a_file_that_rests_is_captured_whole(tmp_path: Path) -> None:
    for _, data in captures(tmp_path, 1_000, rest=0.3):
        assert not is_torn(data)
        if data is not None and len(data) == SIZE:
            return
    pytest.fail("it was never captured")


def test_a_capture_that_trusts_a_single_read_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot._Capture, "_held_still", lambda *_: True)
    assert any(is_torn(data) for _, data in captures(tmp_path, 1_000))


@pytest.mark.req("O1")
def test_a_hard_restore_leaves_a_file_alone_that_was_being_written(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "moving").write_bytes(b"before")
    repository = ShadowRepository.open(tmp_path / "shadow", tree)
    repository.snapshot("first")
    with written_in_place(tree / "moving"):
        for _ in range(100):
            if (taken := repository.snapshot("moving")).left_out:
                break
    assert taken.left_out
    assert taken.changes.deleted == ()
    repository.snapshot("after")
    repository.restore("moving", hard=True)
    assert len((tree / "moving").read_bytes()) == SIZE


def test_a_file_that_an_editor_saves_during_the_capture_is_captured_as_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Editors write a new file and rename it, so the one that was listed is gone."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "notes").write_text("old")
    really = snapshot.read_regular

    def saved_first(path: bytes, **given: Any) -> Any:
        monkeypatch.undo()
        (tree / "draft").write_text("new")
        (tree / "draft").rename(tree / "notes")
        return really(path, **given)

    monkeypatch.setattr(snapshot, "read_regular", saved_first)
    repository = ShadowRepository.open(tmp_path / "shadow", tree)
    taken = repository.snapshot("saved")
    assert taken.left_out == ()
    assert content(repository, taken, "notes") == b"new"
