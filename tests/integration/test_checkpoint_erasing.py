"""Who erases a session erases the copies of its files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.integration.checkpoint_talk import Desk, played
from turnstate import SessionManager
from turnstate.errors import CheckpointsBusy
from turnstate.shadow.git import locked


@pytest.mark.req("G9")
@pytest.mark.parametrize("how", ["erase", "destroy"])
@played
async def test_erasing_a_session_leaves_no_copy_of_its_files(desk: Desk, how: str) -> None:
    async with desk.started(home=desk.home) as talk:
        await talk.turn("one", {"a": "1\n"})
        folder, kept = talk.checkpoints.repository.folder, desk.id
    (folder.parent / f".{folder.name}.0123456789abcdef.tmp").mkdir()  # a removal that was killed
    desk.id = ""
    async with desk.started(home=desk.home) as other, other_sessions(desk) as sessions:
        if how == "erase":
            receipt = await sessions.erase(session=kept)
            assert (receipt.checkpoints, list(receipt.sessions)) == (1, [kept])
        else:
            await sessions.destroy(kept)
        others = other.checkpoints.repository.folder
        assert list(folder.parent.iterdir()) == [others]
        assert (await other.checkpoints.keep("still there")).label == "1"
        receipt = await sessions.erase(session=other.session.id)
        assert (receipt.checkpoints, list(folder.parent.iterdir())) == (1, [])
    assert desk.files["a"] == "1\n"


@asynccontextmanager
async def other_sessions(desk: Desk) -> AsyncIterator[SessionManager]:
    async with await SessionManager.open(desk.url, home=desk.home) as sessions:
        yield sessions


@pytest.mark.req("G9")
@played
async def test_the_home_of_the_environment_is_where_erasing_looks(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNSTATE_HOME", str(desk.home.path))
    async with desk.started() as talk:
        folder = talk.checkpoints.repository.folder
        async with await SessionManager.open(desk.url) as sessions:
            assert (await sessions.erase(session=desk.id)).checkpoints == 1
        assert not folder.exists()


@pytest.mark.req("G9")
@played
async def test_while_somebody_is_at_work_on_the_files_nothing_is_erased(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnstate.shadow.git._LOCK_SECONDS", 0.05)
    async with desk.started(home=desk.home) as talk, other_sessions(desk) as sessions:
        with locked(talk.checkpoints.repository.folder), pytest.raises(CheckpointsBusy):
            await sessions.erase(session=desk.id)
        assert (await sessions.open(desk.id)).id == desk.id
        assert (await sessions.erase(session=desk.id)).checkpoints == 1


@pytest.mark.req("G9")
@played
async def test_damaged_checkpoints_are_erased_all_the_same(desk: Desk) -> None:
    async with desk.started(home=desk.home) as talk, other_sessions(desk) as sessions:
        (talk.checkpoints.repository.folder / "lock").unlink()
        assert (await sessions.erase(session=desk.id)).checkpoints == 1
        assert list(talk.checkpoints.repository.folder.parent.iterdir()) == []


AS_SOMEBODY = """
import os, sys
from pathlib import Path
from turnstate.checkpoints import ShadowRepository
from turnstate.shadow.folder import discard
from turnstate.shadow.folder import folder_for
from turnstate.home import Home
folder, user = sys.argv[1], int(sys.argv[2])
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
home, tree = Home(folder + "/home"), Path(folder, "work")
shadow = folder_for(home, "", "x")

def close():
    for path in sorted(shadow.rglob("*"), reverse=True):
        path.chmod(0)
    shadow.chmod(0)

ShadowRepository.open(shadow, tree).snapshot("0")
close()
(tree / "a").write_text("2")
ShadowRepository.open(shadow, tree).restore("0")
close()
print((tree / "a").read_text(), discard(home, "", "x") > 0, shadow.exists())
"""


@pytest.mark.req("G9", "O4")
def test_checkpoints_that_are_closed_to_their_owner_are_opened_and_removed() -> None:
    user = 65534 if os.geteuid() == 0 else os.geteuid()
    with TemporaryDirectory() as folder:
        (Path(folder) / "work").mkdir()
        (Path(folder) / "work" / "a").write_text("1")
        for path in (Path(folder) / "work" / "a", Path(folder) / "work", folder):
            os.chown(path, user, -1)
        command = [sys.executable, "-c", AS_SOMEBODY, folder, str(user)]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd="/", env={**os.environ, "HOME": folder}
        )
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip(f"another user cannot run this Python: {done.stderr.splitlines()[-1]}")
    assert done.stdout.split() == ["1", "True", "False"], done.stderr
