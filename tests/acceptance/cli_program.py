"""Runs the program for the acceptance tests: mostly in this process, in a real one where that matters."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from turnstate import cli

SOURCE = Path(cli.__file__).parents[2]


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class _Program:
    """What CliRunner needs of a program."""

    name = "turnstate"

    def main(self, args: list[str], **_: Any) -> None:
        sys.exit(cli.run(args))


def turnstate(*arguments: object, stdin: str | bytes | object = b"") -> Outcome:
    """Run a command line in this process; what is neither text nor bytes is sent as JSON."""
    data = stdin if isinstance(stdin, str | bytes) else json.dumps(stdin)
    result = CliRunner().invoke(_Program(), [str(argument) for argument in arguments], input=data)  # type: ignore[arg-type]
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)


def in_order(*arguments: object) -> tuple[int, str]:
    """Run a command line in this process; return its exit code and both streams as a terminal shows them."""
    result = CliRunner().invoke(_Program(), [str(argument) for argument in arguments])  # type: ignore[arg-type]
    return result.exit_code, result.output


def into_a_pipe(*arguments: object) -> Outcome:
    """Run a command line in this process; return what a pipe would get, with line ends as they are."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.run([str(argument) for argument in arguments])
    texts = [stream.detach().getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return Outcome(code, *texts)


def environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM", "COLUMNS")}
    path = os.pathsep.join(filter(None, [str(SOURCE), kept.get("PYTHONPATH")]))
    return {**kept, "TERM": "xterm", "PYTHONPATH": path, **changes}


def command_line(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "turnstate", *map(str, arguments)]


def real_turnstate(*arguments: object, stdin: bytes = b"", **settings: Any) -> Outcome:
    """Run the real program in a process of its own."""
    settings.setdefault("env", environment())
    done = subprocess.run(command_line(*arguments), input=stdin, capture_output=True, timeout=60, **settings)
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def into_a_closing_pipe(*arguments: object) -> tuple[int, str]:
    """Run the real program with a reader that closes the pipe early; return the exit code and complaints."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command_line(*arguments), env=environment(), **pipes) as process:  # type: ignore[call-overload]
        process.stdout.read(10)
        process.stdout.close()
        complaint = process.stderr.read().decode()
    return process.returncode, complaint


def on_a_terminal(
    *arguments: object, stdout: Any = None, stdin: Any = subprocess.DEVNULL, **changes: str
) -> Outcome:
    """Run a command line in this process with stderr, and stdout unless it is given, on a terminal."""
    master, slave = pty.openpty()
    seen = list[str]()
    reader = threading.Thread(target=lambda: seen.append(_drained(master)))
    reader.start()
    with (
        pytest.MonkeyPatch.context() as patch,
        open(os.devnull if stdin == subprocess.DEVNULL else stdin, closefd=True) as source,
        os.fdopen(slave, "w", encoding="utf-8", buffering=1) as terminal,
        os.fdopen(os.dup(stdout.fileno() if stdout else slave), "w", encoding="utf-8") as results,
    ):
        for name in ("NO_COLOR", "COLUMNS"):
            patch.delenv(name, raising=False)
        for name, value in {"TERM": "xterm", **changes}.items():
            patch.setenv(name, value)
        for name, stream in {"stdin": source, "stdout": results, "stderr": terminal}.items():
            patch.setattr(sys, name, stream)
            patch.setattr(sys, f"__{name}__", stream)
        code = cli.run([str(argument) for argument in arguments])
    reader.join(60)
    return Outcome(code, "", seen[0])


def on_a_real_terminal(*arguments: object) -> Outcome:
    """Run the real program in a process of its own, with its output on a terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        command_line(*arguments), stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env=environment()
    )
    os.close(slave)
    seen = _drained(master)
    return Outcome(process.wait(60), "", seen)


def _drained(master: int) -> str:
    seen = b""
    try:
        while chunk := os.read(master, 65_536):
            seen += chunk
    except OSError:  # how Linux reports that the other side has closed
        pass
    finally:
        os.close(master)
    return seen.decode()


def conversation(**fields: Any) -> dict[str, Any]:
    """Return a small conversation in OpenAI Chat format with a call and its answer."""
    call = {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": '{"path":"."}'}}
    return {
        **fields,
        "messages": [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": "What is here?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "notes.txt"},
            {"role": "assistant", "content": "A file: notes.txt."},
        ],
    }


def broken(**fields: Any) -> dict[str, Any]:
    """Return a conversation with a tool result whose call is missing."""
    return {
        **fields,
        "messages": [
            {"role": "user", "content": "What is here?"},
            {"role": "tool", "tool_call_id": "call_1", "content": "notes.txt"},
        ],
    }


def jsonl(*values: Any) -> str:
    return "".join(f"{value if isinstance(value, str) else json.dumps(value)}\n" for value in values)
