"""The fork_server that all fault tests of a process share, and what is skipped where a tool is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import mounts
import pytest
import system_calls
from empty_stores import KINDS, empty_store
from fork_server import ForkServer
from thoroughness import LONG

MEMORY = Path("/dev/shm")


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    if not hasattr(os, "pidfd_open"):
        pytest.skip("fault tests need Linux")
    mounts.missing()  # enters the private namespace first, so that workers see what is mounted later
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for files: in memory in the quick version, where a sync costs nothing, else on the disk."""
    if LONG or not MEMORY.is_dir():
        yield tmp_path
        return
    with TemporaryDirectory(prefix="turnstate-", dir=MEMORY, ignore_cleanup_errors=True) as path:
        yield Path(path)


@pytest.fixture(params=KINDS)
def store_url(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """The URL of an empty store, of each kind that processes share."""
    with empty_store(request.param, folder) as url:
        yield url


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder to mount things in."""
    if reason := mounts.missing():
        pytest.skip(reason)
    return tmp_path


@pytest.fixture
def traced() -> None:
    """Ask for strace."""
    if reason := system_calls.missing():
        pytest.skip(reason)
