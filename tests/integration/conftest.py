"""What integration tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.integration.checkpoint_talk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A desk in memory, where that can be had: what the disk does is not asked here."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path, prefix="turnstate-") as folder:
        desk = Desk(Path(folder))
        desk.write(a="one\n", mine="user's\n")
        yield desk
