"""Nothing that reads or writes the user's folder drops a lock that SQLite has on a store there.

A store is open in a work tree in which its files also have other names: links, second names, a bind mount.
Each test runs one reader over all of them. Then the system is asked which locks this process has.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.faults import mounts
from tests.harness.posix_locks import IN_USE, SHARED, is_locked
from turnstate import ToolCallRequest, ToolCallResult
from turnstate.chat.chat import Chat
from turnstate.chat.commands import sessions as chat_sessions
from turnstate.checkpoints import ShadowRepository
from turnstate.cli import destination, source
from turnstate.cli.commands import amazon_q, import_
from turnstate.config.source import read as read_config
from turnstate.conversation.edits import LineTracking
from turnstate.errors import TurnstateError
from turnstate.shadow.ignore import _read_plain_file
from turnstate.shadow.protected import Opened, UnreadableFile, check_main_file, read_regular
from turnstate.shadow.purge import _live_rules
from turnstate.shadow.work_tree import SafeTree
from turnstate.snapshots.folder import RefusedFile, SnapshotFolder
from turnstate.sticky.reading import ReadCache, Refused
from turnstate.stores.sqlite.connection import connect, migrate
from turnstate.tools import FILE_TOOLS, Approvals, Rule, ToolManager, WorkspaceFiles

STORE = "agent.db"
SIDES = ("", "-wal", "-shm")


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """A work tree with an open store whose files have many names."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "plain.txt").write_text("plain text\n")
    migrate(str(tree / STORE))
    with closing(connect(str(tree / STORE), write=True)) as db:
        db.execute("SELECT count(*) FROM session").fetchall()
        for number, side in enumerate(SIDES):
            os.link(tree / f"{STORE}{side}", tree / f"notes-{number}.txt")
            os.symlink(f"{STORE}{side}", tree / f"link-{number}.md")
        for name, side in ((".gitignore", "-shm"), ("about.json", "")):
            os.link(tree / f"{STORE}{side}", tree / name)
        (tree / "lock").touch()
        (tree / "repository").mkdir()
        mounted = list[Path]()
        for number, side in enumerate(SIDES) if not mounts.missing() else ():
            (bound := tree / f"bound-{number}.txt").touch()
            subprocess.run(["mount", "--bind", tree / f"{STORE}{side}", bound], check=True)
            mounted.append(bound)
        yield tree
        for bound in mounted:
            subprocess.run(["umount", bound], check=True)


def lost(tree: Path) -> list[str]:
    """Return the files of the store on which this process no longer has SQLite's locks."""
    locks = ((tree / STORE, SHARED), (tree / f"{STORE}-shm", IN_USE))
    return [path.name for path, lock in locks if not is_locked(path, lock)]


def disguises(tree: Path) -> list[Path]:
    return [one for one in sorted(tree.iterdir()) if one.is_file() and one.name not in ("lock", "plain.txt")]


def called(tree: Path, name: str, **args: Any) -> ToolCallResult:
    async def ran() -> ToolCallResult:
        manager = ToolManager(FILE_TOOLS, workspace=tree, approvals=Approvals([Rule("*", "allow")]))
        tracking = LineTracking(tree)
        calls = [ToolCallRequest(name=name, args=args)]
        (result,) = [one async for one in manager.run(calls, tracking=tracking)]
        return result

    return asyncio.run(ran())


def attach(path: Path) -> None:
    tools = SimpleNamespace(workspace=WorkspaceFiles(path.parent))
    Chat._with_files(cast("Chat", SimpleNamespace(tools=tools)), f"look at @{path.name}")


def chat(path: Path) -> Any:
    return SimpleNamespace(workspace=path.parent)


def gather(path: Path) -> None:
    ReadCache().text(str(path), path.stat(), time.time_ns)


def import_q(path: Path) -> None:
    with amazon_q.saved_conversations(str(path), key=None, everything=False) as (_, chosen):
        for one in chosen:
            one.read()


def import_lines(path: Path) -> None:
    with import_._bytes(str(path)) as (_, stream):
        stream.readline()


def read_document(path: Path) -> None:
    with source.opened(str(path)) as found:
        list(found.documents)


def write_result(path: Path) -> None:
    with destination.opened(str(path), force=True) as write:
        write("text")


def read_snapshot(path: Path) -> None:
    with SnapshotFolder.opened(path.parent, ()) as folder:
        folder.read(path.name, limit=10_000_000)


def head(path: Path) -> None:
    with Opened(os.fsencode(path), follow=True) as file:
        file.check()


def in_tree(path: Path) -> None:
    with SafeTree.opened(path.parent) as tree:
        tree.state_of(os.fsencode(path.name), most=10_000_000)
        tree.refusal(os.fsencode(path.name))


def set_mode(path: Path) -> None:
    with SafeTree.opened(path.parent) as tree:
        os.close(tree.set_mode(os.fsencode(path.name), 0o600))


