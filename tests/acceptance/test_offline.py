"""Counting needs no network: it works without one, and opens no socket where there is one."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.req("B2")

COUNT = """
import sys

def refuse(event, arguments):
    if event.startswith("socket.") or event == "urllib.Request":
        raise SystemExit(f"opened the network: {event} {arguments}")

sys.addaudithook(refuse)
from turnstate import Message, tokens
for name in ("o200k_base", "cl100k_base", "estimate:claude"):
    count = tokens.conversation_cost([Message.user("hello world")], tokens.counter(name))
    print(name, count.tokens, count.quality)
print(tokens.counter_for("gpt-4o-2024-08-06").name)
"""
COUNTED = ["o200k_base 9 exact", "cl100k_base 9 exact", "estimate:claude 10 estimated", "o200k_base"]


def python(code: str, *before: str) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def without_network() -> list[str]:
    """Return a command that runs another one in a namespace without any network."""
    unshare = shutil.which("unshare")
    for options in ("-n", "-rn"):
        if (
            unshare
            and subprocess.run([unshare, options, "true"], capture_output=True, check=False).returncode == 0
        ):
            return [unshare, options]
    pytest.skip("this machine does not let us cut off the network (unshare -n)")


def test_counting_opens_no_socket() -> None:
    done = python(COUNT)
    assert (done.stdout.splitlines(), done.stderr) == (COUNTED, "")


def test_counting_works_with_the_network_off() -> None:
    done = python(COUNT, *without_network())
    assert (done.stdout.splitlines(), done.stderr) == (COUNTED, "")


def test_a_planted_connection_is_caught() -> None:
    planted = COUNT.replace("from turnstate", "import socket\nsocket.socket()\nfrom turnstate", 1)
    done = python(planted)
    assert done.returncode != 0
    assert "opened the network: socket.__new__" in done.stderr


def test_the_network_really_is_off() -> None:
    connect = "import socket; socket.create_connection(('192.0.2.1', 9), timeout=5)"
    done = python(connect, *without_network())
    assert "Network is unreachable" in done.stderr
