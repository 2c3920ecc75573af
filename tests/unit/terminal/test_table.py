from __future__ import annotations

from turnstate.terminal.screen import table


def test_columns_line_up_whatever_script_they_are_in() -> None:
    shown = table(["id", "tokens", "title"], [["a", "1,000", "x"], ["会話", "5", "y"]], right=["tokens"])
    assert shown.splitlines() == ["id    tokens  title", "a      1,000  x", "会話       5  y"]


def test_a_cell_stays_one_harmless_line_of_bearable_length() -> None:
    (_, line) = table(["title"], [["a\nb\x1b[31m" + "x" * 500]]).splitlines()
    assert line.startswith(r"a\nb\x1b[31mxxx")
    assert len(line) < 220


def test_a_table_without_rows_has_its_heading() -> None:
    assert table(["id", "user"], []) == "id  user"
