"""What a user sees of a call before it runs: all of it, and nothing that looks like something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnstate import ToolCallRequest
from turnstate.chat.view import MAX_COMPARED_LINES, call_line, proposal_lines
from turnstate.tools import WorkspaceFiles


def lines(folder: Path, name: str, **args: Any) -> list[str]:
    return proposal_lines(ToolCallRequest(name=name, args=args), WorkspaceFiles(folder))


def test_every_argument_is_shown_in_full(tmp_path: Path) -> None:
    long = "x" * 5_000
    assert lines(tmp_path, "tickets__close", id=7, text=f"{long}\nsecond", tags=["a"]) == [
        "tickets__close",
        "id: 7",
        f"text: {long}",
        "  second",
        "tags: [",
        '    "a"',
        "  ]",
    ]
    assert lines(tmp_path, "run_command", command="ls", seconds=3_600) == ["$ ls", "seconds: 3600"]
    edit = lines(tmp_path, "edit_file", path="a", old="x", new="y", every=True)
    assert edit[-3:] == ["-x", "+y", "every: true"]


def test_only_a_line_feed_begins_a_line(tmp_path: Path) -> None:
    command = "echo a\x0becho b\x85echo c\u2028echo d\recho e"
    assert lines(tmp_path, "run_command", command=command) == [f"$ {command}"]
    header = lines(tmp_path, "write_file", path="a\n+fake", content="new\n")
    assert header[:2] == ["--- a\\n+fake", "+++ a\\n+fake"]


def test_a_change_is_never_called_none(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    assert lines(tmp_path, "write_file", path="a", content="one\n") == ["a stays as it is"]
    assert lines(tmp_path, "write_file", path="a", content="one") == [
        "a: only the line feed at its end changes"
    ]
    assert lines(tmp_path, "write_file", path="a", content="two\n")[-2:] == ["-one", "+two"]


def test_texts_that_would_take_long_to_compare_are_shown_whole(tmp_path: Path) -> None:
    content = "ab\nba\n" * MAX_COMPARED_LINES
    shown = lines(tmp_path, "write_file", path="a", content=content)
    assert [line[1:] for line in shown[2:]] == content.removesuffix("\n").split("\n")


@pytest.mark.parametrize("written", ['{"path": "/et', "null"])
def test_arguments_that_are_not_an_object_are_shown_as_they_are(written: str) -> None:
    assert written in call_line(ToolCallRequest(name="ls", args={}, raw=written))
