from __future__ import annotations

import asyncio
import os
import pty
import re
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable
from html import unescape
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest

import turnstate as package
from tests.acceptance.cli_program import Outcome, command_line, environment, turnstate
from turnstate import SessionManager, formats
from turnstate.checkpoints import CheckpointManager
from turnstate.demo import agent, process, story
from turnstate.demo.screen import Claims
from turnstate.session import Session

ROOT = Path(package.__file__).parent
PROJECT = ROOT.parents[1]


def shown_commands(text: str) -> list[list[str]]:
    lines = text.replace(" \\\n", "").splitlines()
    return [shlex.split(line.removeprefix("$ turnstate ")) for line in lines if line.startswith("$ ")]


def false_claims(text: str) -> list[str]:
    return [line.partition("FALSE: ")[2] for line in text.splitlines() if line.startswith("  ✗")]


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders that the demo could write to: the user's own, and the one for temporary files."""
    return {name: tmp_path_factory.mktemp(name) for name in ("home", "temporary")}


@pytest.fixture(scope="module")
def told(surroundings: dict[str, Path]) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(PROJECT)
        patch.setenv("HOME", str(surroundings["home"]))
        for name in ("TURNSTATE_HOME", "XDG_DATA_HOME"):
            patch.delenv(name, raising=False)
        patch.setattr(tempfile, "tempdir", str(surroundings["temporary"]))
        return turnstate("demo")


@pytest.mark.req("P3")
def test_the_demo_shows_every_command_at_work(told: Outcome) -> None:
    assert (told.code, told.err) == (0, "")
    commands = shown_commands(told.out)
    good, broken = (os.path.relpath(ROOT / name, PROJECT) for name in ("demo.json", "demo_broken.json"))
    assert commands[:3] == [["count", good], ["validate", good], ["validate", broken]]
    assert commands[3] == ["fit", "--budget", "800", good]
    assert [command[4] for command in commands[4:]] == [n for n in formats.names() if n != "openai-chat"]
    assert "\x1b" not in told.out


def test_what_the_demo_shows_is_what_the_commands_print(
    told: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROJECT)
    for block in told.out.split("\n\n"):
        question, command, *shown = *block.replace(" \\\n", "").splitlines(), ""
        if command.startswith("$ "):
            (arguments,) = shown_commands(command)
            outcome = turnstate(*arguments)
            printed = " ".join(f"{outcome.out} {outcome.err}".split())
            seen = [line.rstrip("…").strip() for line in shown if not line.startswith(("…", "(exit code"))]
            assert question.startswith("# ")
            assert seen
            assert all(line in printed for line in seen)


def test_the_demo_fits_eighty_columns_and_ends_with_what_to_try_next(told: Outcome) -> None:
    lines = told.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-7] == "What to try next:"
    assert all(line.startswith(("turnstate ", "make chat ")) for line in lines[-6:])


@pytest.mark.req("P4")
def test_the_demo_shows_what_fitting_leaves_and_what_it_tells(told: Outcome) -> None:
    shown = " ".join(next(block for block in told.out.split("\n\n") if "$ turnstate fit" in block).split())
    assert "[Memory Summary] Previous conversation context: 8 earlier messages (1 turn) left out." in shown
    assert "2,306 tokens are now 697 of 800" in shown


@pytest.mark.req("G6")
def test_the_demo_loses_nothing_in_a_kill(told: Outcome) -> None:
    assert "✓ The process died of signal 9, with 2 open calls." in told.out
    assert "✓ A new process: of 547 messages acknowledged before, 0 are missing." in told.out
    assert "✓ 708 messages were acknowledged, on all branches: 0 lost or changed." in told.out
    assert false_claims(told.out) == []


@pytest.mark.usefixtures("told")
def test_the_demo_leaves_nothing_behind(surroundings: dict[str, Path]) -> None:
    assert {name: os.listdir(folder) for name, folder in surroundings.items()} == {
        "home": [],
        "temporary": [],
    }


@pytest.mark.parametrize(
    "line",
    [
        "When the budget was full, the oldest turns left; a summary replaces them.",
        "Left: messages, state and next request are byte for byte what they were.",
        "Undone: messages, state and next request are byte for byte what they were.",
        "Restored: jobs/export.py has its 365 bytes again; nothing else changed.",
        "The conversation was restored with it: its 500 messages, byte for byte.",
    ],
)
def test_the_demo_comes_to_everything_that_it_promises(told: Outcome, line: str) -> None:
    assert f"  ✓ {line}\n" in told.out


def test_what_the_picture_shows_is_what_the_demo_prints(told: Outcome) -> None:
    picture = (PROJECT / "docs/img/demo.svg").read_text()
    texts = re.findall(r'<text x="[\d.]+" y="(\d+)" textLength[^>]*>([^<]*)</text>', picture)
    rows = groupby(texts, key=lambda text: text[0])
    shown = [unescape(" ".join(words for _, words in row)) for _, row in rows]
    printed = iter([" ".join(line.split()) for line in told.out.splitlines()])
    assert len(shown) > 40
    for line in shown:
        assert line in printed, f"run: python tools/pictures.py --run ({line})"  # each after the one before


LIAR = """
import asyncio, sys
from turnstate.demo import agent
from turnstate.session import Session

append = Session.append

async def forgetful(self, message, **options):
    if "times out at row 1850" not in message.text:
        await append(self, message, **options)

Session.append = forgetful
asyncio.run(agent.main(sys.argv[1], until=int(sys.argv[2]), hang_at=int(sys.argv[3])))
"""


