"""The chat on a terminal, as a person uses it: keys, pastes, questions, interruptions, two windows."""

from __future__ import annotations

import asyncio
import getpass
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.harness.chat_model import ChatModel
from tests.harness.process_end import has_ended
from tests.harness.terminal import Terminal
from turnstate import Message, SessionManager

pytestmark = pytest.mark.req("P2", "P3")

PROGRAM = str(Path(sys.executable).parent / "turnstate")
CTRL_C, CTRL_D, ESCAPE, ALT_ENTER = "\x03", "\x04", "\x1b", "\x1b\r"

Start = Callable[..., Terminal]


@pytest.fixture(scope="module")
def model() -> Iterator[ChatModel]:
    with ChatModel() as serving:
        yield serving


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    return place


@pytest.fixture
def chat(folder: Path, model: ChatModel, tmp_path: Path) -> Iterator[Start]:
    opened = list[Terminal]()

    def start(
        *arguments: str,
        columns: int = 100,
        rows: int = 40,
        model: str | None = model.address,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> Terminal:
        home = {"TURNSTATE_HOME": str(tmp_path / "home"), "OPENAI_API_KEY": "", "TURNSTATE_STORE": ""}
        env = {**home, **env}
        named = ["--model", model] if model else []
        command = [PROGRAM, "chat", *named, "--no-memory", *arguments]
        opened.append(Terminal(command, folder=folder, env=env, columns=columns, rows=rows))
        opened[-1].wait("›")  # the line below it is not shown if the terminal answers late
        return opened[-1]

    yield start
    for one in opened:
        one.child.close(force=True)


def test_a_first_conversation(chat: Start, folder: Path) -> None:
    """Words, Markdown, a tool's question with each of its answers, and how one leaves."""
    with chat() as terminal:
        terminal.enter("hello there")
        terminal.wait("You said: hello there")
        terminal.enter("show")
        text = terminal.wait("The end.", "return x + 1", "• one")
        assert "```" not in text
        assert "**" not in text
        terminal.enter("write a.txt")
        terminal.wait("+written for: write a.txt", "Run write_file?", "y yes", "w no, say why")
        terminal.type("y")
        terminal.wait("✓ write_file", "The tool says: Created a.txt", gone="y yes")
        assert (folder / "a.txt").read_text() == "written for: write a.txt\n"
        terminal.enter("write b.txt")
        terminal.wait("+written for: write b.txt", "Run write_file?")
        terminal.type("w")
        terminal.wait("Why not?")
        terminal.enter("not that one")
        terminal.wait("refused write_file: not that one")
        terminal.enter("write c.txt")
        terminal.wait("+written for: write c.txt", "Run write_file?")
        terminal.type("n")
        terminal.wait("✗ write_file(path=c.txt")
        terminal.enter("write d.txt")
        terminal.wait("+written for: write d.txt", "Run write_file?")
        terminal.type("a")
        terminal.wait("Created d.txt")
        assert sorted(path.name for path in folder.glob("*.txt")) == ["a.txt", "d.txt"]
        terminal.type(CTRL_D)
        assert terminal.wait_for_end() == 0
        assert "turnstate chat --continue" in terminal.text


def test_the_status_line_is_complete_before_anything_is_typed(chat: Start) -> None:
    with chat() as terminal:
        terminal.wait("scripted ·", "/help", gone="starting")


def test_ctrl_c_stops_an_answer_and_a_tool_and_twice_leaves(chat: Start, folder: Path) -> None:
    with chat() as terminal:
        terminal.enter("slow 5000")
        terminal.wait("word25")
        terminal.type(CTRL_C)
        terminal.wait("stopped; everything that was finished is saved")
        terminal.enter("run sleep 60; touch late")
        terminal.wait("Run run_command?")
        terminal.type("y")
        terminal.wait("run_command(command=sleep 60; touch late)", gone="Run run_command?")
        terminal.type(CTRL_C)
        terminal.wait("stopped; everything", gone="run_command(command=sleep 60; touch late)  ")
        terminal.enter("still there?")
        terminal.enter("/tools")
        terminal.wait("You said: still there?", "search_files")  # a command waits for the end of the turn
        terminal.type("half a line")
        terminal.wait("half a line")
        terminal.type(CTRL_C)
        terminal.wait(gone="half a line")
        terminal.type(CTRL_C)
        terminal.wait("Ctrl-C again leaves")
        while terminal.child.isalive():  # a busy machine may take longer than the hint is shown
            terminal.type(CTRL_C)
            terminal.read(0.3)
        assert terminal.wait_for_end() == 0
    assert not (folder / "late").exists()


def test_a_closed_terminal_ends_the_command_that_runs(chat: Start, folder: Path) -> None:
    terminal = chat()
    terminal.enter("run echo $$ > pid; exec sleep 600")
    terminal.wait("Run run_command?")
    terminal.type("y")
    while not (folder / "pid").exists() or not (folder / "pid").read_text().strip():
        terminal.read()
    terminal.child.ptyproc.fileobj.close()
    assert has_ended(int((folder / "pid").read_text()))


def test_what_was_typed_is_private(chat: Start, tmp_path: Path) -> None:
    kept = tmp_path / "home" / "chat_history"
    kept.parent.mkdir(mode=0o700)
    kept.touch(mode=0o644)  # as earlier versions made it
    kept.chmod(0o644)
    with chat() as terminal:
        terminal.enter("the password is swordfish")
        terminal.wait("You said: the password is swordfish")
    assert "swordfish" in kept.read_text()
    assert kept.stat().st_mode & 0o777 == 0o600


def test_input_of_every_kind(chat: Start, folder: Path, model: ChatModel) -> None:
    """Several lines, a paste of 10,000 lines, wide characters, completion, a file, a narrow window."""
    (folder / "notes.md").write_text("the lamp is lit\n")
    with chat() as terminal:
        terminal.type("first line" + ALT_ENTER + "second line\r")
        terminal.wait("You said: first line")
        assert model.requests[-1]["messages"][-1]["content"] == "first line\nsecond line"
        terminal.type("sent while something was printed\n")  # the terminal turns Enter into a line feed then
        terminal.wait("You said: sent while something was printed")
        pasted = "\n".join(f"line {number}" for number in range(10_000))
        terminal.paste(pasted)
        terminal.wait("[pasted text 1: 10,000 lines]")
        terminal.type("\r")
        terminal.wait("You said: line 0")
        assert model.requests[-1]["messages"][-1]["content"] == pasted
        terminal.enter("灯台守 🗼 für Élodie")
        terminal.wait("You said: 灯台守")
        assert model.requests[-1]["messages"][-1]["content"] == "灯台守 🗼 für Élodie"
        terminal.type("read @no")
        terminal.wait("notes.md")
        terminal.type("\t\r")
        terminal.wait("You said: read @notes.md")
        assert "the lamp is lit" in model.requests[-1]["messages"][-1]["content"]
        terminal.resize(50, 20)
        terminal.enter("narrow")
        terminal.wait("You said: narrow")
        terminal.paste("a \x1b]0;owned\x07 b")
        terminal.type("\r")
        terminal.wait("You said: a")
        assert b"\x1b]0;owned" not in bytes(terminal.raw)
        terminal.type("/ta")
        terminal.wait("tangent")


def test_escape_sequences_in_answers_are_harmless(chat: Start) -> None:
    with chat() as terminal:
        terminal.enter("run printf '\\033]0;owned\\007\\033[2Jcleared'")
        terminal.wait("Run run_command?")
        terminal.type("y")
        terminal.wait("The tool says:")
        assert b"\x1b]0;owned" not in bytes(terminal.raw)
        assert "cleared" in terminal.text
        terminal.paste("run echo a\u200bb \u202ec \U000e0072d")  # what is asked about is seen as it is
        terminal.type("\r")
        terminal.wait("Run run_command?", "$ echo a\\u200bb \\u202ec \\U000e0072d")
        terminal.type("n")
        terminal.wait("✗ run_command")


def test_every_command_answers(chat: Start, folder: Path) -> None:
    """Each slash command once, as a user would go through them."""
    steps = [
        ("first question", "You said: first question"),
        ("/help", "/checkpoint  Save, compare and restore the files of this folder"),
        ("/help tangent", "as if nothing had been said"),
        ("/tangent", "in a tangent"),
        ("aside", "You said: aside"),
        ("/tangent tail", "the last exchange came along"),
        ("/tangent list", "just now"),
        ("/tangent reopen 1", "back in the tangent"),
        ("/tangent summary", "a summary of it came along"),
        ("/tangent reopen 9", "usage: /tangent"),
        ("/checkpoint save before", "checkpoint 1 saved"),
        ("/checkpoint list", "before"),
        ("/checkpoint diff 1", "no differences"),
        ("/context", "short term"),
        ("/context add *.md", "is sent with every request"),
        ("/context files", "*.md"),
        ("/context remove *.md", "is no longer sent"),
        ("/tools", "run_command"),
        ("/mcp", "no MCP server"),
        ("/model", "window"),
        ("/agent", "agent: default"),
        ("/usage", "tokens sent"),
        ("/save talk.json", "saved to talk.json"),
        ("/save talk.json", "talk.json exists; choose another name, or pass --force"),
        ("/save q.json --amazon-q", "saved to q.json"),
        ("/history 2", "assistant ·"),
        ("/search question", "first question"),
        ("/memory list", "memory"),
        ("/snapshot", "snapshot"),
        ("/fork other", "on branch"),
        ("/undo", "undone: fork"),
        ("/tree", "branches"),
        ("/export page", "written to page.html"),
        ("/export page", "page.html exists; choose another name"),
        ("/back", "  1  "),
        ("/back 1", "back before that message"),
    ]
    more = [(f"more {number}", f"You said: more {number}") for number in range(3)]
    (folder / "rules.md").write_text("Say lamp.")
    with chat(rows=60) as terminal:
        for line, answer in [*steps[:-2], *more, *steps[-2:]]:
            before = terminal.text.count(answer)
            terminal.enter(line)
            try:
                while terminal.text.count(answer) <= before:
                    terminal.wait(answer)
                    terminal.read(0.05)
            except AssertionError as error:
                raise AssertionError(f"after {line}: {error}") from None
        terminal.type(CTRL_C)  # clears what /back put into the prompt
        for line, question, key, answer in [
            ("/compact", "Compact the conversation?", "y", "/compact undo takes it back"),
            ("/compact undo", "", "", "the compaction is undone"),
            ("/clear", "", "", "the window is empty"),
            ("/load talk.json", "", "", "talk.json is open as session"),
            ("/load q.json", "", "", "q.json is open as session"),
            ("/sessions", "", "", "/resume ID opens one"),
            ("/resume first q\t", "", "", "in session"),
            ("/new", "", "", "a new session begins"),
            ("/reset", "End this conversation", "y", "a new conversation begins"),
            ("/takeover", "", "", "the session is yours"),
            ("/nonsense", "", "", "there is no command /nonsense"),
        ]:
            terminal.enter(line)
            if question:
                terminal.wait(question)
                terminal.type(key)
            terminal.wait(answer)
        terminal.enter("/quit")
        assert terminal.wait_for_end() == 0
    assert (folder / "page.html").read_text().startswith("<!doctype html>")


def test_files_and_conversation_are_restored_together(chat: Start, folder: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    with chat("--allow", "write_file") as terminal:
        terminal.enter("write a.txt")
        terminal.wait("checkpoint 1.1", "The tool says: Created")
        terminal.enter("write a.txt again")
        terminal.wait("checkpoint 2.1", "The tool says: Wrote")
        terminal.enter("/checkpoint restore 1")
        terminal.wait("Restore checkpoint 1?", "1 file differs")
        terminal.type("y")
        terminal.wait("/checkpoint undo returns")
        assert (folder / "a.txt").read_text() == "written for: write a.txt\n"
        terminal.enter("/checkpoint undo")
        terminal.wait("back to before the restore")
        assert (folder / "a.txt").read_text() == "written for: write a.txt again\n"


def test_escape_twice_goes_back_to_an_earlier_message(chat: Start, model: ChatModel) -> None:
    with chat() as terminal:
        for words in ("one", "two"):
            terminal.enter(words)
            terminal.wait(f"You said: {words}")
        terminal.type(ESCAPE + ESCAPE)
        terminal.wait("  1  two", "  2  one", "/back N goes back")
        terminal.enter("/back 1")
        terminal.wait("back before that message", "› two")
        terminal.type(" and a half\r")
        terminal.wait("You said: two and a half")
        said = [one["content"] for one in model.requests[-1]["messages"] if one["role"] == "user"]
        assert said == ["one", "two and a half"]


def test_a_killed_chat_goes_on_and_a_second_window_is_told(chat: Start) -> None:
    with chat() as first:
        first.enter("remember the lamp")
        first.wait("You said: remember the lamp")
        with chat("--continue") as undecided:
            undecided.wait("n neither")
            undecided.type("n")
            assert undecided.wait_for_end() == 0
            assert "turnstate:" not in undecided.text
        with chat("--continue") as second:
            second.wait("open in another process", "l look on", "t take over")
            second.type("l")
            second.wait("session", gone="look on")
            second.enter("may I?")
            second.wait("/takeover takes it from there")
            second.enter("/history 2")
            second.wait("remember the lamp")
            second.enter("/takeover")
            second.wait("the session is yours")
            second.enter("mine now")
            second.wait("You said: mine now")
            first.enter("still mine?")
            first.wait("another process took this session over")
        first.child.kill(signal.SIGKILL)
    with chat("--continue") as terminal:  # the lease of a dead process does not stop anyone
        terminal.enter("/history 4")
        terminal.wait("remember the lamp", "mine now")


def test_an_interrupted_turn_goes_on(chat: Start) -> None:
    with chat() as terminal:
        terminal.enter("slow 500")
        terminal.wait("word25")
        terminal.child.kill(signal.SIGKILL)
    with chat("--continue") as terminal:
        terminal.wait("the last turn was interrupted; it goes on", "word60")
        terminal.type(CTRL_C)
        terminal.wait("stopped")


def test_a_session_without_an_endpoint_is_sent_nowhere_before_the_user_agrees(
    chat: Start, model: ChatModel, tmp_path: Path
) -> None:
    async def create() -> str:
        async with SessionManager.open(f"sqlite:///{tmp_path}/home/turnstate.db") as sessions:
            session = await sessions.create(user=getpass.getuser(), title="elsewhere", model="scripted")
            await session.append(Message.user("a secret"), Message.assistant("yes"))
            return session.id

    (tmp_path / "home").mkdir(mode=0o700)
    id = asyncio.run(create())
    asked, env = len(model.requests), {"TURNSTATE_MODEL": model.address}
    with chat("--resume", id, model=None, env=env) as terminal:
        terminal.wait("does not say where its messages may be sent", "scripted at http://127.0.0.1")
        terminal.type("n")
        assert terminal.wait_for_end() == 0
    with chat("--resume", id, model=None, env=env) as terminal:
        terminal.wait("does not say where its messages may be sent")
        assert len(model.requests) == asked
        terminal.type("y")
        terminal.wait("/help")
        terminal.enter("and now?")
        terminal.wait("You said: and now?")
    assert "a secret" in str(model.requests[-1])
