"""The search index of a file is continued only when a test asks for it, so that files can be compared."""

from __future__ import annotations

import pytest

from turnstate.stores.sqlite import writer


@pytest.fixture(autouse=True)
def _never_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "IDLE", 3_600)
