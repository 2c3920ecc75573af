"""The gate to the user's folder: it refuses what SQLite has open here, and drops no lock of anything else."""

from __future__ import annotations

import ast
import os
import re
import sqlite3
import threading
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import turnstate
from tests.harness.posix_locks import IN_USE, RESERVED, SHARED, is_locked
from turnstate import folder_gate, open_databases
from turnstate.open_databases import covers
from turnstate.stores.sqlite.connection import Connection, connect, migrate


@pytest.fixture
def path(tmp_path: Path) -> Path:
    migrate(str(path := tmp_path / "agent.db"))
    return path


@pytest.fixture
def db(path: Path) -> Iterator[Connection]:
    with closing(connect(str(path), write=True)) as db:
        db.execute("SELECT count(*) FROM session").fetchall()
        yield db


def has_locks(path: Path) -> bool:
    """Return True if this process has SQLite's locks on a store: on the database and on the shared memory."""
    return is_locked(path, SHARED) and is_locked(Path(f"{path}-shm"), IN_USE)


def descriptors() -> int:
    covers(os.stat(os.devnull))  # closes what an earlier test had to keep
    return len(os.listdir("/dev/fd"))


@pytest.mark.usefixtures("db")
def test_a_planted_open_and_close_drops_the_locks(path: Path) -> None:
    assert has_locks(path)
    open(path, "rb").close()
    assert not has_locks(path)


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize("side", ["", "-wal", "-shm"])
def test_an_open_store_is_refused_under_every_name(path: Path, tmp_path: Path, side: str) -> None:
    os.link(f"{path}{side}", tmp_path / "notes.txt")
    os.symlink(f"{path}{side}", tmp_path / "link.md")
    before = descriptors()
    for name in (f"agent.db{side}", "notes.txt", "link.md"):
        for flags in (folder_gate.READING, os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            with pytest.raises(folder_gate.OpenHere, match="store that this process has open"):
                folder_gate.open_file(tmp_path / name, flags)
    assert has_locks(path)
    assert descriptors() == before


def test_a_store_that_is_opened_while_its_file_is_read_keeps_its_locks(path: Path) -> None:
    before = descriptors()
    with folder_gate.stream(path) as file:
        assert file.read(6) == b"SQLite"
        db = connect(str(path), write=True)
        db.execute("SELECT count(*) FROM session").fetchall()
    assert has_locks(path)
    db.close()
    folder_gate.read_bytes(path)  # closes what was kept, too
    assert descriptors() == before


def test_a_file_that_is_swapped_for_a_store_is_refused_and_not_closed(
    path: Path, db: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (other := tmp_path / "notes.txt").write_text("text")
    before, real = descriptors(), os.open

    def late(*given: Any, **named: Any) -> int:
        other.unlink()
        os.link(path, other)
        return real(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", late)
        with pytest.raises(folder_gate.OpenHere):
            folder_gate.open_file(other)
    assert has_locks(path)
    assert descriptors() == before + 1  # it is kept until the store is closed
    db.close()
    folder_gate.read_bytes(path)
    assert descriptors() < before


def test_a_database_that_the_program_itself_has_open_is_read_without_dropping_its_lock(
    tmp_path: Path,
) -> None:
    path = tmp_path / "app.db"
    before = descriptors()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("CREATE TABLE t (x)")
        os.link(path, second := tmp_path / "notes.txt")
        db.execute("BEGIN EXCLUSIVE")
        assert is_locked(path, RESERVED)
        held = descriptors()
        for _ in range(20):
            assert folder_gate.read_bytes(second).startswith(b"SQLite")
        assert is_locked(path, RESERVED)
        assert descriptors() <= held + 1  # one is kept and used again
    folder_gate.read_bytes(path)
    assert descriptors() == before


def test_what_is_written_and_read_is_what_a_plain_file_would_have(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with pytest.raises(FileNotFoundError):
        folder_gate.read_bytes(path)
    with folder_gate.stream(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o640) as file:
        file.write(b"text" * 128)
    assert path.stat().st_mode & 0o777 == 0o640
    assert folder_gate.read_bytes(path) == b"text" * 128
    path.rename(tmp_path / "b")
    (tmp_path / "a").symlink_to("b")
    with pytest.raises(OSError, match="symbolic link"):
        folder_gate.open_file(path, folder_gate.READING | os.O_NOFOLLOW)
    assert folder_gate.read_bytes(path) == b"text" * 128


# What opens files without the gate, and why it may.

PACKAGE = "a file of the package"
HOME = "a file in the installation's own folder, which only Turnstate writes"
SHADOW = "a file of a shadow repository, which only Turnstate writes"
NEW = "a new file, which no one else has open"
FOLDER = "a folder, on which SQLite has no locks"
WORKER = "runs in the worker process, which has no database open"
WRAPPED = "wraps a descriptor of the gate, without closing it"
DEMO = "a file of the demo, in its own temporary folder"
ALLOWED = {
    "catalog._table": PACKAGE,
    "checkpoints.transaction.read": SHADOW,
    "cli.commands.amazon_q._opened": "a connection of SQLite, which is registered",
    "cli.destination._file": "a device or a pipe",
    "cli.destination._private": NEW,
    "cli.destination._replacement": NEW,
    "terminal.screen.abandon": "the null device",
    "config.source._entered": FOLDER,
    "config.source.read": FOLDER,
    "config.source.read_folder": FOLDER,
    "demo.story._contents": DEMO,
    "demo.story._overwrite": DEMO,
    "demo.story.play_checkpoint": DEMO,
    "files.enter": FOLDER,
    "files.load_cache": SHADOW,
    "files.make_private": HOME,
    "files.open_folder": FOLDER,
    "files.save_cache": NEW,
    "files.try_lock": "a lock file, which only Turnstate writes",
    "files.write_new": NEW,
    "folder_gate.open_file": "the gate itself",
    "folder_gate.stream": WRAPPED,
    "folder_walk.folder_at": FOLDER,
    "folder_walk.walk": FOLDER,
    "home.Home.known_key": HOME,
    "home.HomeDocument.read": HOME,
    "jobs.folder._read": WORKER,
    "memory.builtin.database.schema_steps": PACKAGE,
    "memory.builtin.question._lines": PACKAGE,
    "report.html._resource": PACKAGE,
    "shadow.contents._text": SHADOW,
    "shadow.folder._read": SHADOW,
    "shadow.folder.copy_aside": SHADOW,
    "shadow.health._copied": SHADOW,
    "shadow.health._linked": SHADOW,
    "shadow.ignore.Rules._scope": NEW,
    "shadow.ignore.Rules.also": NEW,
    "shadow.packs._index": SHADOW,
    "shadow.packs._sound_objects": SHADOW,
    "shadow.packs._trailer": SHADOW,
    "shadow.packs._unpack": SHADOW,
    "shadow.restore._RestoreRun._write": NEW,
    "shadow.restore.read": SHADOW,
    "shadow.work_tree.SafeTree.enter": FOLDER,
    "shadow.work_tree.SafeTree.opened": FOLDER,
    "shadow.work_tree._names": FOLDER,
    "snapshots.folder.SnapshotFolder.opened": FOLDER,
    "snapshots.folder.SnapshotFolder.read": WRAPPED,
    "stores.postgres.queries": PACKAGE,
    "stores.redis.server._resolved": PACKAGE,
    "stores.sql.migration_steps": PACKAGE,
    "stores.sql.named_statements": PACKAGE,
    "stores.sqlite.connection.create_file": NEW,
    "stores.sqlite.faults._why_nothing_opens": "the null device",
    "stores.sqlite.salvage.publish": "a copy whose connections are closed",
    "tools.process._has_running": "a file of the system",
    "tools.workspace.WorkspaceFiles.read": WRAPPED,
    "tools.workspace.WorkspaceFiles.write": NEW,
}
"""Functions that open files without the gate, and why they may."""

OF_SQLITE = {
    "open_databases": "keeps its descriptors as long as SQLite has the file open",
    "stores.sqlite.wal": "opens the -wal, on which SQLite has no locks",
}
"""Modules that may open the files of a database, and why."""

READS = {"read_bytes", "read_text", "write_bytes", "write_text", "file_digest"}
MODES = {"rb", "r+b", "wb", "w+b", "xb", "ab", "r", "w", "x", "a", "r+", "w+"}
OF_MODULES = {
    ("os", "open"),
    ("io", "open"),
    ("mmap", "mmap"),
    ("sqlite3", "connect"),
    *(("shutil", name) for name in ("copy", "copy2", "copyfile", "copytree", "move")),
}
HINT = re.compile("|".join([r"\bopen\(", *READS, *(f"{one}.{name}" for one, name in OF_MODULES)]))


def opens(call: ast.Call) -> bool:
    """Return True if a call opens a file without the gate."""
    match call.func:
        case ast.Name(id="open"):
            return True
        case ast.Attribute(value=ast.Name(id="folder_gate")):
            return False
        case ast.Attribute(value=ast.Name(id=module), attr=name) if (module, name) in OF_MODULES:
            return True
        case ast.Attribute(attr="open"):  # of a path, if its first argument is a mode, or one of two
            given = [one for argument in call.args[:1] for one in (argument, *ast.iter_child_nodes(argument))]
            return any(isinstance(one, ast.Constant) and one.value in MODES for one in given)
        case ast.Attribute(attr=name):
            return name in READS
    return False


def opening(inside: str, node: ast.AST) -> set[str]:
    """Return the names of the functions in a module that open a file without the gate."""
    found = {inside} if isinstance(node, ast.Call) and opens(node) else set[str]()
    for below in ast.iter_child_nodes(node):
        is_named = isinstance(below, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        found |= opening(f"{inside}.{below.name}" if is_named else inside, below)  # type: ignore[attr-defined]
    return found


def test_whatever_opens_a_file_goes_through_the_gate_or_says_why_not() -> None:
    root = Path(turnstate.__file__).parent
    found = set[str]()
    for path in root.rglob("*.py"):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        if module not in OF_SQLITE and HINT.search(source := path.read_text()):  # parsing all takes seconds
            found |= opening(module, ast.parse(source))
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    "line",
    [
        "open('x')",
        "with open(path, 'rb') as file: pass",
        "os.close(os.open(path, os.O_RDONLY))",
        "path.open('rb')",
        "(folder / name).read_text('utf-8')",
        "Path(name).read_bytes()",
        "hashlib.file_digest(file, 'sha256')",
        "shutil.copy2(a, b)",
        "mmap.mmap(file, 0)",
        "sqlite3.connect(path)",
    ],
)
def test_a_planted_open_is_found(line: str) -> None:
    source = f"class C:\n    def f(self):\n        {line}"
    assert HINT.search(source)
    assert opening("m", ast.parse(source)) == {"m.C.f"}


def test_the_gate_and_other_things_that_are_opened_are_not_found() -> None:
    source = "folder_gate.read_bytes(path); sessions.open(row.id, user=user); sessions.open(await f('w'))"
    assert opening("m", ast.parse(source)) == set()


def test_a_garbage_collection_that_closes_a_file_waits_for_no_other_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path := tmp_path / "file").write_text("text")
    is_closing, is_collecting = threading.Event(), threading.Event()

    def reading() -> Generator[int, None, None]:
        with folder_gate.opened(path) as descriptor:
            yield descriptor

    def close(descriptor: int) -> bool:
        monkeypatch.undo()
        is_closing.set()
        is_collecting.wait(0.2)  # it cannot begin if all wait for one lock
        return open_databases.close_unless_covered(descriptor)

    def collect() -> None:
        is_closing.wait()
        with open_databases.closing_lock:  # as in `covers`
            is_collecting.set()
            forgotten.close()

    next(forgotten := reading())
    monkeypatch.setattr(folder_gate, "close_unless_covered", close)
    descriptor = os.open(path, os.O_RDONLY)
    threads = [
        threading.Thread(target=folder_gate.close, args=[descriptor], daemon=True),
        threading.Thread(target=collect, daemon=True),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not [thread for thread in threads if thread.is_alive()]
