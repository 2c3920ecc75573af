"""A place of one's own for commands that keep sessions."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name a new store, and let the commands find it and an empty home."""
    found = f"sqlite:///{tmp_path}/agent.db"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TURNSTATE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TURNSTATE_STORE", found)
    return found
