"""A peer in its own environment and process, asked one question at a time.

The environment is created under ``.bench/`` when it is first needed, and again when other packages are
required. A question is a line of JSON on standard input and its answer is a line on standard output, so only
one process works at a time. The first line of output reports the peer's versions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any, NamedTuple

import turnstate

ROOT = Path(__file__).parents[1]


class PeerMissing(Exception):
    """The peer could not be installed or did not run; the text gives the reason."""


class Script(NamedTuple):
    """A module of `bench.peers`, and the environment that it runs in."""

    module: str
    environment: str
    packages: tuple[str, ...]


class PeerProcess:
    """A running peer."""

    def __init__(self, script: Script, *arguments: str) -> None:
        self._name = script.environment
        command = [python(script.environment, script.packages), "-m", f"bench.peers.{script.module}"]
        path = os.pathsep.join((str(ROOT), str(Path(turnstate.__file__).parents[1])))
        self._process = subprocess.Popen(
            [*command, *arguments],
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
        )
        self.versions: dict[str, str] = self._answer()

    def ask(self, question: Any) -> Any:
        """Send a question and wait for the answer."""
        if self._process.stdin:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        return self._answer()

    def end(self) -> None:
        """End the peer process."""
        self._process.communicate()

    def _answer(self) -> Any:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            error = self._process.communicate()[1]
            raise PeerMissing(f"{self._name} failed: {error.strip()[-300:]}")
        return json.loads(line)


def python(environment: str, packages: tuple[str, ...]) -> str:
    """Return the interpreter of an environment; create the environment if it lacks the packages."""
    home = ROOT / ".bench" / environment
    interpreter, made = str(home / "bin" / "python"), home / ".installed"
    if made.exists() and made.read_text() == " ".join(packages):
        return interpreter
    install = ("pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    for command in ((sys.executable, "-m", "venv", "--clear", str(home)), (interpreter, "-m", *install)):
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise PeerMissing(f"{environment} cannot be installed: {done.stderr.strip()[-300:]}")
    made.write_text(" ".join(packages))
    return interpreter
