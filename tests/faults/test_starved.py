"""A process without descriptors, or SQLite without memory: typed errors, nothing lost, usable afterwards.

Each operation is tried with nothing left, then with a little more, until it succeeds (`starved_process`).
`make test` takes large steps, `make faults` steps of one descriptor or 512 bytes.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.programs import environment, program
from tests.harness.thoroughness import LONG, report

STEPS = {"descriptors": 1 if LONG else 2, "memory": 1}
LATER = 8  # descriptors of connections that a store opens when it first needs them
BYTES = 512 if LONG else 32_768  # of a step of memory


def starved(folder: Path, operation: str, scarce: str, *plant: str, step: int = 0) -> list[Any]:
    """Run an operation again and again with more of what is scarce; return what happened each time."""
    every = str(step or STEPS[scarce])
    command = program("tests.faults.starved_process", folder, operation, scarce, every, *plant)
    told = environment(MEMORY_STEP=str(BYTES))
    done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=380, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def wrong(tries: list[Any]) -> list[str]:
    """Return what must not happen, with the amount that was left."""
    found = list[str]()
    for one in tries:
        left = f"with {one['left']} left: "
        found += [left + one["error"]] * one["error"].startswith("not typed")
        found += [left + f"refused with enough again: {one['again']}"] * bool(one["again"])
        found += [left + what for what in one["broken"]]
    stay_open = sum(one["leaked"] for one in tries)
    return found + [f"{stay_open} descriptors stay open"] * (stay_open > LATER)


@pytest.mark.req("G6")
@pytest.mark.parametrize(
    "operation", ["first", "open", "cut", "restore", "deliver"] if LONG else ["open", "restore"]
)
def test_without_descriptors_errors_are_typed_and_nothing_is_lost(
    operation: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    tries = starved(tmp_path, operation, "descriptors", step=20 if operation == "restore" and not LONG else 0)
    errors = sum(bool(one["error"]) for one in tries)
    report(record_property, f"no descriptors: {operation}", tries=len(tries), errors=errors)
    assert wrong(tries) == []
    assert not tries[-1]["error"]
    assert errors or operation in ("cut", "deliver")  # these need none once everything is open


@pytest.mark.req("G6")
@pytest.mark.parametrize(
    "operation",
    ["append", "first", "open", "cut", "read", "restore", "deliver"]
    if LONG
    else ["cut", "restore", "deliver"],
)
def test_without_memory_errors_are_typed_and_nothing_is_lost(
    operation: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    tries = starved(tmp_path, operation, "memory")
    errors = sum(bool(one["error"]) for one in tries)
    report(record_property, f"no memory: {operation}", tries=len(tries), errors=errors)
    assert wrong(tries) == []
    assert not tries[-1]["error"]
    assert errors


@pytest.mark.parametrize(
    ("operation", "scarce"),
    [("first", "descriptors"), ("append", "memory")] if LONG else [("append", "memory")],
)
def test_a_store_that_hides_the_shortage_is_caught(operation: str, scarce: str, tmp_path: Path) -> None:
    tries = starved(tmp_path, operation, scarce, "hides errors")
    assert any("lost: " in what for what in wrong(tries))
