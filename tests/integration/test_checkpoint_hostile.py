"""Nothing in a work tree or an environment makes a snapshot run, change, lose or give away anything."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.integration.checkpoint_scene import Scene, git, scene, state, write
from turnstate.checkpoints import LeftOut, SnapshotLimits
from turnstate.errors import WorkTreeRefused


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return scene(tmp_path)


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Path]:
    """A program that leaves a trace; there must be none in the end."""
    program = write(tmp_path, "trap", f"#!/bin/sh\ntouch {tmp_path}/it-ran\ncat\n", 0o755)
    yield program
    assert not (tmp_path / "it-ran").exists()


def reasons(left_out: tuple[LeftOut, ...]) -> dict[bytes, str]:
    return {one.path: one.reason for one in left_out}


def users_repository(folder: Path) -> None:
    """Make a repository with a commit."""
    git(folder, "init", "--quiet")
    write(folder, "tracked", "1")
    git(folder, "add", "tracked")
    git(folder, "commit", "--quiet", "-m", "first")


def whole_round(here: Scene) -> None:
    """Take snapshots, compare, restore and undo, with changes in between."""
    repository = here.open()
    repository.snapshot("0", "start")
    before = state(here.tree)
    write(here.tree, "tracked", "2")
    write(here.tree, "added", "new")
    repository.has_changes()
    repository.diff("0")
    repository.snapshot("1")
    repository.diff("0", "1")
    repository.restore("0", hard=True)
    assert state(here.tree) == before
    repository.restore("undo")


def setup_hostile(folder: Path, trap: Path) -> None:
    """Configure everything that git is known to run."""
    for name, value in {
        "commit.gpgsign": "true",
        "gpg.program": str(trap),
        "core.fsmonitor": str(trap),
        "core.hooksPath": str(folder / "hooks"),
        "core.pager": str(trap),
        "core.editor": str(trap),
        "core.sshCommand": str(trap),
        "core.askPass": str(trap),
        "core.autocrlf": "true",
        "core.eol": "crlf",
        "diff.external": str(trap),
        "diff.trap.textconv": str(trap),
        "diff.trap.command": str(trap),
        "filter.trap.clean": str(trap),
        "filter.trap.smudge": str(trap),
        "filter.trap.process": str(trap),
        "filter.trap.required": "true",
        "alias.check-ignore": f"!{trap}",
        "alias.index-pack": f"!{trap}",
    }.items():
        git(folder, "config", name, value)
    for hook in ("pre-commit", "post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"):
        for place in (".git/hooks", "hooks"):
            write(folder, f"{place}/{hook}", trap.read_text(), 0o755)


@pytest.mark.req("O1", "O4")
@pytest.mark.parametrize("where", ["", "nested"])
def test_nothing_that_a_repository_configures_runs_and_it_is_not_changed(
    where: str, here: Scene, trap: Path
) -> None:
    top = here.tree / where
    top.mkdir(exist_ok=True)
    users_repository(here.tree)
    if where:
        users_repository(top)
    setup_hostile(top, trap)
    git(top, "status")  # the index knows of the monitor now, which ran
    trap.with_name("it-ran").unlink()
    write(top, ".gitattributes", "* filter=trap diff=trap text eol=crlf ident working-tree-encoding=UTF-16\n")
    write(top, "crlf", b"a\r\nb\n$Id$\n")
    before = state(top / ".git")
    whole_round(here)
    assert state(top / ".git") == before


@pytest.mark.req("O4")
def test_the_trap_is_one_that_git_does_fall_into(here: Scene, tmp_path: Path) -> None:
    program = write(tmp_path, "trap", f"#!/bin/sh\ntouch {tmp_path}/it-ran\ncat\n", 0o755)
    users_repository(here.tree)
    setup_hostile(here.tree, program)
    git(here.tree, "status")
    assert (tmp_path / "it-ran").exists()


@pytest.mark.req("O4")
def test_the_environment_has_no_say(
    here: Scene, trap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    users_repository(other)
    users_repository(here.tree)
    write(tmp_path, "user/.gitconfig", f"[core]\n\tfsmonitor = {trap}\n[commit]\n\tgpgsign = true\n")
    write(tmp_path, "config", f"[core]\n\tfsmonitor = {trap}\n\thooksPath = {tmp_path}\n")
    hostile = {
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(other / ".git" / "index"),
        "GIT_OBJECT_DIRECTORY": str(other / ".git" / "objects"),
        "GIT_CONFIG": str(tmp_path / "config"),
        "GIT_CONFIG_GLOBAL": str(tmp_path / "config"),
        "GIT_CONFIG_SYSTEM": str(tmp_path / "config"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": str(trap),
        "GIT_CONFIG_PARAMETERS": f"'core.fsmonitor'='{trap}'",
        "GIT_EXTERNAL_DIFF": str(trap),
        "GIT_PAGER": str(trap),
        "GIT_EDITOR": str(trap),
        "GIT_ASKPASS": str(trap),
        "GIT_TEMPLATE_DIR": str(other),
        "GIT_TRACE": str(tmp_path / "trace"),
        "GIT_TRACE2_EVENT": str(tmp_path / "trace"),
        "GIT_EXEC_PATH": str(tmp_path),
        "GIT_NAMESPACE": "x",
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_QUARANTINE_PATH": str(other),
        "GIT_SHALLOW_FILE": "x",
        "LANG": "ja_JP.UTF-8",
    }
    for name, value in hostile.items():
        monkeypatch.setenv(name, value)
    before = (state(other), state(here.tree / ".git"))
    whole_round(here)
    assert (state(other), state(here.tree / ".git")) == before
    assert not (tmp_path / "trace").exists()


@pytest.mark.req("O4")
def test_a_git_in_the_work_tree_is_not_run(here: Scene, trap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(here.tree, "git", trap.read_text(), 0o755)
    monkeypatch.setenv("PATH", f".:{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(here.tree)
    whole_round(here)


@pytest.mark.req("O4")
def test_files_of_nested_repositories_and_submodules_are_kept(here: Scene, tmp_path: Path) -> None:
    users_repository(here.tree)
    for name in ("nested", "empty", "deep/down"):
        (here.tree / name).mkdir(parents=True)
        git(here.tree / name, "init", "--quiet")
    write(here.tree, "nested/x", "1")
    write(here.tree, "deep/down/y", "1")
    source = tmp_path / "source"
    source.mkdir()
    users_repository(source)
    git(here.tree, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(source), "module")
    before = state(here.tree)
    repository = here.open()
    snapshot = repository.snapshot("0")
    assert here.kept() == {b"tracked", b"nested/x", b"deep/down/y", b"module/tracked", b".gitmodules"}
    assert b"empty/" in snapshot.changes.added
    for name in ("nested/x", "deep/down/y", "module/tracked"):
        (here.tree / name).unlink()
    repository.restore("0")
    assert state(here.tree) == before


@pytest.mark.req("O4")
def test_special_unreadable_and_huge_files_are_left_out_and_told(here: Scene) -> None:
    write(here.tree, "fine", "1")
    os.mkfifo(here.tree / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(here.tree / "socket"))
        with write(here.tree, "huge").open("r+b") as file:
            file.truncate(500 << 20)
        os.symlink("/dev/zero", here.tree / "link")
        snapshot = here.open().snapshot("0")
    assert here.kept() == {b"fine", b"link"}
    assert reasons(snapshot.left_out) == {
        b"huge": "it has 524,288,000 bytes; at most 104,857,600 are kept",
        b"pipe": "it is a FIFO",
        b"socket": "it is a socket",
    }


@pytest.mark.req("O3", "O4")
def test_what_was_left_out_is_never_touched(here: Scene) -> None:
    for name in ("pipe", "big", "d/x"):
        write(here.tree, name, "1")
    repository = here.open(limits=SnapshotLimits(file_bytes=10))
    repository.snapshot("0")
    (here.tree / "pipe").unlink()
    os.mkfifo(here.tree / "pipe")
    write(here.tree, "big", "precious " * 10)
    (here.tree / "d" / "x").unlink()
    os.mkfifo(here.tree / "d" / "x")
    before = state(here.tree)
    restored = repository.restore("0", hard=True)
    assert {one.path for one in restored.kept} == {b"pipe", b"big", b"d/x"}
    assert state(here.tree) == before


AS_SOMEBODY = """
import os, sys
from turnstate.checkpoints import ShadowRepository
folder, user = sys.argv[1], int(sys.argv[2])
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
os.environ["HOME"] = folder
left_out = ShadowRepository.open(folder + "/shadow", folder + "/work").snapshot("0").left_out
print([(one.path, one.reason) for one in left_out])
"""


@pytest.mark.req("O4")
def test_unreadable_files_and_folders_are_left_out_and_told() -> None:
    user = 65534 if os.geteuid() == 0 else os.geteuid()
    with TemporaryDirectory() as folder:
        tree = Path(folder) / "work"
        write(tree, "fine", "1")
        write(tree, "secret", "1", 0)
        write(tree, "closed/x", "1")
        (tree / "closed").chmod(0)
        for path in (*tree.iterdir(), tree, folder):
            os.chown(path, user, -1)
        command = [sys.executable, "-c", AS_SOMEBODY, folder, str(user)]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/")
        (tree / "closed").chmod(0o700)
    if "ModuleNotFoundError" in done.stderr or "PermissionError" in done.stderr:
        pytest.skip(f"another user cannot run this Python: {done.stderr.splitlines()[-1]}")
    assert done.stdout.strip() == str(
        [
            (b"closed", "it cannot be listed: Permission denied"),
            (b"secret", "it cannot be read: Permission denied"),
        ]
    ), done.stderr


@pytest.mark.req("O4")
def test_odd_names_come_back(here: Scene) -> None:
    names = [
        b"new\nline",
        b"\xff\xfe",
        b"tab\t",
        b" lead",
        b"trail ",
        b'"quoted"',
        b"back\\slash",
        b":(top)x",
    ]
    names += [
        b"-rf",
        b"*",
        b"[a]",
        b"~",
        b"#x",
        b"!y",
        b"git~1",
        b".GIT",
        b".gitmodules",
        "ünï/日本".encode(),
    ]
    names += [b"a" * 255, b"CON", b".git.", b"dir\n/x\xff"]
    top = os.fsencode(here.tree)
    for name in names:
        path = os.path.join(top, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(os.fsdecode(path)).write_bytes(name)
    before = state(here.tree)
    repository = here.open()
    repository.snapshot("0")
    assert len(here.kept()) == len(names)
    for name in names:
        os.unlink(os.path.join(top, name))
    repository.restore("0")
    assert state(here.tree) == before
    assert len(repository.diff("0", "undo").files) == len(names)


@pytest.mark.req("O4")
def test_links_out_of_the_tree_are_kept_as_links(here: Scene, tmp_path: Path) -> None:
    write(tmp_path, "outside/secret", "secret")
    os.symlink(tmp_path / "outside", here.tree / "folder")
    os.symlink("../outside/secret", here.tree / "file")
    repository = here.open()
    repository.snapshot("0")
    assert here.kept() == {b"folder", b"file"}
    assert here.git("cat-file", "blob", "0:files/file") == "../outside/secret"


@pytest.mark.req("O1", "O4")
def test_our_own_folders_in_the_work_tree_are_never_kept(here: Scene) -> None:
    inside = Scene(here.tree, here.tree / ".turnstate" / "checkpoints" / "one")
    write(here.tree, "a", "1")
    write(here.tree, ".turnstate/key", "secret")
    write(here.tree, ".openstarry/snapshots/x", "1")
    own = [here.tree / ".turnstate", here.tree / ".openstarry" / "snapshots"]
    repository = inside.open(own=own)
    repository.snapshot("0")
    assert inside.kept() == {b"a"}
    write(here.tree, ".turnstate/key", "other")
    assert not repository.has_changes()
    repository.restore("0", hard=True)
    assert (here.tree / ".turnstate" / "key").read_text() == "other"
    alone = inside.open()
    alone.snapshot("1")
    assert not any(b"checkpoints" in path for path in inside.kept("1"))


@pytest.mark.req("O1")
def test_a_home_folder_and_the_whole_machine_are_refused(
    here: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(here.tree))
    with pytest.raises(WorkTreeRefused, match="is a home folder"):
        here.open()
    with pytest.raises(WorkTreeRefused, match="is the whole machine"):
        Scene(Path("/"), here.shadow).open()
    with pytest.raises(WorkTreeRefused, match="holds the home folder"):
        Scene(here.tree.parent, here.shadow).open()
    os.symlink(here.tree, here.tree.parent / "also")
    with pytest.raises(WorkTreeRefused, match="is a home folder"):
        Scene(here.tree.parent / "also", here.shadow).open()
    assert not here.shadow.exists()
    write(here.tree, "a", "1")
    assert here.open(force=True).snapshot("0").changes.added == (b"a",)


@pytest.mark.req("O1")
def test_a_work_tree_inside_of_its_own_checkpoints_is_refused(here: Scene) -> None:
    inside = here.shadow / "repository" / "x"
    inside.mkdir(parents=True)
    for tree in (here.shadow, inside):
        with pytest.raises(WorkTreeRefused, match="where checkpoints are stored"):
            Scene(tree, here.shadow).open(force=True)


@pytest.mark.parametrize("name", ["missing", "file"])
def test_a_work_tree_that_is_no_folder_is_refused(name: str, here: Scene) -> None:
    write(here.tree, "file")
    with pytest.raises(WorkTreeRefused, match=name):
        Scene(here.tree / name, here.shadow).open()
