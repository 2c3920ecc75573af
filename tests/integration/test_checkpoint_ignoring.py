"""The user's ignore rules count, as git itself counts them, wherever they are written."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.integration.checkpoint_scene import Scene, git, scene, state, write
from turnstate.errors import WorkTreeRefused


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return scene(tmp_path)


def kept(here: Scene, **options: object) -> set[bytes]:
    here.open(**options).snapshot("0")
    return here.kept()


def files(tree: Path, *names: str) -> None:
    for name in names:
        write(tree, name, name)


@pytest.mark.req("O4")
@pytest.mark.parametrize("in_git", [False, True])
def test_rules_count_on_every_level_with_a_repository_and_without(in_git: bool, here: Scene) -> None:
    if in_git:
        git(here.tree, "init", "--quiet")
    write(here.tree, ".gitignore", "*.log\n/build/\nnode_modules\n!keep.log\nlocked/*\n!locked/open\n")
    write(here.tree, "sub/.gitignore", "*.tmp\n!special.log\n")
    files(here.tree, "a", "a.log", "keep.log", "build/x", "sub/build/x", "sub/node_modules/y/z", "a.tmp")
    files(here.tree, "sub/a.tmp", "sub/special.log", "sub/other.log", "locked/a", "locked/open")
    assert kept(here) == {
        *(b".gitignore", b"a", b"keep.log", b"sub/build/x", b"a.tmp", b"sub/.gitignore"),
        *(b"sub/special.log", b"locked/open"),
    }


@pytest.mark.req("O4")
def test_the_same_files_are_kept_that_git_would_add(here: Scene) -> None:
    git(here.tree, "init", "--quiet")
    rules = [
        "*.o",
        "!/x/*.o",
        "**/cache",
        "doc/**/*.txt",
        "[a-c]?",
        "\\#hash",
        "trail\\ ",
        "x/y/",
        "/z",
        "!a.b",
    ]
    write(here.tree, ".gitignore", "\ufeff" + "\r\n".join(rules) + "\n# end\n\n")
    for folder in ("", "x/", "x/y/", "doc/", "doc/a/b/", "cache/", "q/cache/", "z/", "x/z/"):
        files(
            here.tree,
            *(folder + name for name in ("a.o", "b1", "d1", "#hash", "trail ", "n.txt", "a.b", "cc")),
        )
    expected = {
        os.fsencode(name) for name in git(here.tree, "ls-files", "-z", "-o", "--exclude-standard").split("\0")
    }
    assert kept(here) == expected - {b""}
    assert len(expected) > 10


@pytest.mark.req("O4")
def test_rules_above_a_start_in_a_sub_folder_count(here: Scene) -> None:
    git(here.tree, "init", "--quiet")
    write(here.tree, ".gitignore", "*.log\n/sub/out\n")
    write(here.tree, ".git/info/exclude", "/sub/private\n")
    write(here.tree, "mid/.gitignore", "*.mid\n")
    files(here.tree, "sub/a", "sub/a.log", "sub/out/x", "sub/private", "sub/deep/out/x")
    files(here.tree, "mid/start/a", "mid/start/a.mid")
    assert kept(Scene(here.tree / "sub", here.shadow)) == {b"a", b"deep/out/x"}
    assert kept(Scene(here.tree / "mid" / "start", here.shadow.with_name("two"))) == {b"a"}


@pytest.mark.req("O4")
@pytest.mark.parametrize("where", ["~/.gitconfig", "~/.config/git/config", ".git/config", "default"])
def test_the_excludes_file_of_the_user_counts(where: str, here: Scene, tmp_path: Path) -> None:
    git(here.tree, "init", "--quiet")
    rules = tmp_path / "user" / (".config/git/ignore" if where == "default" else "my rules")
    write(rules.parent, rules.name, "*.mine\n!not.mine\n/only-top\n")
    setting = '[core]\n\texcludesFile = "~/my rules"\n'
    if where == ".git/config":
        with (here.tree / ".git" / "config").open("a") as file:
            file.write(setting)
    elif where != "default":
        write(tmp_path / "user", where.removeprefix("~/"), setting)
    write(here.tree, ".git/info/exclude", "not.mine\n")
    files(here.tree, "a", "a.mine", "not.mine", "only-top", "sub/only-top")
    before = state(here.tree / ".git")
    assert kept(here) == {b"a", b"sub/only-top"}
    assert state(here.tree / ".git") == before


@pytest.mark.req("O4")
def test_an_excludes_file_that_cannot_be_read_is_passed_over(here: Scene, tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    os.mkfifo(tmp_path / "user" / "pipe")
    for value in ("~/pipe", "/dev/zero", "~/missing", "", "~nobody-at-all/x"):
        write(tmp_path, "user/.gitconfig", f'[core]\n\texcludesFile = "{value}"\n')
        files(here.tree, "a")
        assert kept(here) == {b"a"}
    write(tmp_path, "user/.gitconfig", "[core\nbroken")
    assert kept(here) == {b"a"}


@pytest.mark.req("O4")
def test_a_worktree_shares_the_rules_of_its_repository(here: Scene, tmp_path: Path) -> None:
    main = tmp_path / "main"
    main.mkdir()
    git(main, "init", "--quiet")
    git(main, "commit", "--quiet", "--allow-empty", "-m", "x")
    write(main, ".git/info/exclude", "*.private\n")
    here.tree.rmdir()
    git(main, "worktree", "add", "--quiet", str(here.tree))
    files(here.tree, "a", "a.private")
    assert kept(here) == {b"a"}


@pytest.mark.req("O4")
def test_a_nested_repository_has_its_own_rules_below_it(here: Scene) -> None:
    git(here.tree, "init", "--quiet")
    (here.tree / "nested").mkdir()
    git(here.tree / "nested", "init", "--quiet")
    write(here.tree, ".git/info/exclude", "*.outer\n")
    write(here.tree, "nested/.git/info/exclude", "/x\n*.inner\n")
    files(here.tree, "x", "nested/x", "nested/sub/x", "nested/a.inner", "nested/a.outer", "a.inner")
    assert kept(here) == {b"x", b"nested/sub/x", b"a.inner"}


@pytest.mark.req("O4")
def test_rules_that_would_hang_git_leave_their_folder_out(here: Scene) -> None:
    files(here.tree, "a", "sub/b")
    os.mkfifo(here.tree / "sub" / ".gitignore")
    snapshot = here.open().snapshot("0")
    assert here.kept() == {b"a"}
    assert [one.path for one in snapshot.left_out] == [b"sub"]
    os.mkfifo(here.tree / ".gitignore")
    with pytest.raises(WorkTreeRefused, match="is not a file"):
        here.open().snapshot("1")


SOON = 60.0  # seconds; who opens the pipe waits for good
FIFO_INCLUDES = {
    "plain": "[include]\n\tpath = ../pipe\n",
    "quoted": '[include] path = "../pipe" ; end\n',
    "home": "[Include]\n\tPath = ~/pipe # mine\n",
    "conditional": '[includeIf "gitdir:/"]\n\tpath = \\\n../pipe\n',
    "nested": "[include]\n\tpath = ../more\n",
}


@pytest.mark.req("O4")
def test_a_fifo_that_the_configuration_includes_is_refused_at_once(here: Scene, tmp_path: Path) -> None:
    git(here.tree, "init", "--quiet")
    for place in (here.tree / "pipe", tmp_path / "user" / "pipe"):
        place.parent.mkdir(exist_ok=True)
        os.mkfifo(place)
    write(here.tree, "more", "[include]\npath=pipe\n")
    config = here.tree / ".git" / "config"
    before = config.read_text()
    for form, text in FIFO_INCLUDES.items():
        config.write_text(before + text)
        begun = time.monotonic()
        with pytest.raises(WorkTreeRefused, match=r"configuration leads to .*pipe, which is not a file"):
            here.open().snapshot("0")
        assert time.monotonic() - begun < SOON, form


@pytest.mark.req("O4")
def test_a_fifo_in_the_place_of_the_configuration_is_refused_at_once(here: Scene, tmp_path: Path) -> None:
    git(here.tree, "init", "--quiet")
    for name in (
        "~/.gitconfig",
        "~/.config/git/config",
        ".git/commondir",
        ".git/config.worktree",
        ".git/config",
    ):
        path = tmp_path / "user" / name[2:] if name.startswith("~") else here.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        begun = time.monotonic()
        with pytest.raises(WorkTreeRefused, match="is not a file"):
            here.open().snapshot("0")
        assert time.monotonic() - begun < SOON, name
        path.unlink()


@pytest.mark.req("O4")
@pytest.mark.parametrize("in_git", [False, True])
def test_a_fifo_elsewhere_costs_no_time(in_git: bool, here: Scene, tmp_path: Path) -> None:
    files(here.tree, "a")
    if in_git:
        git(here.tree, "init", "--quiet")
    for name in ("HEAD", ".git/info/exclude", "~/.config/git/ignore", "sub/HEAD", ".git/HEAD"):
        path = tmp_path / "user" / name[2:] if name.startswith("~") else here.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        begun = time.monotonic()
        assert kept(here) == {b"a"}, name
        assert time.monotonic() - begun < SOON, name
        path.unlink()


@pytest.mark.req("O4")
def test_includes_that_are_files_count_and_the_null_device_is_one(here: Scene, tmp_path: Path) -> None:
    git(here.tree, "init", "--quiet")
    with (here.tree / ".git" / "config").open("a") as file:
        file.write("[include]\n\tpath = /dev/null\n\tpath = ../more\n\tpath = missing\n")
    write(here.tree, "more", "[core]\n\texcludesFile = ~/mine\n[include]\n\tpath = ../work/last\n")
    write(here.tree, "last", '[includeIf "gitdir:/nowhere"]\n\tpath = ../work/more\n')
    write(tmp_path, "user/mine", "*.log\nmore\nlast\n")
    files(here.tree, "a", "a.log")
    assert kept(here) == {b"a"}


@pytest.mark.req("O4")
def test_a_work_tree_that_is_ignored_as_a_whole_is_refused_unless_forced(here: Scene) -> None:
    git(here.tree, "init", "--quiet")
    write(here.tree, ".gitignore", "scratch/\n")
    write(here.tree, "scratch/.gitignore", "*.log\n")
    files(here.tree, "scratch/a", "scratch/a.log")
    inside = Scene(here.tree / "scratch", here.shadow)
    with pytest.raises(WorkTreeRefused, match="is ignored by the rules"):
        inside.open().snapshot("0")
    assert kept(inside, force=True) == {b"a", b".gitignore"}


@pytest.mark.req("O4")
def test_new_rules_let_go_of_files_and_leave_them_where_they_are(here: Scene) -> None:
    files(here.tree, "a", "b.log")
    repository = here.open()
    repository.snapshot("0")
    write(here.tree, ".gitignore", "*.log\n")
    changes = repository.snapshot("1").changes
    assert changes.deleted == (b"b.log",)
    repository.restore("1", hard=True)
    assert (here.tree / "b.log").read_text() == "b.log"


@pytest.mark.req("O4")
def test_force_does_not_switch_the_rules_above_off(here: Scene) -> None:
    git(here.tree, "init", "--quiet")
    write(here.tree, ".gitignore", "*.log\n")
    files(here.tree, "sub/a", "sub/a.log")
    assert kept(Scene(here.tree / "sub", here.shadow), force=True) == {b"a"}


@pytest.mark.req("O4")
@pytest.mark.parametrize("start", ["", "sub"])
def test_what_the_user_tracks_is_kept_whatever_the_rules_say(start: str, here: Scene) -> None:
    git(here.tree, "init", "--quiet")
    write(here.tree, ".gitignore", "dist/\n*.log\n")
    files(
        here.tree,
        "sub/a",
        "sub/dist/deep/tracked",
        "sub/dist/deep/other",
        "sub/dist/x",
        "sub/t.log",
        "sub/u.log",
    )
    files(here.tree, "sub/distance", "sub/dist-x/y.log")
    git(here.tree, "add", "--force", "sub/dist/deep/tracked", "sub/t.log")
    before = state(here.tree / ".git")
    prefix = b"" if start else b"sub/"
    expected = {prefix + name for name in (b"a", b"dist/deep/tracked", b"t.log", b"distance")}
    assert kept(Scene(here.tree / start, here.shadow)) - {b".gitignore"} == expected
    assert state(here.tree / ".git") == before


@pytest.mark.req("O4")
def test_an_index_that_cannot_be_read_costs_nothing(here: Scene) -> None:
    git(here.tree, "init", "--quiet")
    write(here.tree, ".gitignore", "*.log\n")
    write(here.tree, ".git/index", "no index")
    files(here.tree, "a", "a.log")
    assert kept(here) == {b".gitignore", b"a"}
