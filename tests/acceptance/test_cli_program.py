from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.cli_program import (
    broken,
    command_line,
    conversation,
    environment,
    jsonl,
    on_a_real_terminal,
    on_a_terminal,
    real_turnstate,
    turnstate,
)
from turnstate import formats
from turnstate._version import __version__
from turnstate.cli import COMMANDS

HEAVY = (
    "toktok",
    "rich",
    "turnstate.tokens",
    "turnstate.formats.openai_chat",
    "turnstate.cli.commands.count",
)


def test_the_version_is_told() -> None:
    assert turnstate("--version") == (0, f"turnstate {__version__}\n", "")


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_the_help_lists_every_command_with_its_summary(arguments: list[str]) -> None:
    code, out, err = turnstate(*arguments)
    assert (code, err) == (0, "")
    for name, command in COMMANDS.items():
        assert f"  {name}" in out
        assert command.summary in out


@pytest.mark.req("P3")
def test_every_command_explains_itself_with_an_example_and_the_exit_codes() -> None:
    for name in COMMANDS:
        code, out, _ = turnstate(name, "--help")
        assert code == 0, name
        assert f"\n    turnstate {name}" in out, name
        assert "Exit codes:\n    0  success\n" in out, name
        assert ("\n    1  " in out) == (name != "completion"), name
        assert "\n    2  bad usage" in out, name
        assert max(map(len, out.splitlines())) <= 80, name


def test_the_help_names_the_formats_that_there_are() -> None:
    _, out, _ = turnstate("convert", "--help")
    listed = out.partition("Formats:\n")[2].splitlines()[0].split()
    assert listed == list(formats.names())


def test_the_help_imports_nothing_heavy() -> None:
    code = "import sys; from turnstate import cli; cli.run(['--help'])"
    code += f"; print({set(HEAVY)} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, check=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nope"], "No such command 'nope'"),
        (["count", "--bogus"], "--bogus"),
        (["convert", "--to", "gemini"], "--from"),
        (["count", "--counter", "o200k_base", "--model", "gpt-4o"], "not both"),
        (["count", "--format", "nope"], "nope"),
        (["count", "--counter", "nope"], "nope"),
        (["convert", "--from", "openai-chat", "--to", "no\x1b[31mpe"], r"no\x1b[31mpe"),
    ],
)
@pytest.mark.req("P3")
def test_bad_usage_is_one_line_and_exit_code_2(arguments: list[str], reason: str) -> None:
    code, out, err = turnstate(*arguments, stdin=conversation())
    assert (code, out) == (2, "")
    assert err.startswith("turnstate: ")
    assert err.count("\n") == 1
    assert reason in err


def test_a_reader_that_closes_the_pipe_early_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text(jsonl(*(conversation(id=str(number)) for number in range(3_000))))
    with subprocess.Popen(
        command_line("convert", "--from", "openai-chat", "--to", "anthropic", path),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    ) as process:  # fmt: skip
        assert process.stdout
        assert process.stderr
        assert process.stdout.read(10) == b'{"id":"0",'
        process.stdout.close()
        complaint = process.stderr.read().decode()
    assert (process.returncode, complaint) == (141, "")


