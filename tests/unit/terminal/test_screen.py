from __future__ import annotations

import os

import pytest

from turnstate.errors import ForbiddenJSON, InvalidConversation
from turnstate.plain_text import counted
from turnstate.terminal import screen


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("日本語 🌍 é", "日本語 🌍 é"),
        ("a\nb\rc\td", r"a\nb\rc\td"),
        ("\x1b[2J\x07\x00\x7f", r"\x1b[2J\x07\x00\x7f"),
        ("\u202e\u2028\u200b", r"\u202e\u2028\u200b"),
        (os.fsdecode(b"\xff\xe9"), r"\xff\xe9"),
        ("\ud800", r"\ud800"),
        ("\x9b31m", r"\x9b31m"),
    ],
)
def test_a_terminal_is_given_nothing_to_act_on(text: str, shown: str) -> None:
    assert screen.escaped(text) == shown


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    assert screen.escaped("a" * 50 + "b" * 50, limit=10) == "aaaaa…bbbbb"


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0 lines"), (1, "1 line"), (2, "2 lines"), (1234, "1,234 lines")]
)
def test_a_noun_follows_its_number(number: int, shown: str) -> None:
    assert counted(number, "line") == shown


def test_an_error_stands_after_the_places_noted_on_it() -> None:
    error = ForbiddenJSON("NaN is not JSON", path="$[0]")
    error.add_note("line 3")
    error.add_note("a.jsonl")
    assert screen.located(error) == "a.jsonl: line 3: NaN is not JSON (at $[0])"
    assert screen.located(InvalidConversation("too long")) == "too long"


def test_a_remark_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    screen.show("result")
    screen.say("two\nlines")
    assert capsys.readouterr() == ("result\n", "turnstate: two\\nlines\n")
