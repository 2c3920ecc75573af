"""Offload happens once in effect, wherever a worker is killed: every point is tried."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.faults.killed_worker import is_whole
from tests.harness.programs import environment, program


def reports(folder: Path, bug: str = "") -> list[dict[str, Any]]:
    done = subprocess.run(
        program("tests.faults.killed_worker", folder, bug),
        env=environment(),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.req("F2", "F3")
def test_wherever_a_worker_is_killed_the_next_leaves_every_message_once(tmp_path: Path) -> None:
    *killed, undisturbed = reports(tmp_path)
    assert len(killed) > 20
    assert all(report["killed"] for report in killed)
    assert not undisturbed["killed"]
    assert [report for report in [*killed, undisturbed] if not is_whole(report)] == []


@pytest.mark.parametrize("bug", ["forgetful", "hasty"])
def test_a_planted_bug_is_caught(tmp_path: Path, bug: str) -> None:
    assert not all(is_whole(report) for report in reports(tmp_path, bug))