@pytest.mark.req("G6")
def test_the_demo_finds_a_lost_message_and_runs_in_any_directory_and_without_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run with an agent that drops an acknowledged message, in an empty folder, without git."""
    (tmp_path / "liar.py").write_text(LIAR)
    for name in ("elsewhere", "no programs"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT.parent)]))
    monkeypatch.setattr(process, "AGENT", "liar")
    monkeypatch.setenv("PATH", str(tmp_path / "no programs"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    code, out, _ = turnstate("demo", "--fast")
    assert code == 1
    assert false_claims(out) == [
        "A new process: of 317 messages acknowledged before, 1 are missing.",
        "344 messages were acknowledged, on all branches: 1 lost or changed.",
    ]
    assert "\n2 of 17 claims do not hold.\n" in out
    assert shown_commands(out)[0] == ["count", str(ROOT / "demo.json")]
    part = out.partition("A file that the agent overwrites\n")[2].partition("\n\n")[0]
    assert part == "  Skipped: checkpoints need git 2.36 or newer, which is missing."


def test_with_json_the_claims_are_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(_: story.Length) -> Claims:
        claims = Claims()
        claims.make("Water is wet.", holds=True)
        claims.make("Fire is cold.", holds=False)
        return claims

    monkeypatch.setattr(story, "play", play)
    done = turnstate("demo", "--json")
    (told,) = done.objects
    assert (done.code, told["holds"]) == (1, False)
    assert told["claims"] == [
        {"claim": "Water is wet.", "holds": True},
        {"claim": "Fire is cold.", "holds": False},
    ]


def tangent_with_tail(patch: pytest.MonkeyPatch) -> None:
    leave = Session.leave_tangent

    async def with_tail(session: Session) -> str | None:
        return await leave(session, "tail")

    patch.setattr(Session, "leave_tangent", with_tail)


def undo_nothing(patch: pytest.MonkeyPatch) -> None:
    async def undo(_: Session) -> str:
        return "compact"

    patch.setattr(Session, "undo", undo)


def restore_without(what: str) -> Callable[[pytest.MonkeyPatch], None]:
    restore = CheckpointManager.restore

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(CheckpointManager, "restore", lambda self, label: restore(self, label, **{what: False}))

    return plant


def no_plant(_: pytest.MonkeyPatch) -> None:
    pass


async def tell_all(url: str, folder: Path, claims: Claims) -> None:
    async with await SessionManager.open(url) as sessions:
        session = await sessions.create(id=agent.SESSION, system=agent.SYSTEM)
        for number in (1, 2, 3):
            await session.append(*agent.messages(number))
        await story.play_tangent(sessions, claims)
        await story.play_compaction(sessions, claims)
        await story.play_checkpoint(sessions, claims, folder)


@pytest.mark.parametrize(
    ("plant", "false"),
    [
        pytest.param(no_plant, [], id="nothing"),
        pytest.param(tangent_with_tail, ["Left: messages"], id="a tangent that leaves its tail behind"),
        pytest.param(undo_nothing, ["Undone: messages"], id="an undo that undoes nothing"),
        pytest.param(restore_without("files"), ["Restored: jobs"], id="a restore without the files"),
        pytest.param(
            restore_without("conversation"),
            ["The conversation was restored"],
            id="a restore without the conversation",
        ),
    ],
)
def test_the_demo_finds_a_planted_falsehood_and_no_other(
    plant: Callable[[pytest.MonkeyPatch], None],
    false: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    claims = Claims()
    asyncio.run(tell_all(f"sqlite:///{tmp_path}/agent.db", tmp_path, claims))
    assert [claim[: len(one)] for claim, one in zip(claims.false, false, strict=True)] == false
    assert claims.made == 7
    assert [one["holds"] for one in claims.to_json()].count(False) == len(false)


class Interrupted(NamedTuple):
    code: int
    seen: str
    left: list[str]


def interrupted(folder: Path, **changes: str) -> Interrupted:
    """Run the demo on a terminal, and press Ctrl-C when it has begun."""
    master, slave = pty.openpty()
    demo = subprocess.Popen(
        command_line("demo"),
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
        env=environment(TMPDIR=str(folder), **changes),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs ignore it
    )
    os.close(slave)
    seen, pressed = b"", False
    try:
        while chunk := os.read(master, 65_536):
            seen += chunk
            if b"\njob  20" in seen and not pressed:
                demo.send_signal(signal.SIGINT)
                pressed = True
    except OSError:  # how Linux says that the other side has closed
        pass
    finally:
        os.close(master)
    return Interrupted(demo.wait(60), seen.decode(), os.listdir(folder))


@pytest.mark.parametrize("changes", [{}, {"NO_COLOR": "1"}], ids=["colored", "plain"])
def test_ctrl_c_ends_the_demo_quietly_and_nothing_is_left(changes: dict[str, str], tmp_path: Path) -> None:
    demo = interrupted(tmp_path, **changes)
    assert (demo.code, demo.left) == (130, [])
    assert "Traceback" not in demo.seen
    assert ("\x1b[1m" in demo.seen, "\x1b" in demo.seen) == ((True, True) if not changes else (False, False))
    assert demo.seen.count("\rjob") > demo.seen.count("\njob") > 2  # most bars move in their place


def test_the_demo_leaves_nothing_where_its_reader_goes_away(tmp_path: Path) -> None:
    with subprocess.Popen(
        command_line("demo"), stdout=subprocess.PIPE, env=environment(TMPDIR=str(tmp_path))
    ) as demo:
        assert demo.stdout
        assert demo.stdout.readline().startswith(b"Turnstate")
        demo.stdout.close()
    assert (demo.returncode, os.listdir(tmp_path)) == (141, [])
