"""Every requirement that `docs/requirements.md` lists as done has a test that carries its number."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "requirements.md"
ROW = re.compile(
    r"^\| (?P<number>[A-P]\d+) \| (?P<text>[^|]+) \| (?P<state>done|partly|open) \| (?P<tests>[^|]*) \|$"
)
MARK = re.compile(r"^(?:@|pytestmark = .*|    )pytest\.mark\.req\(([^)]*)\)", re.MULTILINE)
"""A mark of a test, a class or a file."""


def rows() -> list[re.Match[str]]:
    found = [ROW.match(line) for line in PAGE.read_text().splitlines() if re.match(r"\| [A-P]\d", line)]
    assert all(found), "a row of the table is not of the form | A1 | text | done | test |"
    return [match for match in found if match]


@cache
def carried() -> dict[str, set[str]]:
    """Return the numbers that tests carry, with the paths of the test files."""
    numbers: dict[str, set[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        source = path.read_text()
        if "mark.req(" not in source:
            continue
        for marks in MARK.findall(source):
            for number in re.findall(r'"(\w+)"', marks):
                numbers.setdefault(number, set()).add(path.relative_to(TESTS).as_posix())
    return numbers


def test_the_page_lists_every_number_once() -> None:
    counts = {"A": 8, "B": 3, "C": 10, "D": 7, "E": 4, "F": 6, "G": 9, "H": 4}
    counts |= {"I": 9, "J": 4, "K": 4, "L": 4, "M": 2, "N": 3, "O": 4, "P": 4}
    expected = [f"{letter}{n}" for letter, count in counts.items() for n in range(1, count + 1)]
    assert [row["number"] for row in rows()] == expected


def test_what_is_listed_has_a_test_that_carries_its_number() -> None:
    for row in rows():
        named = re.findall(r"`([^`]+)`", row["tests"])
        if row["state"] == "open":
            assert named == [], f"{row['number']} is open and names tests"
            continue
        assert named, f"{row['number']} names no test"
        missing = set(named) - carried().get(row["number"], set())
        assert not missing, f"{row['number']} is not carried by {sorted(missing)}"


def test_tests_carry_only_numbers_that_exist() -> None:
    assert set(carried()) <= {row["number"] for row in rows()}
