"""Stores of ours are never kept, restored over or removed; databases in use are left alone and named."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.checkpoint_scene import Scene, git, scene, state, write
from tests.integration.checkpoint_talk import Desk, Talk, played
from turnstate import Message, SessionManager
from turnstate.checkpoints import ShadowRepository
from turnstate.home import Home
from turnstate.memory import User, open_engine
from turnstate.memory.builtin import BuiltinEngine
from turnstate.memory.engines import NoEngine
from turnstate.shadow import new_snapshot as snapshot
from turnstate.shadow import restore
from turnstate.shadow.contents import Modes, store_pack, update_references
from turnstate.shadow.git import BLOB, COMMIT, FILE, FOLDER, TREE, Git, Leaf, Pack, commit, object_id, tree
from turnstate.shadow.new_snapshot import KnownFile, StatCache
from turnstate.shadow.plan import Put, Remove, RestorePlan
from turnstate.shadow.restore import Journal
from turnstate.shadow.values import FileEntry, RestoredFiles
from turnstate.shadow.work_tree import file_stat
from turnstate.snapshots import Snapshots
from turnstate.stores import connect

pytestmark = pytest.mark.req("O3", "O4")

SIDES = ("-wal", "-shm", "-journal")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    return scene(tmp_path)


def make_store(path: Path, *said: str) -> None:
    """Make a store with one session, as some process did that is gone, and add messages to it."""

    async def go() -> None:
        async with await SessionManager.open(f"sqlite:///{path}") as sessions:
            found = await sessions.list()
            session = await (sessions.open(found[0].id) if found else sessions.create(id="lamp"))
            for text in said:
                await session.append(Message.user(text))

    asyncio.run(go())


def said(path: Path) -> list[str]:
    async def go() -> list[str]:
        async with await SessionManager.open(f"sqlite:///{path}") as sessions:
            findings = [one async for one in sessions.store.verify(repair=False)]
            assert findings == []
            return [one.text for one in await (await sessions.open("lamp")).messages()]

    return asyncio.run(go())


def held_by_older(here: Scene, tag: str, files: dict[bytes, bytes]) -> None:
    """Keep a snapshot as a version did that did not know stores: all in the top folder."""
    repository = Git(here.shadow / "repository")
    with Pack(here.shadow) as pack:
        leaves = [Leaf(name, FILE, pack.add(BLOB, data)) for name, data in files.items()]
        modes = Modes.of(dict.fromkeys(files, 0o644), {}, empty=()).encoded()
        root = [
            Leaf(b"files", FOLDER, pack.add(TREE, tree(leaves))),
            Leaf(b"modes", FILE, pack.add(BLOB, modes)),
        ]
        made = pack.add(
            COMMIT, commit(pack.add(TREE, tree(root)), parents=[], seconds=1, message="an older version")
        )
        store_pack(repository, pack)
    update_references(
        repository, dict.fromkeys(["refs/heads/history", "refs/heads/seen", f"refs/tags/{tag}"], made)
    )


def contents(folder: Path) -> dict[bytes, bytes]:
    return {os.fsencode(one.name): one.read_bytes() for one in folder.iterdir() if one.is_file()}


@pytest.fixture
def live(here: Scene) -> Iterator[Path]:
    """A store in the work tree that another process has open, and has written to."""
    path = here.tree / "agent.db"
    code = """
import asyncio, sys
from turnstate import Message, SessionManager
async def main():
    async with await SessionManager.open("sqlite:///" + sys.argv[1]) as sessions:
        session = await sessions.create(id="lamp")
        for number in range(3):
            await session.append(Message.user(f"live {number}"))
        while sessions.store._writer._is_behind:  # it writes no more until it is asked to
            await asyncio.sleep(0.02)
        print("ready", flush=True)
        while sys.stdin.readline():
            await session.append(Message.user("more"))
            print("done", flush=True)
