"""Migrations: all of one or nothing of it, whenever a process dies and however many open a file at once.

`make test` kills one migration before every fifth statement, `make faults` four before every statement.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.programs import environment, program
from tests.harness.thoroughness import LONG
from turnstate.stores.sqlite.queries import MIGRATIONS

pytestmark = pytest.mark.req("G3", "G6")

STEP = 1 if LONG else 5


def lines(*arguments: object) -> list[Any]:
    """Run the program, and return what it printed."""
    command = program("tests.faults.migration_process", *arguments)
    ended = subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=True, timeout=300
    )
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 2), (1, 3), (0, 3)] if LONG else [(0, 3)])
def test_a_migration_that_is_killed_before_any_statement_is_all_or_nothing(
    before: int, after: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    runs = lines("killed", tmp_path, before, after, STEP)
    run, left, finished = runs[0::3], runs[1::3], runs[2::3]
    whole = finished[-1]
    assert [one["died"] for one in run] == [True] * (len(run) - 1) + [False]
    assert len(run) > 5
    assert whole[0] == after
    nothing = left[0]
    assert nothing[0] == before
    assert all(one in (nothing, whole) for one in left)
    assert left.count(nothing) > 3
    assert left.count(whole) > (1 if LONG else 0)
    assert all(one == whole for one in finished)
    record_property("counted", ("migrations killed", {"runs": len(run), "half done": 0}))


def test_a_migration_without_a_transaction_is_caught(tmp_path: Path) -> None:
    runs = lines("killed", tmp_path, 0, 3, STEP, "loosely")
    left, whole = runs[1::3], runs[-1]
    assert any(one not in (left[0], whole) for one in left)


def test_processes_that_open_a_new_file_at_once_make_one_store(tmp_path: Path) -> None:
    for opened in lines("together", tmp_path, 8, 3 if LONG else 1):
        assert opened == {"statuses": [0] * 8, "sessions": 8, "version": len(MIGRATIONS) + 2}
