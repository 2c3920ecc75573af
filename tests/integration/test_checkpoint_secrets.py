"""Ignored files stay out of the shadow repository and stay in place, whatever a restore does to the rules."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.checkpoint_scene import Scene, git, scene, state, write
from tests.integration.checkpoint_talk import Desk, played
from turnstate.checkpoints import RestoredFiles, ShadowRepository
from turnstate.shadow import restore

SECRET = b"the token is 8f14e45f"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return scene(tmp_path)


def objects(shadow: Path) -> dict[str, bytes]:
    """Read every object of a shadow repository, loose and packed, reachable or not."""
    where = ["git", "--git-dir", str(shadow / "repository"), "cat-file", "--batch-all-objects"]
    listed = subprocess.run([*where, "--batch-check"], capture_output=True, check=True).stdout
    found = dict[str, bytes]()
    for line in listed.decode().splitlines():
        id, kind, _ = line.split()
        command = ["git", "--git-dir", str(shadow / "repository"), "cat-file", kind, id]
        found[id] = subprocess.run(command, capture_output=True, check=True).stdout
    return found


def leaked(shadow: Path, *words: bytes) -> list[str]:
    """Name the objects and plain files of a shadow repository in which any of the words occurs."""
    words = words or (SECRET,)
    inside = [id for id, data in objects(shadow).items() if any(word in data for word in words)]
    plain = [path for path in shadow.rglob("*") if path.is_file()]
    return inside + [str(path) for path in plain if any(word in path.read_bytes() for word in words)]


def test_the_search_for_a_secret_finds_one_that_was_kept(here: Scene) -> None:
    write(here.tree, "a", SECRET)
    here.open().snapshot("0")
    assert len(leaked(here.shadow)) == 1


Hide = Callable[[Scene], None]


def by_gitignore(here: Scene) -> None:
    write(here.tree, ".gitignore", "logs/\nmine\n")


def by_nested_gitignore(here: Scene) -> None:
    write(here.tree, "sub/.gitignore", "mine\n")
    write(here.tree, ".gitignore", "logs/\n/mine\n")


def by_folder(here: Scene) -> None:
    write(here.tree, ".gitignore", "logs/\nsub/\nmine\n")


@pytest.mark.req("O3", "O4")
@pytest.mark.parametrize("hide", [by_gitignore, by_nested_gitignore, by_folder])
def test_undo_keeps_ignored_files_and_no_snapshot_holds_them(here: Scene, hide: Hide) -> None:
    write(here.tree, ".gitignore", "logs/\n")
    write(here.tree, "mine", "{}")
    write(here.tree, "sub/mine", "{}")
    repository = here.open()
    repository.snapshot("0")
    hide(here)
    for name in ("mine", "sub/mine", "logs/mine"):
        write(here.tree, name, SECRET)
    before = state(here.tree)
    for hard in (False, True):
        repository.restore("0", hard=hard)
        assert (here.tree / ".gitignore").read_text() == "logs/\n"
        assert repository.undo("undo").kept == ()
        assert state(here.tree) == before, f"{hard=}"
    assert leaked(here.shadow) == []


@pytest.mark.req("O3", "O4")
@pytest.mark.parametrize("where", ["info/exclude", "excludesFile in the tree", "excludesFile outside"])
def test_rules_outside_of_gitignore_count_before_and_after(here: Scene, tmp_path: Path, where: str) -> None:
    git(here.tree, "init", "--quiet")
    rules = {
        "info/exclude": here.tree / ".git" / "info" / "exclude",
        "excludesFile in the tree": here.tree / "rules",
        "excludesFile outside": tmp_path / "user" / "rules",
    }[where]
    if where != "info/exclude":
        git(here.tree, "config", "core.excludesFile", str(rules))
    write(rules.parent, rules.name, "other\n")
    write(here.tree, "mine", "{}")
    repository = here.open()
    repository.snapshot("0")
    write(rules.parent, rules.name, "mine\n")
    write(here.tree, "mine", SECRET)
    before = state(here.tree)
    repository.restore("0", hard=True)
    repository.undo("undo")
    assert state(here.tree) == before
    assert leaked(here.shadow) == []


@pytest.mark.req("O3", "O4")
def test_what_the_rules_of_the_target_ignore_stays_out_as_well(here: Scene) -> None:
    write(here.tree, ".gitignore", "mine\n")
    write(here.tree, "a", "1")
    repository = here.open()
    repository.snapshot("0")
    write(here.tree, ".gitignore", "")
    write(here.tree, "mine", SECRET)
    before = state(here.tree)
    repository.restore("0", hard=True)
    repository.undo("undo")
    assert state(here.tree) == before
    assert leaked(here.shadow) == []


@pytest.mark.req("O4")
def test_what_a_restore_stopped_ignoring_is_no_change(here: Scene) -> None:
    write(here.tree, "a", "1")
    repository = here.open()
    repository.snapshot("0")
    write(here.tree, ".gitignore", "mine\nbuild/\n")
    write(here.tree, "mine", SECRET)
    write(here.tree, "build/x", SECRET)
    repository.snapshot("1")
    repository.restore("0", hard=True)
    assert not (here.tree / ".gitignore").exists()
    assert not here.open().has_changes()
    taken = here.open().snapshot("2")
    assert taken.changes == taken.changes.__class__()
    assert [one.path for one in taken.left_out] == [b"build", b"mine"]
    assert leaked(here.shadow) == []
    write(here.tree, ".gitignore", "other\n")
    assert b"mine" in here.open().snapshot("3").changes.added  # the user has made new rules since


@pytest.mark.req("O3")
def test_undo_removes_what_the_restore_put_there_and_only_if_it_is_the_same(here: Scene) -> None:
    for name in ("gone/a", "gone/b", "mode", "twice"):
        write(here.tree, name, "1")
    write(here.tree, ".gitignore", "")
    repository = here.open()
    repository.snapshot("0")
    for name in ("gone/a", "gone/b", "mode", "twice"):
        (here.tree / name).unlink()
    (here.tree / "gone").rmdir()
    write(here.tree, ".gitignore", "ignored\ntwice\n")
    write(here.tree, "twice", "1")  # ignored, and the same bytes as in the checkpoint
    repository.snapshot("1")
    repository.restore("0")
    write(here.tree, "gone/b", "changed since")
    (here.tree / "mode").chmod(0o600)
    write(here.tree, "since", "made since")
    repository.snapshot("2")
    undone = repository.undo("undo")
    assert {one.path for one in undone.kept} == {b"gone/b", b"mode"}
    assert undone.changes.deleted == (b"gone/a",)
    names = {str(path.relative_to(here.tree)) for path in here.tree.rglob("*") if path.is_file()}
    assert names == {".gitignore", "gone/b", "mode", "twice", "since"}


@pytest.mark.req("O3")
def test_a_file_that_only_an_undo_snapshot_has_seen_is_not_removed_by_a_hard_restore(here: Scene) -> None:
    write(here.tree, "a", "1")
    repository = here.open()
    repository.snapshot("0")
    write(here.tree, "agents", "in a checkpoint")
    repository.snapshot("1")
    write(here.tree, "folder/mine", "the user's own")
    (here.tree / "hollow").mkdir()
    for _ in range(2):
        repository.restore("1", hard=True)
        repository.undo("undo")
    assert repository.restore("0", hard=True).changes.deleted == (b"agents",)
    assert (here.tree / "folder" / "mine").read_text() == "the user's own"
    assert (here.tree / "hollow").is_dir()
    repository.snapshot("2")
    assert b"folder/mine" in repository.restore("0", hard=True).changes.deleted


@pytest.mark.req("O3")
@played
async def test_restore_undo_and_hard_restore_leave_the_users_new_file(desk: Desk) -> None:
    async with desk.started() as talk:
        await talk.turn("one", {"agents": "1"})
        desk.write(users="in no checkpoint")
        await talk.checkpoints.restore("1")
        await talk.checkpoints.undo_restore()
        await talk.checkpoints.restore("1", hard=True)
        assert desk.files["users"] == "in no checkpoint"
        await talk.checkpoints.restore("0", hard=True)
        assert desk.files["users"] == "in no checkpoint"
        assert "agents" not in desk.files


@pytest.mark.req("O3", "O4")
@pytest.mark.parametrize("act", ["restore", "undo"])
def test_a_restore_and_an_undo_that_were_interrupted_keep_ignored_files_out(
    here: Scene, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    write(here.tree, "mine", "{}")
    write(here.tree, "gone", "1")
    repository = here.open()
    repository.snapshot("0")
    write(here.tree, ".gitignore", "mine\n")
    write(here.tree, "mine", SECRET)
    (here.tree / "gone").unlink()
    before = state(here.tree)
    acts: dict[str, Callable[[ShadowRepository], RestoredFiles]] = {
        "restore": lambda one: one.restore("0"),
        "undo": lambda one: one.undo("undo", undo="again"),
    }

    def cut(_: object) -> None:
        raise KeyboardInterrupt

    for step in ("clear", "place", "set_modes", "sync"):
        if act == "undo":
            repository.restore("0")
        with monkeypatch.context() as failing:
            failing.setattr(restore._RestoreRun, step, cut)
            with pytest.raises(KeyboardInterrupt):
                acts[act](repository)
        again = here.open()
        assert again.recovered is not None, step
        if act == "undo":
            assert state(here.tree) == before, step
            again.undo("again")
            assert (here.tree / "gone").read_text() == "1", step
        again.undo("undo")
        assert state(here.tree) == before, step
    assert leaked(here.shadow) == []


@pytest.mark.req("O3", "O4")
@played
async def test_an_undo_that_the_log_refuses_leaves_ignored_files_alone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from turnstate import Message
    from turnstate.errors import Conflict

    async with desk.started() as talk:
        desk.write(mine="{}")
        await talk.turn("one", {"agents": "1"})
        (desk.tree / ".gitignore").write_text("mine\n")
        desk.write(mine=SECRET.decode())
        await talk.checkpoints.restore("1")
        files = desk.files
        really, overtaken = talk.checkpoints.repository.undo, list[bool]()

        async def overtake() -> None:
            await talk.session.append(Message.user("somebody else"))

        def meanwhile(*arguments: object, **options: object) -> object:
            if not overtaken:
                overtaken.append(True)
                asyncio.run_coroutine_threadsafe(overtake(), loop).result()
            return really(*arguments, **options)

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(talk.checkpoints.repository, "undo", meanwhile)
        with pytest.raises(Conflict):
            await talk.checkpoints.undo_restore()
        assert desk.files == files
        assert desk.files["mine"] == SECRET.decode()
        assert leaked(talk.checkpoints.repository.folder) == []


@pytest.mark.req("O2", "O4")
def test_a_purge_leaves_no_byte_of_what_is_ignored_now_and_keeps_the_rest(
    here: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnstate.shadow.packs.MAX_PACKS", 3)  # so that some packs are joined, with deltas
    git(here.tree, "init", "--quiet")
    (here.tree / "nested").mkdir()
    git(here.tree / "nested", "init", "--quiet")
    write(here.tree, ".gitignore", "logs/\n")
    write(here.tree, "same", "kept " + SECRET.decode() * 0)
    repository, commits = here.open(), list[str]()
    for number in range(6):
        word = SECRET + b" %d " % number * 200
        for name in ("mine", "sub/deep/mine", "out/x", "only/mine", "linked/mine", "nested/hidden", "global"):
            write(here.tree, name, word, 0o600)
        write(here.tree, "a", f"{number}")
        write(here.tree, "tracked", "t")
        commits.append(repository.snapshot(f"{number}").commit)
    repository.restore("3", hard=True)
    repository.undo("undo", undo="again")
    assert leaked(here.shadow)
    git(here.tree, "add", "--force", "tracked")
    write(here.tree, ".gitignore", "logs/\nmine\n/out/\ntracked\n")
    write(here.tree, ".git/info/exclude", "global\n")
    write(here.tree, "nested/.git/info/exclude", "/hidden\n")
    (here.tree / "linked" / "mine").unlink()
    (here.tree / "linked").rmdir()
    (here.tree / "linked").symlink_to("/etc")
    expected = {
        b"mine",
        b"sub/deep/mine",
        b"out/x",
        b"only/mine",
        b"linked/mine",
        b"nested/hidden",
        b"global",
    }
    assert set(repository.ignored_now()) == expected
    before = state(here.tree)
    purged = repository.purge()
    assert set(purged.paths) == expected
    assert purged.snapshots >= 6
    assert leaked(here.shadow, SECRET, b"deep/mine", b"hidden") == []
    assert state(here.tree) == before
    assert here.git("fsck", "--strict") == ""
    for number, commit in enumerate(commits):
        for name in (f"{number}", commit):
            repository.restore(name, hard=True)
            assert (here.tree / "a").read_text() == f"{number}"
            assert (here.tree / "tracked").read_text() == "t"
    assert here.kept("0") == {b".gitignore", b"a", b"same", b"tracked"}
    write(here.tree, "b", "after")
    repository.snapshot("7")
    assert repository.purge().paths == ()
    repository.restore(commits[2])
    assert (here.tree / "a").read_text() == "2"


@pytest.mark.req("O2", "O4")
def test_a_purge_that_was_cut_off_can_be_done_again(here: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    write(here.tree, "mine", SECRET)
    write(here.tree, "a", "1")
    repository = here.open()
    commit = repository.snapshot("0").commit
    write(here.tree, ".gitignore", "mine\n")
    for name in ("store_pack", "update_references", "_repack"):
        with monkeypatch.context() as failing:

            def cut(*_: object) -> None:
                raise KeyboardInterrupt

            failing.setattr(f"turnstate.shadow.purge.{name}", cut)
            with pytest.raises(KeyboardInterrupt):
                repository.purge()
        (here.tree / "a").unlink()
        repository.restore(commit)
        assert (here.tree / "a").read_text() == "1"
    repository.purge()
    assert leaked(here.shadow) == []
    (here.tree / "a").unlink()
    repository.restore(commit)
    assert (here.tree / "a").read_text() == "1"


@pytest.mark.req("O2")
@played
async def test_the_log_finds_its_checkpoints_after_a_purge(desk: Desk) -> None:
    async with desk.started() as talk:
        desk.write(secret=SECRET.decode())
        await talk.turn("one", {"a": "1\n"})
        await talk.turn("two", {"a": "2\n"})
        await talk.checkpoints.restore("1")
        (desk.tree / ".gitignore").write_text("secret\n")
        assert (await talk.checkpoints.purge()).paths == (b"secret",)
        assert leaked(talk.checkpoints.repository.folder) == []
    async with desk.started() as talk:
        assert await talk.labels() == ["0", "1"]
        await talk.checkpoints.undo_restore()
        assert desk.files["a"] == "2\n"
        assert await talk.labels() == ["0", "1", "2"]
        await talk.checkpoints.restore("0")
        assert (desk.files["a"], desk.files["secret"]) == ("one\n", SECRET.decode())


@pytest.mark.req("O3")
@pytest.mark.parametrize("how", ["gone", "garbage"])
def test_a_lost_history_is_not_continued_with_the_snapshot_of_an_undo(here: Scene, how: str) -> None:
    write(here.tree, "a", "1")
    repository = here.open(clock=lambda: 1_700_000_000.0)  # all in one second
    for number in range(3):
        write(here.tree, "agents", f"{number}")
        repository.snapshot(f"{number}")
    write(here.tree, "mine", "the user's own")
    for number in range(4):
        repository.restore("1", undo=f"u{number}")
    history = here.shadow / "repository" / "refs" / "heads" / "history"
    newest = history.read_text()
    history.unlink()
    if how == "garbage":
        history.write_text("garbage")
    again = here.open()
    assert again.restore("0", hard=True).kept == ()
    assert (here.tree / "mine").read_text() == "the user's own"
    assert history.read_text() == newest
    assert here.git("fsck", "--strict") == ""
