"""Ctrl-C while the program starts: no traceback, and the exit code of an interrupt, whatever it is doing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.cli_program import environment

# Sends the signal to itself when a module is first imported, and runs the program as `python -m` does.
PROGRAM = """
import os, runpy, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), 2)
wanted, moment = sys.argv.pop(1), Interrupt()
sys.meta_path.insert(0, moment)
runpy.run_module("turnstate", run_name="__main__", alter_sys=True)
"""
MOMENTS = ["typing", "turnstate.cli", "click", "turnstate.chat", "turnstate.stores.sqlite", "apsw"]


@pytest.mark.parametrize("module", MOMENTS)
def test_an_interrupt_during_the_start_prints_no_traceback(module: str, tmp_path: Path) -> None:
    home = {"TURNSTATE_HOME": str(tmp_path / "home"), "TURNSTATE_MODEL": "x@http://127.0.0.1:9/v1"}
    command = [sys.executable, "-c", PROGRAM, module, "chat"]
    done = subprocess.run(
        command, input=b"hello", capture_output=True, timeout=60, env=environment(**home), cwd=tmp_path
    )
    assert done.returncode in (130, -signal.SIGINT), done
    assert b"Traceback" not in done.stderr
