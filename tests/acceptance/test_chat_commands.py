"""The slash commands of a chat, in a pipe: what each answers, and what it says if it is written wrongly."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_program import Outcome, command_line, environment, turnstate
from tests.harness.chat_model import ChatModel
from turnstate.chat.commands import COMMANDS

pytestmark = pytest.mark.req("P2", "P3")


@pytest.fixture(scope="module")
def model() -> Iterator[ChatModel]:
    with ChatModel() as serving:
        yield serving


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TURNSTATE_STORE", "TURNSTATE_MODEL", "TURNSTATE_AGENT", "TURNSTATE_MEMORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TURNSTATE_HOME", str(tmp_path / "home"))
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def chat(model: ChatModel, *lines: str, flags: tuple[str, ...] = ()) -> Outcome:
    arguments = ("chat", "--lines", "--json", "--model", model.address, *flags)
    return turnstate(*arguments, stdin="".join(f"{line}\n" for line in lines))


def answers(done: Outcome) -> list[str]:
    """Return what the commands said: outputs, notices and errors, in their order."""
    said = [one for one in done.objects if one["event"] in ("output", "notice", "error")]
    return [one["text"] for one in said]


STEPS = [
    ("where is the lamp", ""),
    ("/help", "/checkpoint  Save, compare and restore the files of this folder"),
    ("/help tangent", "as if nothing had been said"),
    ("/tangent", "in a tangent"),
    ("an aside", ""),
    ("/tangent tail", "the last exchange came along"),
    ("/tangent list", "just now"),
    ("/tangent reopen 1", "back in the tangent"),
    ("/tangent summary", "a summary of it came along"),
    ("/checkpoint save before", "saved"),
    ("write notes.txt", ""),
    ("/checkpoint list", "before"),
    ("/checkpoint diff 1", "+written for"),
    ("/checkpoint restore 1", "restored to 1"),
    ("/checkpoint undo", "back to before the restore of 1"),
    ("/context", "short term"),
    ("/context add notes.txt", "is sent with every request"),
    ("/context files", "notes.txt"),
    ("/context remove notes.txt", "no longer sent"),
    ("/tools", "run_command"),
    ("/mcp", "no MCP server"),
    ("/model", "scripted · http://127.0.0.1"),
    ("/model gpt-5", "gpt-5 at https://api.openai.com/v1 answers from now on"),
    ("/model", "the provider ends it on 2026-12-11"),
    ("/agent", "agent: default"),
    ("/usage", "tokens sent"),
    ("/save talk.json", "saved to talk.json"),
    ("/save q.json --amazon-q", "saved to q.json"),
    ("/history 2", "assistant"),
    ("/search lamp", "where is the lamp"),
    ("/memory add The lamp is green.", "remembered"),
    ("/memory list", "The lamp is green."),
    ("/memory search green lamp", "The lamp is green."),
    ("/memory forget 1", "forgotten"),
    ("/memory list", "nothing is remembered yet"),
    ("/snapshot", "snapshot"),
    ("/compact preview", "would be replaced"),
    ("/fork other", "on branch"),
    ("/undo", "undone: fork"),
    ("/tree", "branches"),
    ("/export page", "written to page.html"),
    ("/back", "where is the lamp"),
    ("/back 1", "back before that message"),
    ("/clear", "the window is empty"),
    ("/load talk.json", "talk.json is open as session"),
    ("/load q.json", "q.json is open as session"),
    ("/sessions", "active"),
    ("/resume where is the lamp", "in session"),
    ("/new", "a new session begins"),
    ("/reset", "a new conversation begins"),
    ("/takeover", "the session is yours"),
    ("/quit", ""),
]


def test_every_command_answers(model: ChatModel, folder: Path) -> None:
    done = chat(model, *(line for line, _ in STEPS), flags=("--allow", "*"))
    said, wrong = answers(done), [one for one in done.objects if one["event"] == "error"]
    assert wrong == []
    place = 0
    for line, expected in STEPS:
        if not expected:
            continue
        found = next((at for at in range(place, len(said)) if expected in said[at]), None)
        assert found is not None, f"{line}: {expected!r} is not in {said[place : place + 3]}"
        place = found + 1
    tried = {line.partition(" ")[0][1:] for line, _ in STEPS if line.startswith("/")}
    assert tried == set(COMMANDS)
    assert (folder / "page.html").read_text().startswith("<!doctype html>")
    assert done.code == 0


def test_a_compaction_is_done_undone_and_focused(model: ChatModel, folder: Path) -> None:
    talk = [f"question {number}" for number in range(6)]
    done = chat(model, *talk, "/compact the lamp", "/history 20", "/compact undo", "/compact undo")
    said = answers(done)
    assert any("would be replaced" in one for one in said)
    assert any("replaced by" in one for one in said)
    assert any("question 0" in one for one in said), "what was replaced stays in the log"
    assert any("the compaction is undone" in one for one in said)
    assert done.code == 1  # there is no second one to undo
    assert folder.exists()


WRONG = {
    "/reset now": "it takes no arguments; usage: /reset",
    "/clear all": "it takes no arguments; usage: /clear",
    "/tangent leave": "there is no tangent to leave; usage: /tangent [enter | leave | tail | summary",
    "/tangent reopen 9": "there are 0 tangents to reopen; usage: /tangent",
    f"/tangent reopen {'9' * 5_000}": "there are 0 tangents to reopen; usage: /tangent",
    f"/history {'9' * 5_000}": "N is a number of messages; usage: /history [N]",
    "/history 0": "N is a number of messages; usage: /history [N]",
    "/tangent sideways": "usage: /tangent",
    "/checkpoint diff": "usage: /checkpoint",
    "/checkpoint list all": "usage: /checkpoint",
    "/context add": "usage: /context [add PATH | remove PATH | files]",
    "/context add missing.md": "missing.md matches no file",
    "/tools x": "it takes no arguments; usage: /tools",
    "/mcp x": "it takes no arguments; usage: /mcp",
    "/agent nobody": "no agent is called 'nobody'; there are none",
    "/usage x": "it takes no arguments; usage: /usage",
    "/save": "usage: /save FILE [--amazon-q] [--force]",
    "/save a b": "usage: /save FILE",
    "/save 'a": "usage: /save FILE",
    "/load": "usage: /load FILE",
    "/load missing.json": "missing.json: No such file or directory",
    "/resume nothing-like-it": "there is no session nothing-like-it",
    "/new x": "it takes no arguments; usage: /new",
    "/history many": "N is a number of messages; usage: /history [N]",
    "/search": "usage: /search WORDS",
    "/memory forget 9": "there are 0 facts to forget; usage: /memory",
    "/memory dream": "usage: /memory",
    "/snapshot x": "it takes no arguments; usage: /snapshot",
    "/undo x": "it takes no arguments; usage: /undo",
    "/back 7": "usage: /back [N]",
    "/tree x": "it takes no arguments; usage: /tree",
    "/export": "usage: /export FILE",
    "/takeover x": "it takes no arguments; usage: /takeover",
    "/compact undo": "undo",
    "/help nonsense": "there is no command /nonsense; /help lists them",
    "/comapct": "there is no command /comapct; did you mean /compact?",
    "/": "there is no command /",
}


def test_wrong_usage_says_the_right_one(model: ChatModel, folder: Path) -> None:
    done = chat(model, *WRONG)
    errors = [one["text"] for one in done.objects if one["event"] == "error"]
    assert done.code == 1
    assert len(errors) == len(WRONG), [*zip(WRONG, errors, strict=False)]
    for (line, expected), error in zip(WRONG.items(), errors, strict=True):
        assert expected in error, f"{line}: {error}"
    assert list(folder.glob("*.json")) == []


@pytest.mark.req("H3")
def test_a_chat_goes_on_from_its_snapshots_if_the_store_is_lost(
    model: ChatModel, folder: Path, tmp_path: Path
) -> None:
    done = chat(model, "remember the lamp", "/quit")
    assert done.code == 0
    (session,) = turnstate("sessions", "--json").objects
    for path in (tmp_path / "home").glob("turnstate.db*"):
        path.unlink()
    assert turnstate("sessions", "--json").objects == []
    assert chat(model, "hello", flags=("--continue",)).code != 0  # nothing says which one was last
    done = chat(model, "and now?", "/history 4", flags=("--resume", session["id"]))
    assert done.code == 0, done
    assert any("remember the lamp" in text for text in answers(done))
    asked = [one["content"] for one in model.requests[-1]["messages"] if one["role"] == "user"]
    assert asked == ["remember the lamp", "and now?"]
    shutil.rmtree(folder / ".openstarry")
    for path in (tmp_path / "home").glob("turnstate.db*"):
        path.unlink()
    assert "there is no session" in chat(model, "x", flags=("--resume", session["id"])).err


class Running:
    """A chat in a process of its own, whose lines are sent one by one."""

    def __init__(self, model: ChatModel, *flags: str) -> None:
        arguments = command_line("chat", "--lines", "--model", model.address, *flags)
        pipes: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        self.process = subprocess.Popen(arguments, env=environment(), text=True, bufsize=1, **pipes)

    def say(self, line: str) -> str:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{line}\n")
        return self.process.stdout.readline()

    def end(self) -> str:
        return self.process.communicate(timeout=60)[1]


@pytest.mark.req("G5")
@pytest.mark.usefixtures("folder")
def test_a_second_process_is_told_and_may_take_over(model: ChatModel) -> None:
    first = Running(model)
    try:
        assert first.say("mine") == "You said: mine\n"
        refused = turnstate("chat", "--continue", "--model", model.address, stdin="mine too")
        assert refused.code == 1
        assert "this session is open in another process" in refused.err
        assert "--take-over" in refused.err
        taken = turnstate("chat", "--continue", "--take-over", "--model", model.address, stdin="mine now")
        assert (taken.code, taken.out) == (0, "You said: mine now\n")
        assert first.process.stdin
        first.process.stdin.write("still mine?\n")
        assert "another process took this session over" in first.end()
        assert first.process.returncode == 1
    finally:
        first.process.kill()
        first.end()
    done = chat(model, "/history 10", flags=("--continue",))
    (history,) = (text for text in answers(done) if "mine" in text and "assistant" in text)
    assert "still mine?" not in history