asyncio.run(main())
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield path
        process.stdin.write("more\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        process.stdin.close()
        assert process.wait(30) == 0
    assert said(path) == ["live 0", "live 1", "live 2", "more"]


@pytest.mark.parametrize("ignored", ["", "*.db\n", "!*.db\n"])
def test_a_live_store_of_another_process_is_neither_kept_nor_touched(
    ignored: str, here: Scene, live: Path
) -> None:
    write(here.tree, ".gitignore", ignored)
    write(here.tree, "a", "1")
    repository = here.open()
    taken = repository.snapshot("0")
    assert here.kept() == {b".gitignore", b"a"}
    assert taken.left_out == ()
    write(here.tree, "a", "2")
    before = {name: data for name, data in contents(here.tree).items() if name.startswith(b"agent.db")}
    assert set(before) >= {b"agent.db", b"agent.db-wal", b"agent.db-shm"}
    for restored in (repository.restore("0", hard=True), repository.restore("undo", hard=True)):
        assert (restored.kept, restored.left_out) == ((), ())
    assert before.items() <= contents(here.tree).items()
    assert live.exists()


def test_what_is_said_meanwhile_is_no_change_of_files(here: Scene) -> None:
    make_store(here.tree / "agent.db", "one")
    repository = here.open()
    repository.snapshot("0")
    make_store(here.tree / "agent.db", "two")
    assert not repository.has_changes()
    assert not repository.diff("0").files


def test_a_tracked_store_is_not_kept(here: Scene) -> None:
    make_store(here.tree / "agent.db", "one")
    git(here.tree, "init", "--quiet")
    git(here.tree, "add", "--force", "agent.db")
    here.open().snapshot("0")
    assert here.kept() == set()


@pytest.mark.parametrize("how", ["hard link", "copy"])
def test_a_store_is_known_under_any_name(how: str, here: Scene, tmp_path: Path) -> None:
    make_store(tmp_path / "real.db", "one")
    other = here.tree / "notes.txt"
    os.link(tmp_path / "real.db", other) if how == "hard link" else shutil.copy(tmp_path / "real.db", other)
    repository = here.open()
    repository.snapshot("0")
    assert here.kept() == set()
    make_store(tmp_path / "real.db", "two")
    repository.restore("0", hard=True)
    assert other.exists()
    assert said(tmp_path / "real.db") == ["one", "two"]


@pytest.mark.parametrize("hard", [False, True])
def test_an_older_snapshot_that_holds_a_store_is_restored_without_it(hard: bool, here: Scene) -> None:
    path = here.tree / "agent.db"
    make_store(path, "one")
    repository = here.open()
    old = {b"agent.db-wal": b"", b"agent.db-shm": b"x" * 512, b"agent.db-journal": b"old"}
    held_by_older(here, "old", {b"a": b"1", b"gone.db": path.read_bytes(), **contents(here.tree), **old})
    make_store(path, "two")
    write(here.tree, "a", "2")
    restored = repository.restore("old", hard=hard)
    assert (restored.changes.modified, restored.kept) == ((b"a",), ())
    assert {name for name in os.listdir(here.tree) if not name.startswith("agent.db")} == {"a"}
    assert not (here.tree / "agent.db-journal").exists()
    assert said(path) == ["one", "two"]
    repository.restore("undo", hard=True)
    assert (here.tree / "a").read_text() == "2"
    assert said(path) == ["one", "two"]


def test_a_store_that_stands_where_a_file_was_stays_and_is_named(here: Scene) -> None:
    write(here.tree, "notes", "text")
    repository = here.open()
    repository.snapshot("0")
    (here.tree / "notes").unlink()
    make_store(here.tree / "notes", "one")
    for target in ("0", "undo"):
        repository.restore(target, hard=True)
    restored = repository.restore("0", hard=True)
    assert [one.path for one in restored.kept] == [b"notes"]
    assert "belongs to Turnstate" in restored.kept[0].reason
    assert said(here.tree / "notes") == ["one"]


def test_a_store_that_a_cut_off_restore_would_replace_stays(here: Scene) -> None:
    path = here.tree / "agent.db"
    make_store(path, "one")
    repository = here.open()
    old = path.read_bytes()
    held_by_older(here, "old", {b"agent.db": old, b"text": b"text"})
    make_store(path, "two")
    make_store(here.tree / "new.db", "new")
    now, new = (
        FileEntry(False, 0o644, object_id(BLOB, one.read_bytes())) for one in (path, here.tree / "new.db")
    )
    held, text = (FileEntry(False, 0o644, object_id(BLOB, data)) for data in (old, b"text"))
    shutil.copy(path, here.tree / "third.db")
    plan = RestorePlan(
        removals=(Remove(b"new.db", new),),
        puts=(Put(b"agent.db", held, now), Put(b"fresh.db", held, None), Put(b"third.db", text, now)),
    )
    target = repository.snapshot("1").commit
    restore.write(Journal(id="x", name="old", target=target, undo=target, hard=True, plan=plan), here.shadow)
    recovered = here.open().recovered
    assert isinstance(recovered, RestoredFiles)
    assert {one.path for one in recovered.kept} == {b"new.db", b"agent.db", b"fresh.db", b"third.db"}
    assert said(path) == ["one", "two"]
    assert said(here.tree / "third.db") == ["one", "two"]
    assert said(here.tree / "new.db") == ["new"]
    assert not (here.tree / "fresh.db").exists()


@pytest.mark.parametrize("in_place", [False, True])
def test_a_file_that_becomes_a_store_between_the_look_and_the_reading_is_not_kept(
    in_place: bool, here: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path / "other.db", "one")
    path = write(here.tree, "x", "text")
    really = snapshot.scan_work_tree

    def overtaken(*arguments: object, **options: object) -> object:
        scan = really(*arguments, **options)  # type: ignore[arg-type]
        if in_place:
            path.write_bytes((tmp_path / "other.db").read_bytes())
        else:
            os.replace(tmp_path / "other.db", path)
        return scan

    monkeypatch.setattr(snapshot, "scan_work_tree", overtaken)
    here.open().snapshot("0")
    assert here.kept() == set()


def test_a_store_that_an_older_version_remembered_as_a_file_is_not_kept(here: Scene) -> None:
    path = here.tree / "agent.db"
    make_store(path, "one")
    repository = here.open()
    held_by_older(here, "old", {b"agent.db": path.read_bytes()})
    last = here.git("rev-parse", "old").strip()
    blob = object_id(BLOB, path.read_bytes())
    StatCache(commit=last, files={b"agent.db": KnownFile(file_stat(path.lstat()), blob)}).save(
        here.shadow / "stamps"
    )
    stamps = here.shadow / "stamps"
    stamps.write_bytes(stamps.read_bytes().replace(b"stamps 2", b"stamps 1", 1))
    taken = repository.snapshot("0")
    assert here.kept() == set()
    assert taken.changes.deleted == ()


def test_a_link_to_a_store_is_not_taken_away(here: Scene, tmp_path: Path) -> None:
    make_store(tmp_path / "real.db", "one")
    repository = here.open()
    repository.snapshot("0")
    os.symlink(tmp_path / "real.db", here.tree / "agent.db")
    repository.snapshot("1")
    repository.restore("0", hard=True)
    assert said(here.tree / "agent.db") == ["one"]


class Database:
    """A database of another program, in rollback mode or with a write-ahead log."""

    def __init__(self, path: Path, mode: str = "wal") -> None:
        self.path = path
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute(f"PRAGMA journal_mode = {mode}")
        self.db.execute("CREATE TABLE IF NOT EXISTS t (x)")

    def add(self, value: int) -> None:
        self.db.execute("INSERT INTO t VALUES (?)", (value,))

    def close(self) -> None:
        self.db.close()

    @staticmethod
    def values(path: Path) -> list[int]:
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            return [x for (x,) in db.execute("SELECT x FROM t ORDER BY x")]


def test_a_foreign_database_that_nobody_uses_is_kept_and_comes_back(here: Scene) -> None:
    path = here.tree / "db.sqlite3"
    database = Database(path)
    database.add(1)
    database.close()
    repository = here.open()
    assert repository.snapshot("0").left_out == ()
    assert here.kept() == {b"db.sqlite3"}
    database = Database(path)
    database.add(2)
    database.close()
    repository.restore("0")
    assert Database.values(path) == [1]
    repository.restore("undo", hard=True)
    assert Database.values(path) == [1, 2]


def test_a_foreign_database_in_use_is_left_alone_and_named(here: Scene) -> None:
    path = here.tree / "db.sqlite3"
    with closing(Database(path)) as database:
        database.add(1)
    repository = here.open()
    repository.snapshot("0")
    write(here.tree, "a", "1")
    with closing(Database(path)) as database:
        database.add(2)
        taken = repository.snapshot("1")
        named = {one.path for one in taken.left_out}
        assert named == {b"db.sqlite3", b"db.sqlite3-wal", b"db.sqlite3-shm"}
        assert all("SQLite database in use" in one.reason for one in taken.left_out)
        assert taken.changes.deleted == ()
        assert here.kept() == {b"a"}
        restored = repository.restore("0", hard=True)
        assert [one.path for one in restored.kept] == [b"db.sqlite3"]
        assert {one.path for one in restored.left_out} == named - {b"db.sqlite3"}
        assert {one.path for one in repository.restore("1", hard=True).left_out} == named
        database.add(3)
    assert Database.values(path) == [1, 2, 3]


def test_a_database_that_was_in_use_then_is_not_removed_later(here: Scene) -> None:
    path = here.tree / "db.sqlite3"
    with closing(Database(path)) as database:
        database.add(1)
    repository = here.open()
    repository.snapshot("0")
    with closing(Database(path)) as database:
        database.add(2)
        repository.snapshot("1")
    repository.restore("1", hard=True)
    assert Database.values(path) == [1, 2]


def test_a_database_is_not_put_beside_files_of_another_one(here: Scene) -> None:
    path = here.tree / "db.sqlite3"
    with closing(Database(path)) as database:
        database.add(1)
    repository = here.open()
    repository.snapshot("0")
    path.unlink()
    write(here.tree, "db.sqlite3-journal", b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504))
    restored = repository.restore("0")
    assert [one.path for one in restored.kept] == [b"db.sqlite3"]
    assert not path.exists()