@pytest.mark.parametrize("arguments", [["--help"], ["count"]])
def test_a_reader_that_is_gone_already_is_no_error(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(
            command_line(*arguments), input=b"[]", stdout=closed, stderr=subprocess.PIPE, env=environment()
        )
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command_line("count"), input=b'[{"role": "user", "content": "hi"}]',
            stdout=full, stderr=subprocess.PIPE, env=environment(),
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == b"turnstate: cannot write the output: No space left on device\n"


def test_results_come_before_the_remark_that_follows_them() -> None:
    data = jsonl(conversation(id="first"), "broken", conversation(id="last"))
    done = subprocess.run(
        command_line("count"),
        input=data.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(),
    )
    first, remark = done.stdout.decode().splitlines()
    assert "first" in first
    assert remark.startswith("turnstate: stdin line 2: not JSON")


def test_an_interruption_ends_with_130_and_no_traceback() -> None:
    with subprocess.Popen(
        command_line("count", "--keep-going"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs ignore it
    ) as process:  # fmt: skip
        assert process.stdin
        assert process.stderr
        process.stdin.write(jsonl(conversation(), "broken").encode())
        process.stdin.flush()
        assert process.stderr.readline().startswith(b"turnstate: stdin line 2: ")
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b""
    assert process.returncode == 130


INTERRUPTED = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Interrupts(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

from turnstate.__main__ import main
sys.meta_path.insert(0, Interrupts())
main()
"""


@pytest.mark.parametrize(
    "module", ["click", "turnstate.cli", "turnstate.cli.commands.sessions", "msgspec", "json", "tomllib"]
)
def test_an_interruption_during_start_leaves_no_traceback(module: str) -> None:
    """The signal comes in the middle of an import; some of these are loaded only by the command."""
    script = INTERRUPTED.replace("sys.argv[1]", repr(module))
    done = subprocess.run(
        [sys.executable, "-c", script, "sessions", "--store", "sqlite:///x.db"],
        capture_output=True, env=environment(), timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert done.stderr == b""
    assert done.returncode in (-signal.SIGINT, 130)


def test_waiting_for_a_person_to_type_is_announced() -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        command_line("validate"),
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    os.close(slave)
    os.write(master, b'[{"role": "user", "content": "hi"}]\n\x04')
    out, err = process.communicate(timeout=60)
    os.close(master)
    assert process.returncode == 0
    assert err == b"turnstate: reading a conversation from the terminal: paste JSON, then press Ctrl-D\n"
    assert out == b"valid for openai-chat: 1 message\n"


@pytest.mark.req("P3")
def test_a_terminal_sees_progress_when_there_are_many(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text(jsonl(*(conversation(id=str(number)) for number in range(50))))
    with open(tmp_path / "out", "w+b") as out:
        seen = on_a_terminal("count", path, stdout=out).err
        out.seek(0)
        results = out.read().decode().splitlines()
    assert "50 conversations" in seen
    assert "tokens" not in seen
    assert len(results) == 51
    assert "\x1b" not in "".join(results)


def test_results_and_progress_share_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text(jsonl(conversation(id="a"), broken(id="b"), conversation(id="é" * 200)))
    code, _, seen = on_a_real_terminal("validate", path)
    assert code == 1
    assert "3 conversations" in seen
    assert "line 2 (b): message 1: " in seen
    assert "2 of 3 conversations valid for openai-chat" in seen


def test_one_conversation_shows_no_progress() -> None:
    read, write = os.pipe()
    os.write(write, b'[{"role": "user", "content": "hi"}]')
    os.close(write)
    code, _, seen = on_a_terminal("validate", stdin=read)
    assert (code, seen) == (0, "valid for openai-chat: 1 message\r\n")


def test_a_pipe_gets_utf8_whatever_the_locale_says() -> None:
    text = '[{"role": "user", "content": "こんにちは 🌍"}]'
    latin = environment(PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    done = real_turnstate(
        "convert", "--from", "openai-chat", "--to", "openai-chat", stdin=text.encode(), env=latin
    )
    assert done.code == 0
    assert "こんにちは 🌍" in done.out


def test_closed_standard_streams_are_one_line() -> None:
    line = " ".join(command_line("count"))
    no_input = subprocess.run(["sh", "-c", f"{line} <&-"], env=environment(), capture_output=True, text=True)
    assert (no_input.returncode, no_input.stderr) == (2, "turnstate: stdin is closed; pass a file\n")
    no_output = subprocess.run(
        ["sh", "-c", f"""echo '[{{"role":"user","content":"x"}}]' | {line} >&-"""],
        env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert no_output.stderr == "turnstate: cannot write the output: standard output is closed\n"
    assert no_output.returncode == 2
