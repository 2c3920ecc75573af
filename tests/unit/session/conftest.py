from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.session.session_fixtures import Harness


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of a session in memory; a module with ``ON_DISK`` runs them on SQLite, too.

    That is where durability, processes, threads or locks matter. The contract of stores proves the rest.
    """
    marks = metafunc.definition.iter_markers("parametrize")
    if "harness" in metafunc.fixturenames and not any(mark.args[0] == "harness" for mark in marks):
        kinds = ["memory", "sqlite"] if getattr(metafunc.module, "ON_DISK", False) else ["memory"]
        metafunc.parametrize("harness", kinds, indirect=True)


@pytest.fixture
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Harness:
    return Harness(request.param, tmp_path)