def test_an_older_snapshot_of_a_database_in_use_is_restored_without_it(here: Scene) -> None:
    path = here.tree / "db.sqlite3"
    repository = here.open()
    with closing(Database(path)) as database:
        database.add(1)
        torn = contents(here.tree)
    assert len(torn) == 3
    with closing(Database(path)) as database:
        database.add(2)
    held_by_older(here, "old", {**torn, b"a": b"1"})
    restored = repository.restore("old", hard=True)
    assert {one.path for one in restored.kept} == set(torn)
    assert Database.values(path) == [1, 2]
    assert (here.tree / "a").exists()


def test_files_that_only_look_like_parts_of_a_database_are_kept(here: Scene) -> None:
    for name in ("notes", "notes-journal", "trip-journal", "x-wal", "empty"):
        write(here.tree, name, "" if name == "empty" else "text")
    repository = here.open()
    assert repository.snapshot("0").left_out == ()
    before = state(here.tree)
    for path in here.tree.iterdir():
        path.unlink()
    repository.restore("0")
    assert state(here.tree) == before


@pytest.mark.parametrize("side", SIDES)
def test_an_empty_database_that_is_being_made_is_left_alone(side: str, here: Scene) -> None:
    write(here.tree, "new.db")
    write(here.tree, f"new.db{side}", "x")
    taken = here.open().snapshot("0")
    assert {one.path for one in taken.left_out} == {b"new.db", os.fsencode(f"new.db{side}")}
    assert here.kept() == set()


