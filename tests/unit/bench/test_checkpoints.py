"""The checkpoint bench runs on a tiny tree, and both sides keep and bring back the same files."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import checkpoints


def test_all_steps_are_measured_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoints.report(tmp_path / "x", 120, rounds=1)
    said = capsys.readouterr().out
    assert "120 files" in said
    assert all(step in said for step in (*checkpoints.STEPS, "disk"))


@pytest.mark.parametrize("kind", [checkpoints.Ours, checkpoints.PlainGit])
def test_both_sides_bring_back_what_they_kept(kind: type[checkpoints.Ours], tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    checkpoints.grow(tree, 60)
    before = {path: path.read_text() for path in tree.rglob("*.py")}
    keeper = kind(tmp_path / "kept", tree)
    keeper.keep("start")
    checkpoints.change(tree, 1)
    assert sum(path.read_text() != text for path, text in before.items()) == checkpoints.CHANGED
    keeper.keep("changed")
    keeper.bring_back("start")
    assert {path: path.read_text() for path in tree.rglob("*.py")} == before
    assert checkpoints.disk(tmp_path / "kept") > 0