READERS: dict[str, Callable[[Path], object]] = {
    "read_file": lambda path: called(path.parent, "read_file", path=path.name),
    "write_file": lambda path: called(path.parent, "write_file", path=path.name, content="text"),
    "edit_file": lambda path: called(path.parent, "edit_file", path=path.name, old="S", new="T"),
    "search_files": lambda path: called(path.parent, "search_files", pattern="SQLite", files=path.name),
    "list_files": lambda path: called(path.parent, "list_files", pattern=path.name, recursive=True),
    "the workspace": lambda path: WorkspaceFiles(path.parent).read(path.name),
    "@file": attach,
    "/load": lambda path: asyncio.run(chat_sessions.load(chat(path), path.name)),
    "/save": lambda path: chat_sessions._write(chat(path), path.name, "text", force=True),
    "sticky files": gather,
    "the line tracker": lambda path: LineTracking(path.parent).read(path),
    "import": import_lines,
    "import from Amazon Q": import_q,
    "a document": read_document,
    "a result": write_result,
    "a configuration of the workspace": lambda path: read_config(path.parent, path.name, place="workspace"),
    "a configuration of the user": lambda path: read_config(path.parent, path.name, place="user"),
    "a session snapshot": read_snapshot,
    "a head": head,
    "a side file": lambda path: check_main_file(os.fsencode(f"{path}-wal")),
    "a file to capture": lambda path: read_regular(os.fsencode(path), most=10_000_000),
    "a path to restore": in_tree,
    "a mode to restore": set_mode,
    "ignore rules": lambda path: _read_plain_file(path, 10_000),
    "ignore rules to purge": lambda path: list(_live_rules(path.parent, {b"": set()})),
}
EXPECTED = (TurnstateError, OSError, UnreadableFile, Refused, RefusedFile)


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_leaves_the_locks_of_a_store_alone(tree: Path, reader: str) -> None:
    before = {path.name: (path.stat().st_ino, path.stat().st_size) for path in disguises(tree)}
    for path in disguises(tree):
        with suppress(*EXPECTED):
            READERS[reader](path)
    assert lost(tree) == []
    assert {path.name: (path.stat().st_ino, path.stat().st_size) for path in disguises(tree)} == before


def test_a_checkpoint_and_a_restore_leave_the_locks_of_a_store_alone(tree: Path, tmp_path: Path) -> None:
    shadow = ShadowRepository.open(tmp_path / "shadow", tree)
    first = shadow.snapshot("one")
    (tree / "plain.txt").write_text("changed\n")
    shadow.snapshot("two")
    shadow.restore("one", hard=True)
    shadow.purge()
    assert (tree / "plain.txt").read_text() == "plain text\n"
    assert lost(tree) == []
    assert {os.fsdecode(one.path) for one in first.left_out} & {STORE, "plain.txt"} == set()


def test_the_model_is_told_why_a_store_is_not_read(tree: Path) -> None:
    for path in (STORE, "notes-2.txt"):
        result = called(tree, "read_file", path=path)
        assert result.is_error
        assert "it is a store that this process has open" in str(result.result)
    assert called(tree, "search_files", pattern="SQLite|plain").result == "plain.txt:1: plain text"


def test_a_planted_reader_that_opens_and_closes_is_caught(tmp_path: Path) -> None:
    for side in ("", "-shm"):
        migrate(str(path := tmp_path / f"a{side}.db"))
        with closing(connect(str(path), write=True)) as db:
            db.execute("SELECT count(*) FROM session").fetchall()
            os.link(f"{path}{side}", tmp_path / f"notes{side}.txt")
            os.symlink(path.name, tmp_path / STORE)
            os.symlink(f"{path.name}-shm", tmp_path / f"{STORE}-shm")
            assert lost(tmp_path) == []
            (tmp_path / f"notes{side}.txt").read_bytes()
            assert lost(tmp_path) == [f"{STORE}{side}"]
        (tmp_path / STORE).unlink()
        (tmp_path / f"{STORE}-shm").unlink()


AGENT = """
import asyncio, os, sys
from pathlib import Path
from turnstate import Message, SessionManager, ToolCallRequest
from turnstate.tools import FILE_TOOLS, ToolManager

async def main():
    sessions = await SessionManager.open("sqlite:///agent.db")
    session = await sessions.open_or_create("s")
    tools = ToolManager(FILE_TOOLS, workspace=Path.cwd())
    async for _ in tools.run([ToolCallRequest(name="search_files", args={"pattern": "lighthouse"}),
                              ToolCallRequest(name="read_file", args={"path": "agent.db"})]):
        pass
    for number in range(20):
        await session.append(Message.user(f"before {number}"))
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(20):
        await session.append(Message.user(f"after {number}"))
    print("done", flush=True)
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), 9)
    await sessions.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("end", ["killed", "closed"])
def test_nothing_is_lost_if_an_agent_reads_its_own_folder(tmp_path: Path, end: str) -> None:
    run = {"cwd": tmp_path, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}

    def program(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "turnstate", *arguments, "--store", "sqlite:///agent.db"]
        return subprocess.run(command, check=False, **run)

    with subprocess.Popen([sys.executable, "-c", AGENT, end], stdin=subprocess.PIPE, **run) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "ready\n"
        assert program("sessions").returncode == 0
        assert "done\n" in agent.communicate("\n", timeout=120)[0]
    shown = program("show", "s").stdout
    assert [shown.count(f"{word} {number}\n") for word in ("before", "after") for number in range(20)] == [
        1
    ] * 40
