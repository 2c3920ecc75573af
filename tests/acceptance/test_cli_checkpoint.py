from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.cli_program import Outcome, environment, on_a_terminal, real_turnstate, turnstate
from tests.acceptance.kept_sessions import answering, make, opened
from turnstate import Message

pytestmark = pytest.mark.req("O2", "P3")

VERBS = ["list", "expand", "diff", "restore", "undo", "keep", "clean"]


@pytest.fixture
def tree(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: ARG001
    """A project, which commands run in; `url` is the store that they find."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a").write_text("one\n")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def session(url: str, tree: Path) -> str:
    """A session with two checkpoints that were asked for, and an edit since."""
    id = make(url, "hello", id="lamp")
    assert checkpoint("keep", id, "first light").code == 0
    (tree / "a").write_text("two\n")
    (tree / "b").write_text("new\n")
    with opened(url) as sessions:
        sessions.open(id).append(Message.assistant("hi"))
    assert checkpoint("keep", id, "second light").code == 0
    (tree / "a").write_text("three\n")
    return id


def checkpoint(verb: str, *arguments: object) -> Outcome:
    return turnstate("checkpoint", verb, *arguments)


def said(url: str, id: str) -> list[str]:
    with opened(url) as sessions:
        return [message.text for message in sessions.open(id).messages()]


def files(tree: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(tree.iterdir())}


def test_checkpoints_are_listed_by_turns(session: str) -> None:
    code, out, err = checkpoint("list", session)
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["checkpoint", "when", "files", "description"],
        ["0", "just", "now", "+1", "the", "start"],
        ["1", "just", "now", "none", "first", "light"],
        ["2", "just", "now", "+1", "~1", "second", "light"],
    ]


def test_json_has_a_line_a_turn(session: str) -> None:
    *_, last = checkpoint("list", session, "--json").objects
    assert (last["checkpoint"], last["description"], last["added"], last["done"]) == (
        "2",
        "second light",
        1,
        True,
    )
    assert len(last["commit"]) == 40
    assert last["at"].endswith("Z")
    (expanded,) = checkpoint("expand", session, "2", "--json").objects
    assert expanded == {**last, "tools": []}
    assert checkpoint("expand", session, "2").out.splitlines()[1].startswith("2 ")


def test_the_beginning_of_an_id_will_do(session: str) -> None:
    assert checkpoint("list", session[:2]).out == checkpoint("list", session).out


def test_a_diff_shows_what_changed_since_then_or_between_two(session: str) -> None:
    code, out, _ = checkpoint("diff", session, "2")
    assert code == 0
    assert "-two\n+three\n" in out
    assert checkpoint("diff", session, "1", "2", "--stat").out.split() == [
        *("modified", "+1", "-1", "a"),
        *("added", "+1", "-0", "b"),
    ]
    (found,) = checkpoint("diff", session, "1", "2", "--json").objects
    assert [(one["path"], one["status"]) for one in found["files"]] == [("a", "modified"), ("b", "added")]
    assert checkpoint("diff", session, "1", "1") == (0, "", "turnstate: no differences\n")


def test_a_restore_brings_files_and_conversation_back_and_undo_takes_it_back(
    session: str, tree: Path, url: str
) -> None:
    code, out, err = checkpoint("restore", session, "1", "--hard")
    assert (code, out) == (0, "")
    first, second = err.splitlines()
    assert first == "turnstate: session lamp restored to 1: files ~1 -1 and the conversation"
    assert second.startswith("turnstate: the previous files are saved as ")
    assert (files(tree), said(url, session)) == ({"a": "one\n"}, ["hello"])
    code, _, err = checkpoint("undo", session)
    assert code == 0
    assert err.startswith(
        "turnstate: session lamp back to before the restore of 1: files +1 ~1 and the conversation\n"
    )
    assert (files(tree), said(url, session)) == ({"a": "three\n", "b": "new\n"}, ["hello", "hi"])
    assert checkpoint("undo", session) == (
        1,
        "",
        "turnstate: there is no restore on this path to undo\n",
    )


@pytest.mark.parametrize(
    ("option", "expected", "messages"),
    [
        ("--files", "one\n", ["hello", "hi"]),
        ("--conversation", "three\n", ["hello"]),
        ("--both", "one\n", ["hello"]),
    ],
)
def test_one_can_say_what_is_restored(
    session: str, tree: Path, url: str, option: str, expected: str, messages: list[str]
) -> None:
    (told,) = checkpoint("restore", session, "1", option, "--json").objects
    assert (told["session"], told["checkpoint"]) == ("lamp", "1")
    assert told["conversation"] == (option != "--files")
    assert (told["files"] is None) == (option == "--conversation")
    assert (files(tree)["a"], said(url, session)) == (expected, messages)


def test_the_commit_that_a_restore_names_can_be_restored(session: str, tree: Path) -> None:
    (told,) = checkpoint("restore", session, "1", "--files", "--json").objects
    assert told["files"]["modified"] == ["a"]
    assert checkpoint("restore", session, told["files"]["before"], "--files").code == 0
    assert files(tree)["a"] == "three\n"
    assert "no checkpoint" in checkpoint("restore", session, told["files"]["before"]).err


def test_what_could_not_be_restored_is_told(session: str, tree: Path) -> None:
    (tree / "a").unlink()
    (tree / ".gitignore").write_text("ignored\n")
    (tree / "a").mkdir()
    (tree / "a" / "ignored").write_text("mine")
    code, _, err = checkpoint("restore", session, "1", "--files")
    assert code == 1
    assert "turnstate: not restored: a: a folder with files that no snapshot holds is in the way\n" in err
    assert (tree / "a" / "ignored").read_text() == "mine"


def test_the_folder_is_known_wherever_a_command_runs(
    session: str, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert checkpoint("restore", session, "1", "--files").code == 0
    assert files(tree)["a"] == "one\n"
    code, _, err = checkpoint("list", session, "--work-tree", tmp_path)
    assert code == 1
    assert "are of" in err
    os.rename(tree, tmp_path / "moved")
    assert checkpoint("list", session).code == 1
    assert checkpoint("list", session, "--work-tree", tmp_path / "moved", "--force").code == 0


def test_what_is_left_out_is_told(url: str, tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    code, out, err = checkpoint("keep", make(url), "--json")
    assert code == 0
    assert "turnstate: left out: pipe: " in err
    assert json.loads(out)["left_out"][0]["path"] == "pipe"


def test_looking_makes_nothing(url: str, tree: Path, tmp_path: Path) -> None:
    id = make(url)
    for verb, *arguments in (["list"], ["expand", "1"], ["diff", "0"], ["restore", "0"], ["undo"], ["clean"]):
        code, out, err = checkpoint(verb, id, *arguments)
        assert (code, out) == (1, "")
        assert f"no checkpoints of {id} in" in err
    assert not (tmp_path / "home").exists()
    assert files(tree) == {"a": "one\n"}


def test_cleaning_asks_first(session: str, tree: Path) -> None:
    code, _, err = checkpoint("clean", session)
    assert code == 2
    assert "pass --yes to skip the confirmation" in err
    code, _, seen = answering("n", "checkpoint", "clean", session)
    assert code == 1
    assert "Delete 3 checkpoints of" in seen
    assert checkpoint("list", session).code == 0
    code, _, err = checkpoint("clean", session, "--yes")
    assert code == 0
    assert "checkpoints deleted: " in err
    assert checkpoint("list", session).code == 1
    assert files(tree)["a"] == "three\n"


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["restore", "lamp", "9"], 1, "there is no checkpoint 9 on this path"),
        (["expand", "lamp", "1.1"], 1, "there is no turn 1.1 on this path"),
        (["diff", "lamp", "2", "x\x1b[31m"], 1, "there is no checkpoint x\\x1b[31m"),
        (["list", "nobody"], 1, "there is no session nobody"),
        (["list", "lamp", "--tenant", "other"], 1, "there is no session lamp"),
        (["list", "lamp", "--user", "ben"], 1, "there is no session lamp"),
        (["list"], 2, "Missing argument 'SESSION'"),
        (["restore", "lamp"], 2, "Missing argument 'CHECKPOINT'"),
        (["fly", "lamp"], 2, "No such command 'fly'"),
        (["list", "lamp", "--store", "sqlite:///none.db"], 3, "the file none.db does not exist"),
        (["keep", "lamp", "--work-tree", "/"], 1, "is the whole machine"),
        (["list", "lamp", "--work-tree", "nowhere"], 1, "nowhere cannot be used"),
    ],
)
@pytest.mark.usefixtures("session")
def test_what_cannot_be_done_is_told(arguments: list[str], code: int, complaint: str) -> None:
    found = turnstate("checkpoint", *arguments)
    assert (found.code, found.out) == (code, "")
    assert complaint in found.err
    assert found.err.count("\n") == 1


def test_without_git_it_says_so(session: str, tmp_path: Path) -> None:
    nothing = tmp_path / "no programs"
    nothing.mkdir()
    env = {**os.environ, "PATH": str(nothing)}
    code, out, err = real_turnstate("checkpoint", "list", session, env=env)
    assert (code, out) == (1, "")
    assert "git" in err


def test_a_diff_is_shown_on_a_terminal(session: str) -> None:
    code, _, seen = on_a_terminal("checkpoint", "diff", session, "1")
    assert code == 0
    assert "+three" in seen


def test_a_session_shows_where_its_checkpoints_are(session: str) -> None:
    checkpoint("restore", session, "1", "--files")
    checkpoint("undo", session)
    shown = turnstate("show", session).out
    assert "— checkpoint 1: first light\n" in shown
    assert "— files of checkpoint 1 restored\n" in shown
    assert "— restore of checkpoint 1 undone\n" in shown
    checkpoint("restore", session, "1")
    assert "— checkpoint 1 restored\n" in turnstate("show", session).out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str) -> None:
    code, out, _ = checkpoint(verb, "--help")
    assert code == 0
    assert "\n    turnstate checkpoint" in out
    assert "Exit codes:\n    0  success\n" in out
    assert max(map(len, out.splitlines())) <= 80
    assert verb in turnstate("checkpoint", "--help").out


AGENT = """
import asyncio, sys
from turnstate import Message, SessionManager
async def main():
    async with await SessionManager.open("sqlite:///agent.db") as sessions:
        session = await sessions.create(id="talk")
        for number in range(200):
            await session.append(Message.user(f"acknowledged {number}"))
            print(number, flush=True)
            if number % 20 == 0:
                sys.stdin.readline()
asyncio.run(main())
"""


@pytest.mark.req("O3")
def test_a_store_in_the_project_loses_nothing_beside_a_live_agent(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = "sqlite:///agent.db"
    settings = {"env": environment(TURNSTATE_STORE=store), "cwd": tree}
    monkeypatch.chdir(tree)
    monkeypatch.setenv("TURNSTATE_STORE", store)
    make(f"sqlite:///{tree}/agent.db", "hello", id="lamp")
    assert turnstate("checkpoint", "keep", "lamp").code == 0
    with opened(f"sqlite:///{tree}/agent.db") as sessions:
        for number in range(10):
            sessions.open("lamp").append(Message.user(f"later {number}"))
    commands = [
        *(["restore", "lamp", "1"], ["undo", "lamp"], ["keep", "lamp"], ["restore", "lamp", "0", "--hard"]),
        *(["undo", "lamp"], ["restore", "lamp", "1", "--files"], ["diff", "lamp", "0"], ["undo", "lamp"]),
        ["clean", "lamp", "--yes"],
    ]
    with subprocess.Popen(
        [sys.executable, "-c", AGENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **settings
    ) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        assert agent.stdout.readline() == "0\n"
        for number, command in enumerate(commands):
            agent.stdin.write("go on\n")
            agent.stdin.flush()
            (tree / "a").write_text(f"{number}\n")
            done = turnstate("checkpoint", *command)
            assert done.code == 0, done.err
            assert "agent.db" not in done.out + done.err
            verified = turnstate("verify", "--store", store)
            assert (verified.code, "no damage found" in verified.err) == (0, True), verified
        agent.stdin.write("go on\n" * 2)
        agent.stdin.flush()
        acknowledged = [int(line) for line in agent.stdout]
        assert agent.wait(30) == 0
    assert acknowledged == list(range(1, 200))
    there = f"sqlite:///{tree}/agent.db"
    assert said(there, "talk") == [f"acknowledged {number}" for number in range(200)]
    assert said(there, "lamp") == ["hello", *(f"later {number}" for number in range(10))]


def test_a_database_in_use_is_named_by_keep_and_by_restore(session: str, tree: Path) -> None:
    with closing(sqlite3.connect(tree / "db.sqlite3")) as database:
        database.execute("CREATE TABLE t (x)")
        database.commit()
    assert checkpoint("keep", session).code == 0
    with closing(sqlite3.connect(tree / "db.sqlite3")) as database:
        database.execute("PRAGMA journal_mode = wal")
        database.execute("INSERT INTO t VALUES (1)")
        database.commit()
        kept = checkpoint("keep", session)
        assert (kept.code, "left out: db.sqlite3: it belongs to an SQLite database in use" in kept.err) == (
            0,
            True,
        )
        code, _, err = checkpoint("restore", session, "3")
        assert (code, "not restored: db.sqlite3: it belongs to an SQLite" in err) == (1, True)
        code, _, err = checkpoint("restore", session, "1")
        assert (code, "left out: db.sqlite3: it belongs to an SQLite" in err) == (0, True)
        (told,) = checkpoint("restore", session, "0", "--json").objects
        assert [one["path"] for one in told["files"]["left_out"]] == [
            *("db.sqlite3", "db.sqlite3-shm", "db.sqlite3-wal")
        ]
        assert database.execute("SELECT x FROM t").fetchall() == [(1,)]


def test_undo_keeps_files_that_were_ignored_before_the_restore(url: str, tree: Path, tmp_path: Path) -> None:
    id, mine = make(url), tree / "settings.local.json"
    (tree / ".gitignore").write_text("logs/\n")
    mine.write_text("{}")
    assert checkpoint("keep", id).code == 0
    (tree / ".gitignore").write_text("logs/\nsettings.local.json\n")
    mine.write_text('{"mine": "token-8f14e45f"}')
    before = files(tree)
    assert checkpoint("restore", id, "0").code == 1  # the file is told as left alone
    assert (tree / ".gitignore").read_text() == "logs/\n"
    assert checkpoint("undo", id).code == 0
    assert files(tree) == before
    assert kept_anywhere(tmp_path / "home", b"token-8f14e45f") == []


def test_a_hard_restore_keeps_a_file_that_only_an_undo_has_seen(session: str, tree: Path) -> None:
    (tree / "mine").write_text("the user's own")
    for verb, *arguments in (["restore", "1"], ["undo"], ["restore", "1", "--hard"]):
        assert checkpoint(verb, session, *arguments).code == 0
    assert files(tree) == {"a": "one\n", "mine": "the user's own"}


def kept_anywhere(home: Path, secret: bytes) -> list[str]:
    """Name the objects of all shadow repositories, loose and packed, in which the bytes occur."""
    found = list[str]()
    for repository in (home / "checkpoints").glob("*/repository"):
        git = ["git", "--git-dir", str(repository), "cat-file", "--batch-all-objects"]
        listed = subprocess.run([*git, "--batch-check"], capture_output=True, check=True).stdout
        everything = subprocess.run([*git, "--batch"], capture_output=True, check=True).stdout
        assert listed.count(b"\n") > 3
        found += [str(repository)] if secret in everything else []
    return found


def test_what_is_ignored_now_can_be_removed_from_all_checkpoints(
    session: str, tree: Path, tmp_path: Path
) -> None:
    (tree / "b").write_text("token-8f14e45f")
    assert checkpoint("keep", session).code == 0
    assert kept_anywhere(tmp_path / "home", b"token-8f14e45f") != []
    (tree / ".gitignore").write_text("b\n")
    code, _, err = checkpoint("clean", session, "--ignored")
    assert code == 2
    assert "now ignored: b\n" in err
    code, _, err = checkpoint("clean", session, "--ignored", "--yes")
    assert code == 0
    assert "1 file removed from " in err
    assert kept_anywhere(tmp_path / "home", b"token-8f14e45f") == []
    assert checkpoint("restore", session, "1", "--files").code == 0
    assert files(tree) == {".gitignore": "b\n", "a": "one\n", "b": "token-8f14e45f"}
    assert "0 files removed from 0 snapshots" in checkpoint("clean", session, "--ignored").err


def shadow(tmp_path: Path) -> Path:
    (found,) = (tmp_path / "home" / "checkpoints").iterdir()
    return found


def damage_first_pack(tmp_path: Path, text: bytes) -> Path:
    """Damage, in the pack that holds it, the first bytes of a file that was kept."""
    for pack in (shadow(tmp_path) / "repository" / "objects" / "pack").glob("*.pack"):
        place = pack.read_bytes().find(zlib.compress(text, 1))
        if place >= 0:
            data = bytearray(pack.read_bytes())
            data[place + 3] ^= 0xFF
            pack.chmod(0o600)
            pack.write_bytes(data)
            return pack
    raise AssertionError("it is not kept")


def test_a_damaged_checkpoint_is_marked_refused_and_found_and_the_others_are_good(
    session: str, tree: Path, tmp_path: Path
) -> None:
    damage_first_pack(tmp_path, b"two\n")
    code, out, _ = turnstate("verify")
    assert code == 1
    assert 'checkpoint "second light"' in out
    assert "a is damaged" in out
    assert f"`turnstate checkpoint clean {session}` removes all of them" in out
    code, out, err = checkpoint("list", session)
    assert code == 0
    assert [("damaged: a is damaged" in line) for line in out.splitlines()] == [False, False, False, True]
    assert "1 checkpoint damaged" in err
    *_, last = checkpoint("list", session, "--json").objects
    assert "a is damaged" in last["damaged"]
    for verb in ("restore", "diff"):
        code, out, err = checkpoint(verb, session, "2")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert "checkpoint 2 is damaged and nothing was changed: a is damaged" in err
    assert files(tree) == {"a": "three\n", "b": "new\n"}
    assert checkpoint("restore", session, "1", "--files", "--hard").code == 0
    assert files(tree) == {"a": "one\n"}
    assert checkpoint("keep", session).code == 0
    assert checkpoint("restore", session, "3", "--files").code == 0
    (tree / "a").write_text("two\n")  # what is kept again heals the checkpoint that lacked it
    assert checkpoint("keep", session).code == 0
    assert checkpoint("restore", session, "2", "--files").code == 0
    assert turnstate("verify", "--repair").code == 0


@pytest.mark.parametrize(
    "name", ["HEAD", "config", "refs/heads/history", "refs/heads/seen", "info/exclude", "objects/pack"]
)
@pytest.mark.parametrize("how", ["gone", "garbage"])
def test_the_frame_of_the_repository_is_rewritten(
    session: str, tree: Path, tmp_path: Path, name: str, how: str
) -> None:
    path = shadow(tmp_path) / "repository" / name
    lost = name == "objects/pack"
    if lost:
        shutil.rmtree(path)
    else:
        path.unlink()
    if how == "garbage":
        path.write_bytes(b"\0garbage")
    assert checkpoint("list", session).out.count("damaged") == (3 if lost else 0)
    assert checkpoint("keep", session).code == 0
    assert checkpoint("restore", session, "3", "--files").code == 0
    assert checkpoint("restore", session, "1", "--files").code == (1 if lost else 0)
    assert files(tree)["a"] == ("three\n" if lost else "one\n")


@pytest.mark.parametrize(
    "how", ["no about", "garbage about", "a file", "garbage lock", "no repository", "an empty folder"]
)
def test_cleaning_works_whatever_the_condition_of_the_checkpoints(
    session: str, tree: Path, tmp_path: Path, how: str
) -> None:
    folder = shadow(tmp_path)
    match how:
        case "no about":
            (folder / "about.json").unlink()
        case "garbage about":
            (folder / "about.json").write_bytes(b"\xff{")
        case "garbage lock":
            (folder / "lock").unlink()
            (folder / "lock").mkdir()
        case "no repository":
            shutil.rmtree(folder / "repository")
        case "a file":
            shutil.rmtree(folder)
            folder.write_text("x")
        case "an empty folder":
            shutil.rmtree(folder)
            folder.mkdir()
    for verb, *arguments in (["list"], ["restore", "1"], ["undo"]):
        code, out, err = checkpoint(verb, session, *arguments)
        assert "Traceback" not in err
        assert code in (0, 1)
        assert out or "clean" in err or "keep` takes the first" in err or "no restore on this path" in err
    code, _, err = checkpoint("clean", session, "--yes")
    assert code == 0
    assert "checkpoints deleted: " in err
    assert not folder.exists()
    assert checkpoint("keep", session).code == 0
    assert files(tree)["a"] == "three\n"


def test_checkpoints_that_do_not_say_of_what_they_are_can_be_told(
    session: str, tree: Path, tmp_path: Path
) -> None:
    (shadow(tmp_path) / "about.json").write_text("{")
    code, _, err = checkpoint("list", session)
    assert (code, err.count("\n")) == (1, 1)
    assert "--work-tree DIR --force" in err
    assert checkpoint("list", session, "--work-tree", tree, "--force").code == 0
    assert checkpoint("restore", session, "1", "--files").code == 0
    assert files(tree)["a"] == "one\n"
