"""A terminal for programs under test: a pseudo-terminal whose screen can be read as text."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pexpect  # type: ignore[import-untyped]
import pyte

__all__ = ["Terminal"]

WAIT = 90.0
"""Seconds until a text has to appear; long, since machines can be busy."""


class Terminal:
    """Runs a program on a screen of so many columns and rows."""

    def __init__(
        self, command: Sequence[str], *, folder: Path, env: dict[str, str], columns: int = 100, rows: int = 40
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=100_000, ratio=0.5)
        self._bytes = pyte.ByteStream(self.screen)
        self.raw = bytearray()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": "", **env}
        environment = {name: value for name, value in environment.items() if value}
        self.child = pexpect.spawn(
            command[0], list(command[1:]), cwd=str(folder), env=environment, dimensions=(rows, columns)
        )
        self.child.delaybeforesend = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.close(force=True)

    def read(self, seconds: float = 0.05) -> None:
        """Take in what the program wrote within some time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                data = self.child.read_nonblocking(65_536, timeout=left)
            except pexpect.TIMEOUT:
                return
            except pexpect.EOF:
                return
            self.raw += data
            self._bytes.feed(data)
            self._answer(data)

    def _answer(self, data: bytes) -> None:
        """Answer the question where the cursor is, as a terminal does."""
        for _ in range(data.count(b"\x1b[6n")):
            cursor = self.screen.cursor
            self.child.send(f"\x1b[{cursor.y + 1};{cursor.x + 1}R")

    @property
    def shown(self) -> str:
        """The lines that are on the screen."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    @property
    def text(self) -> str:
        """Everything that was printed, also what has scrolled away."""
        width = self.screen.columns
        lines = ["".join(row[x].data for x in range(width)).rstrip() for row in self.screen.history.top]
        return "\n".join([*lines, self.shown])

    def wait(self, *texts: str, gone: str = "", within: float = WAIT) -> str:
        """Wait until texts are there (and one is not on the screen), and return everything printed."""
        end = time.monotonic() + within
        while True:
            self.read()
            if all(one in self.text for one in texts) and (not gone or gone not in self.shown):
                return self.text
            if time.monotonic() > end or (not self.child.isalive() and not self.child.buffer):
                self.read(0.2)
                if all(one in self.text for one in texts) and (not gone or gone not in self.shown):
                    return self.text
                missing = [one for one in texts if one not in self.text] or f"{gone!r} to go"
                raise AssertionError(f"waited for {missing}; the screen shows:\n{self.shown}")

    def type(self, text: str) -> None:
        """Type text as it is."""
        self.child.send(text)

    def enter(self, text: str) -> None:
        """Type a line and press Enter."""
        self.type(text)
        self.read(0.05)
        self.type("\r")

    def paste(self, text: str) -> None:
        """Paste text, as a terminal does."""
        self.type(f"\x1b[200~{text}\x1b[201~")

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window."""
        self.screen.resize(rows, columns)
        self.child.setwinsize(rows, columns)

    def wait_for_end(self) -> int:
        """Wait until the program ends, and return its exit code."""
        end = time.monotonic() + WAIT
        while self.child.isalive():
            self.read()
            if time.monotonic() > end:
                raise AssertionError(f"the program has not ended; the screen shows:\n{self.shown}")
        self.read(0.1)
        return int(self.child.exitstatus if self.child.exitstatus is not None else -1)
