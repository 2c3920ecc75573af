"""A workspace in a temporary folder, and a strict reader of the text that sticky context sends."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from turnstate.sticky import ContextManager, Gathered, Workspace
from turnstate.tokens import Estimator

COUNTER = Estimator()
BEGIN, END = "--- CONTEXT ENTRY BEGIN ---\n", "--- CONTEXT ENTRY END ---\n\n"
MARKER = re.compile(r"CONTEXT\s+ENTRY\s+(?:BEGIN|END)", re.IGNORECASE)
GUARDED = re.compile(rf"\\({MARKER.pattern})", re.IGNORECASE)
SPELLING = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|([\\nrt]))")
SHORT = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}


def entries_of(text: str | None) -> list[tuple[str, str]]:
    """Read a text back, by its markers alone; anything that is not exactly entries fails."""
    rest, found = text or "", list[tuple[str, str]]()
    while rest:
        assert rest.startswith(BEGIN), rest[:80]
        body, end, rest = rest.removeprefix(BEGIN).partition(END)
        assert end
        assert MARKER.search(GUARDED.sub("", body)) is None, "a marker inside an entry"
        name, _, content = body.partition("\n")
        assert (name[0], name[-1]) == ("[", "]")
        assert name.isprintable()
        assert content.endswith("\n")
        found.append((unspelled(unguarded(name[1:-1])), unguarded(content[:-1])))
    return found


def unguarded(text: str) -> str:
    return GUARDED.sub(r"\1", text)


def unspelled(name: str) -> str:
    def character(match: re.Match[str]) -> str:
        byte, short, long, known = match.groups()
        if known:
            return SHORT[known]
        return chr(0xDC00 + int(byte, 16)) if byte else chr(int(short or long, 16))

    return SPELLING.sub(character, name)


class Scene:
    """A workspace beside a folder that is none of its business."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.root, self.elsewhere, self.home = folder / "work", folder / "elsewhere", folder / "home"
        for one in (self.root, self.elsewhere, self.home):
            one.mkdir()
        self.workspace = Workspace(root=self.root, home=self.home, **options)
        self.context = ContextManager(self.workspace)

    def write(self, name: str, content: str | bytes = "", *, folder: Path | None = None) -> Path:
        path = (folder or self.root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def gather(self, *paths: str, limit: int | None = None) -> Gathered:
        for path in paths:
            self.context.add(path, force=True)
        return self.context.gather(COUNTER, limit_tokens=limit)


def names(gathered: Gathered) -> list[str]:
    return [file.path for file in gathered.files]


def reasons(gathered: Gathered) -> dict[str, str]:
    return {one.path: one.reason for one in gathered.dropped}
