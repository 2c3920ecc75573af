from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from cli_program import holdfast, on_a_terminal

import holdfast as package
from holdfast import formats

ROOT = Path(package.__file__).parent


def shown_commands(text: str) -> list[list[str]]:
    lines = text.replace(" \\\n", "").splitlines()
    return [shlex.split(line.removeprefix("$ holdfast ")) for line in lines if line.startswith("$ ")]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT.parents[1])


@pytest.mark.req("P3")
@pytest.mark.usefixtures("here")
def test_the_demo_shows_every_command_at_work() -> None:
    code, out, err = holdfast("demo")
    assert (code, err) == (0, "")
    commands = shown_commands(out)
    good, broken = (os.path.relpath(ROOT / name) for name in ("demo.json", "demo_broken.json"))
    assert commands[:3] == [["count", good], ["validate", good], ["validate", broken]]
    assert commands[3] == ["fit", "--budget", "800", good]
    assert [command[4] for command in commands[4:]] == [n for n in formats.names() if n != "openai-chat"]
    assert "\x1b" not in out


@pytest.mark.usefixtures("here")
def test_what_the_demo_shows_is_what_the_commands_print() -> None:
    _, out, _ = holdfast("demo")
    for block in out.split("\n\n"):
        question, command, *shown = *block.replace(" \\\n", "").splitlines(), ""
        if command.startswith("$ "):
            (arguments,) = shown_commands(command)
            outcome = holdfast(*arguments)
            printed = " ".join(f"{outcome.out} {outcome.err}".split())
            seen = [line.rstrip("…").strip() for line in shown if not line.startswith(("…", "(exit code"))]
            assert question.startswith("# ")
            assert seen
            assert all(line in printed for line in seen)


@pytest.mark.usefixtures("here")
def test_the_demo_fits_eighty_columns_and_ends_with_what_to_try_next() -> None:
    lines = holdfast("demo").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-5] == "What to try next:"
    assert all(line.startswith("holdfast ") for line in lines[-4:])


@pytest.mark.req("P4")
@pytest.mark.usefixtures("here")
def test_the_demo_shows_what_fitting_leaves_and_what_it_tells() -> None:
    blocks = holdfast("demo").out.split("\n\n")
    shown = " ".join(next(block for block in blocks if "$ holdfast fit" in block).split())
    assert "[Memory Summary] Previous conversation context: 8 earlier messages (1 turn) left out." in shown
    assert "2,306 tokens are now 758 of 800" in shown


def test_the_demo_works_from_any_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = holdfast("demo")
    assert code == 0
    assert shown_commands(out)[0] == ["count", str(ROOT / "demo.json")]


@pytest.mark.req("G6")
def test_the_demo_shows_a_session_that_survives_a_kill() -> None:
    out = holdfast("demo").out
    assert "kill -9" in out
    assert "Acknowledged before the kill: 127 messages; lost: 0." in out
    assert "Acknowledged in all: 198 messages; lost: 0." in out
    assert "refused by any of five providers' rules: 0." in out
    assert "[Memory Summary]" in out.partition("Without a session")[0]


def test_the_demo_is_coloured_on_a_terminal_only_and_not_against_the_users_will() -> None:
    assert "\x1b[1m" in on_a_terminal("demo").err
    assert "\x1b" not in on_a_terminal("demo", NO_COLOR="1").err
