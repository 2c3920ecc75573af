"""A `turnstate` for shells that starts in milliseconds: an interpreter that has imported it forks itself.

Pages have dozens of command lines with pipes and several commands, and a process imports for longer than a
command takes. `program` creates a folder for the search path of a shell; the `turnstate` in it hands its
arguments, folder, environment and streams to the interpreter, and ends with the exit code of the fork.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from tests.harness import programs
from turnstate.__main__ import main
from turnstate.cli import commands

CLIENT = """#!{python} -SE
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
order = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [order + b"\\n"], [0, 1, 2])
sys.exit(int(server.recv(16)))
"""
MOST = 1 << 20
"""Bytes of arguments and environment."""


@contextmanager
def program(folder: Path) -> Iterator[Path]:
    """Yield a folder with a program `turnstate`."""
    address = folder / "socket"
    client = folder / "turnstate"
    client.write_text(CLIENT.format(python=sys.executable, address=str(address)))
    client.chmod(0o755)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(address))
    listening.listen()
    command = programs.program("tests.acceptance.forked_program", listening.fileno())
    server = subprocess.Popen(command, env=programs.environment(), pass_fds=[listening.fileno()])
    listening.close()
    try:
        yield folder
    finally:
        server.kill()
        server.wait()


def _serve(listening: socket.socket) -> None:
    """Fork for every connection: a process that waits for the command, and the command."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them
    while True:
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            order, streams, _, _ = socket.recv_fds(connection, MOST, 3)
            while not order.endswith(b"\n"):
                order += connection.recv(MOST)
            command = os.fork()
            if command == 0:
                connection.close()
                _run(*json.loads(order), streams)
            code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
            connection.sendall(str(code if code >= 0 else 128 - code).encode())
            os._exit(0)
        connection.close()


def _run(arguments: list[str], folder: str, environment: dict[str, str], streams: list[int]) -> None:
    """Become the command, and end."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["turnstate", *arguments]
    code: object = 1
    try:
        main()
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    for module in iter_modules(commands.__path__, f"{commands.__name__}."):
        import_module(module.name)
    _serve(socket.socket(fileno=int(sys.argv[1])))
