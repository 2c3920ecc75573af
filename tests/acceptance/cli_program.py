"""The program as the acceptance tests run it: in this process for most, as a real one for some."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

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


def on_a_terminal(
    *arguments: object, stdout: Any = None, stdin: Any = subprocess.DEVNULL, **changes: str
) -> Outcome:
    """Run the real program with stderr, and stdout unless it is given, on a terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        command_line(*arguments),
        stdin=stdin,
        stdout=stdout or slave,
        stderr=slave,
        env=environment(**changes),
    )
    os.close(slave)
    seen = _drained(master)
    return Outcome(process.wait(60), "", seen)


def _drained(master: int) -> str:
    seen = b""
    try:
        while chunk := os.read(master, 65_536):
            seen += chunk
    except OSError:  # how Linux says that the other side has closed
        pass
    finally:
        os.close(master)
    return seen.decode()


def conversation(**fields: Any) -> dict[str, Any]:
    """Give a small conversation in OpenAI Chat format with a call and its answer."""
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
    """Give a conversation whose tool result lost its call."""
    return {
        **fields,
        "messages": [
            {"role": "user", "content": "What is here?"},
            {"role": "tool", "tool_call_id": "call_1", "content": "notes.txt"},
        ],
    }


def jsonl(*values: Any) -> str:
    return "".join(f"{value if isinstance(value, str) else json.dumps(value)}\n" for value in values)