LOCK = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    db.execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError as error:
    print(error)
"""


def locked(path: Path) -> bool:
    command = [sys.executable, "-c", LOCK, str(path)]
    return "locked" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_locks_of_this_process_on_a_database_outlast_a_snapshot_and_a_restore(here: Scene) -> None:
    path = here.tree / "db.sqlite3"
    with closing(Database(path, "delete")) as database:
        database.add(1)
        repository = here.open()
        write(here.tree, "a", "1")
        database.db.execute("BEGIN IMMEDIATE")
        descriptors = len(os.listdir("/dev/fd"))
        for number in range(5):
            taken = repository.snapshot(str(number))
            repository.restore("0", hard=True)
            assert [one.path for one in taken.left_out] == [b"db.sqlite3"]
            assert locked(path)
        assert len(os.listdir("/dev/fd")) <= descriptors + 1
        database.db.execute("ROLLBACK")
    assert repository.snapshot("later").left_out == ()
    assert not locked(path)
    assert here.kept() == {b"a", b"db.sqlite3"}


def test_a_second_store_of_this_process_is_neither_kept_nor_unlocked(here: Scene) -> None:
    async def go() -> None:
        path = here.tree / "second.db"
        other = await connect(f"sqlite:///{path}")
        try:
            write(here.tree, "a", "1")
            repository = here.open()
            for number in range(3):
                repository.snapshot(str(number))
            assert here.kept() == {b"a"}
            before = (path.stat().st_ino, (here.tree / "second.db-wal").stat().st_ino)
            assert not locked(path)  # whoever is the last to close a database removes its log
            assert (path.stat().st_ino, (here.tree / "second.db-wal").stat().st_ino) == before
        finally:
            await other.close()

    asyncio.run(go())


def test_checkpoints_of_others_in_the_work_tree_are_neither_kept_nor_touched(here: Scene) -> None:
    write(here.tree, "a", "1")
    inside = here.tree / "data" / "other"
    other = ShadowRepository.open(inside, here.tree.parent / "work")
    other.snapshot("0")
    repository = here.open()
    repository.snapshot("0")
    assert here.kept() == {b"a"}
    other.snapshot("1")
    held_by_older(here, "old", {b"a": b"2"})
    repository.restore("0", hard=True)
    assert [one.tag for one in other.snapshots()] == ["0", "1"]


def test_memory_files_are_neither_kept_nor_touched(here: Scene) -> None:
    async def remember(key: str) -> None:
        builtin = await open_engine(f"builtin:{here.tree}/memory.db")
        assert isinstance(builtin, BuiltinEngine)
        await builtin.remember(User("t", "u"), key)
        await builtin.close()

    asyncio.run(remember("one"))
    repository = here.open()
    repository.snapshot("0")
    assert not any(path.endswith(b".db") for path in here.kept())
    asyncio.run(remember("two"))
    before = (here.tree / "memory.db").read_bytes()
    repository.restore("0", hard=True)
    assert (here.tree / "memory.db").read_bytes() == before


def test_snapshots_of_sessions_are_left_alone_in_any_folder(here: Scene) -> None:
    write(here.tree, "sub/.openstarry/snapshots/s/1.json", "early")
    write(here.tree, "sub/a", "1")
    repository = here.open()
    repository.snapshot("0")
    assert here.kept() == {b"sub/a"}
    write(here.tree, "sub/.openstarry/snapshots/s/1.json", "late")
    repository.restore("0", hard=True)
    assert (here.tree / "sub/.openstarry/snapshots/s/1.json").read_text() == "late"


def in_the_tree(desk: Desk, form: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let a desk keep its sessions in its work tree, by a URL of some form; return where they are."""
    path = desk.tree / "agent.db"
    desk.url = f"sqlite:///{path}"
    if form == "relative":
        monkeypatch.chdir(desk.tree)
        desk.url = "sqlite:///agent.db"
    elif form == "up and down":
        monkeypatch.chdir(desk.home.make())
        desk.url = "sqlite:///../work/../work/agent.db"
    elif form == "link to the file":
        path = desk.folder / "kept.db"
        os.symlink(path, desk.tree / "agent.db")
    elif form == "link to a folder":
        path = desk.folder / "kept" / "agent.db"
        path.parent.mkdir()
        os.symlink(path.parent, desk.tree / "data")
        desk.url = f"sqlite:///{desk.tree}/data/agent.db"
    elif form == "link to the tree":
        os.symlink(desk.tree, desk.folder / "link")
        desk.url = f"sqlite:///{desk.folder}/link/agent.db"
    elif form == "home":
        desk.home = Home(desk.tree / "home")
        path = desk.home.make() / "turnstate.db"
        desk.url = f"sqlite:///{path}"
    return path


