from __future__ import annotations

from pathlib import Path

import pytest
from session_stage import Stage


@pytest.fixture(params=["memory", "sqlite"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    return Stage(request.param, tmp_path)
