"""Keeps what a process was given in confidence out of what is quoted from it.

A quotation is cut only where no secret is, since a part of a secret would not be recognized.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

SHORTEST_LINE = 8
"""Lines of a secret with fewer characters are not looked for alone: they say little and occur everywhere."""


class Redaction:
    """Replaces secrets in texts; ``shown`` has what to show instead of each."""

    def __init__(self, shown: Mapping[str, str] | None = None) -> None:
        whole = {secret: name for secret, name in (shown or {}).items() if secret}
        lines = {
            line: name  # a key of several lines may be printed line by line
            for secret, name in whole.items()
            for line in secret.splitlines()
            if len(line) >= SHORTEST_LINE
        }
        self._shown = lines | whole
        self._longest = max(map(len, self._shown), default=0)
        longest_first = sorted(self._shown, key=len, reverse=True)  # one may contain another
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def __call__(self, text: str) -> str:
        """Return a text without the secrets."""
        return self._pattern.sub(lambda found: self._shown[found[0]], text)

    def first(self, text: str, size: int) -> str:
        """Return the first characters of a text, about `size`, without the secrets."""
        text = text[: size + self._longest]
        edge = max([size, *(at.end() for at in self._pattern.finditer(text) if at.start() < size)])
        return self(text[:edge])

    def last(self, text: str, size: int) -> str:
        """Return the last characters of a text, about `size`, without the secrets; see `kept`."""
        edge = max(len(text) - size, 0)
        before = (at.start() for at in self._pattern.finditer(text) if at.end() > edge)
        return self(text[min([edge, *before]) :])

    def kept(self, size: int) -> int:
        """Return how many bytes to keep of the end of a text for `last` of that size."""
        return 4 * (size + self._longest)  # a character takes at most four