@pytest.mark.parametrize(
    "form",
    [
        *("absolute", "relative", "up and down", "link to the file", "link to a folder"),
        *("link to the tree", "home"),
    ],
)
@played
async def test_nothing_that_was_said_is_lost_where_the_store_lies_in_the_work_tree(
    desk: Desk, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = in_the_tree(desk, form, monkeypatch)
    links = [one for one in desk.tree.iterdir() if one.is_symlink()]
    async with desk.started() as talk:
        assert await talk.turn("write b", {"b": "1"}) == "1"
        kept = {name for one in await talk.checkpoints.turns() for name in _held(talk, one.commit)}
        assert kept == {"a", "mine", "b"}
        for number in range(10):
            await talk.session.append(Message.user(f"acknowledged {number}"))
        assert await talk.checkpoints.tool_finished("look") is None
        desk.write(b="2")
        for go in (
            lambda: talk.checkpoints.restore("1", hard=True),
            talk.checkpoints.undo_restore,
            lambda: talk.checkpoints.restore("0", files=True, conversation=False, hard=True),
            talk.checkpoints.undo_restore,
        ):
            went = await go()
            assert went.files is not None
            assert (went.files.kept, went.files.left_out) == ((), ())
        await talk.checkpoints.enter_tangent()
        desk.write(b="3")
        await talk.turn("aside")
        await talk.checkpoints.leave_tangent()
    assert [one for one in links if not one.is_symlink()] == []
    assert (desk.tree / "b").read_text() == "2"
    async with desk.started() as talk:
        told = [one.text for one in await talk.session.messages()]
        assert told[-10:] == [f"acknowledged {number}" for number in range(10)]
        assert [one async for one in talk.session._writer.store.verify(repair=False)] == []
        await talk.checkpoints.clean()
    assert path.stat().st_size


def _held(talk: Talk, commit: str) -> list[str]:
    folder = talk.checkpoints.repository.folder / "repository"
    return git(folder, "--git-dir", str(folder), "ls-tree", "-r", "--name-only", f"{commit}:files").split()


@played
async def test_places_that_a_session_names_are_neither_kept_nor_touched(desk: Desk) -> None:
    class Engine(NoEngine):
        files = (desk.tree / "engine",)

    write(desk.tree, "engine/index", "early")
    write(desk.tree, "told/s/1.json", "early")
    snapshots = Snapshots(desk.tree / "told", desk.home)
    async with desk.started(memory=Engine(), snapshots=snapshots) as talk:
        assert await talk.turn("write b", {"b": "1"}) == "1"
        write(desk.tree, "engine/index", "late")
        await talk.checkpoints.restore("0", hard=True)
        assert set(_held(talk, (await talk.checkpoints.turns())[0].commit)) == {"a", "mine"}
    assert (desk.tree / "engine" / "index").read_text() == "late"
    assert (desk.tree / "told" / "s" / "1.json").read_text() == "early"


def test_a_store_that_is_still_empty_is_known_by_its_path(here: Scene) -> None:
    path = write(here.tree, "agent.db")
    os.symlink("agent.db", here.tree / "link.db")
    repository = here.open(own=[here.tree / "x" / ".." / "link.db"])
    (here.tree / "x").mkdir()
    repository.snapshot("0")
    assert here.kept() == set()
    make_store(path, "one")
    repository.restore("0", hard=True)
    assert said(path) == ["one"]
