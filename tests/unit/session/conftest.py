from __future__ import annotations

from pathlib import Path

import pytest
from session_stage import Stage


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of a session in memory; a module with ``ON_DISK`` runs them on SQLite, too.

    That is where durability, processes, threads or locks matter. The contract of stores proves the rest.
    """
    marks = metafunc.definition.iter_markers("parametrize")
    if "stage" in metafunc.fixturenames and not any(mark.args[0] == "stage" for mark in marks):
        kinds = ["memory", "sqlite"] if getattr(metafunc.module, "ON_DISK", False) else ["memory"]
        metafunc.parametrize("stage", kinds, indirect=True)


@pytest.fixture
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    return Stage(request.param, tmp_path)
