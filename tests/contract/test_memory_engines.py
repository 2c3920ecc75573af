"""Every engine that Turnstate ships keeps the promises of the contract, and so can one of another package."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.postgres_server import execute, fresh_url
from turnstate.memory import MemoryEngine, open_engine
from turnstate.stores.postgres.server import target
from turnstate.testing import MemoryContract

pytestmark = pytest.mark.req("F1", "F4", "F5")


class TestSqliteMemory(MemoryContract):
    @pytest.fixture(autouse=True)
    def fresh(self, tmp_path: Path) -> None:
        self.name = f"builtin:{tmp_path / 'memory.db'}"

    async def connect(self) -> MemoryEngine:
        return await open_engine(self.name)


class TestPostgresMemory(MemoryContract):
    @pytest.fixture(autouse=True)
    def fresh(self) -> Iterator[None]:
        with fresh_url() as url:
            self.name = f"builtin:{url}"
            yield
            execute(f"DROP SCHEMA IF EXISTS {target(url).schema}_memory CASCADE")

    async def connect(self) -> MemoryEngine:
        return await open_engine(self.name)


def documented_engine() -> str:
    """Return the engine that the page on memory shows, as a module."""
    page = (Path(__file__).parents[2] / "docs/memory.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (engine,) = [block for block in blocks if "class Questions:" in block]
    return "from turnstate.memory import User\n" + engine


class TestEngineOfAnotherPackage(MemoryContract):
    """The engine that the documentation shows keeps the promises, too, installed with its entry point."""

    @pytest.fixture(autouse=True)
    def installed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "my_package.py").write_text(documented_engine())
        info = tmp_path / "my_package-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_package\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[turnstate.memory]\nquestions = my_package:connect\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "my_package", raising=False)

    async def connect(self) -> MemoryEngine:
        return await open_engine("questions:anywhere")
