"""Splits a stream of Markdown into finished blocks, which can be printed, and the part that still grows.

A terminal cannot change what has scrolled away, so a block is printed when it is complete: a paragraph, list
or table at the empty line after it, a line of code at its end. Until then it is in the `tail`, which is shown
in the live area above the prompt.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^`\s]*)")


class Block(NamedTuple):
    """A finished piece: Markdown, or one line of code in a language."""

    kind: Literal["text", "code"]
    text: str
    language: str = ""


class MarkdownStream:
    """Takes text piece by piece, and returns the blocks that are finished."""

    def __init__(self) -> None:
        self._line = ""
        self._lines = list[str]()
        self._fence = self._language = ""

    @property
    def tail(self) -> str:
        """The text that is not in a finished block yet."""
        return "\n".join([*self._lines, self._line])

    def add(self, text: str) -> list[Block]:
        """Add a piece; return the blocks that it finished."""
        *whole, self._line = (self._line + text).split("\n")
        return [block for line in whole for block in self._add_line(line.rstrip("\r"))]

    def end(self) -> list[Block]:
        """End the stream and return the remaining blocks."""
        blocks = self._add_line(self._line) if self._line else []
        self._line = self._fence = ""
        return [*blocks, *self._paragraph()]

    def _add_line(self, line: str) -> list[Block]:
        fence = _FENCE.match(line)
        if self._fence:
            if fence and fence[1].startswith(self._fence) and line.strip() == fence[1]:
                self._fence = ""
                return []
            return [Block("code", line, self._language)]
        if fence:
            blocks = self._paragraph()
            self._fence, self._language = fence[1], fence[2]
            return blocks
        if line.strip():
            self._lines.append(line)
            return []
        return self._paragraph()

    def _paragraph(self) -> list[Block]:
        lines, self._lines = self._lines, []
        return [Block("text", "\n".join(lines))] if lines else []
