"""Fixtures of the fault tests: the shared fork server, folders and stores, and skips for missing tools."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.faults import mounts, system_calls
from tests.faults.empty_stores import KINDS, empty_store
from tests.faults.fork_server import ForkServer
from tests.harness.thoroughness import LONG

MEMORY = Path("/dev/shm")


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    if not hasattr(os, "pidfd_open"):
        pytest.skip("fault tests need Linux")
    mounts.missing()  # enters the private namespace, so that workers see later mounts
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder: in memory in the quick version, where a sync costs nothing, else on the disk."""
    if LONG or not MEMORY.is_dir():
        yield tmp_path
        return
    with TemporaryDirectory(prefix="turnstate-", dir=MEMORY, ignore_cleanup_errors=True) as path:
        yield Path(path)


@pytest.fixture(params=KINDS)
def store_url(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """The URL of an empty store, for each kind that processes can share."""
    with empty_store(request.param, folder) as url:
        yield url


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder to mount file systems in."""
    if reason := mounts.missing():
        pytest.skip(reason)
    return tmp_path


@pytest.fixture
def traced() -> None:
    """Skip the test if strace does not work."""
    if reason := system_calls.missing():
        pytest.skip(reason)
