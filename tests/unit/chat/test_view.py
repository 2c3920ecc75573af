"""What a user sees of a call before it runs: all of it, and nothing that looks like something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnstate import ToolCallRequest
from turnstate.chat.view import MAX_COMPARED_LINES, NO_LINE_FEED, call_line, proposal_lines
from turnstate.tools import WorkspaceFiles
from turnstate.tools.workspace import MAX_READ


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
    assert edit[2:] == ["-x", NO_LINE_FEED, "+y", NO_LINE_FEED, "every: true"]


def test_only_a_line_feed_begins_a_line(tmp_path: Path) -> None:
    command = "echo a\x0becho b\x85echo c\u2028echo d\recho e"
    assert lines(tmp_path, "run_command", command=command) == [f"$ {command}"]
    header = lines(tmp_path, "write_file", path="a\n+fake", content="new\n")
    assert header[1:3] == ["--- a\\n+fake", "+++ a\\n+fake"]


def test_a_change_is_never_called_none(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    assert lines(tmp_path, "write_file", path="a", content="one\n") == ["a stays as it is"]
    assert lines(tmp_path, "write_file", path="a", content="one")[-3:] == ["-one", "+one", NO_LINE_FEED]
    assert lines(tmp_path, "write_file", path="a", content="two\n")[-2:] == ["-one", "+two"]


def test_an_edit_shows_both_texts_in_full_and_where_they_have_no_line_feed(tmp_path: Path) -> None:
    header = ["--- a", "+++ a"]
    for old, new, shown in (
        ("#", "#\n", ["-#", NO_LINE_FEED, "+#"]),  # each comment goes to the next line, and is code
        ("foo\n", "bar", ["-foo", "+bar", NO_LINE_FEED]),  # the next line is joined
        ("foo\n", "bar\n", ["-foo", "+bar"]),
        ("same\nx\n", "same\ny\n", ["-same", "-x", "+same", "+y"]),
        ("x\n", "", ["-x"]),
        ("\n\n", "\n", ["-", "-", "+"]),
        ("x", "x", ["-x", NO_LINE_FEED, "+x", NO_LINE_FEED]),
    ):
        assert lines(tmp_path, "edit_file", path="a", old=old, new=new) == [*header, *shown], (old, new)


def test_a_file_that_is_no_text_is_not_taken_for_one_that_looks_alike(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x\xff\n")
    shown = lines(tmp_path, "write_file", path="a", content="x\ufffd\n")
    assert "is not UTF-8" in shown[0]
    assert shown[-2:] == ["-x\udcff", "+x\ufffd"]
    for name, content in (("new", ""), ("new", "x\n")):
        assert "does not exist" in lines(tmp_path, "write_file", path=name, content=content)[0]
    (tmp_path / "large").write_bytes(b"x" * (MAX_READ + 1))
    assert "bytes; at most" in lines(tmp_path, "write_file", path="large", content="x\n")[0]


def test_texts_that_would_take_long_to_compare_are_shown_whole(tmp_path: Path) -> None:
    content = "ab\nba\n" * MAX_COMPARED_LINES
    shown = lines(tmp_path, "write_file", path="a", content=content)
    assert [line[1:] for line in shown[3:]] == content.removesuffix("\n").split("\n")


@pytest.mark.parametrize("written", ['{"path": "/et', "null"])
def test_arguments_that_are_not_an_object_are_shown_as_they_are(written: str) -> None:
    assert written in call_line(ToolCallRequest(name="ls", args={}, raw=written))
