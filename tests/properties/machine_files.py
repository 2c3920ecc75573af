"""The work tree of the random machine: files, ignore rules that change, and what a restore makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tests.properties.machine_model import Event
from turnstate.checkpoints import CheckpointManager
from turnstate.home import Home
from turnstate.session import Session

NAMES = ["a.txt", "b.txt", "x.log", "y.tmp"]
RULES = ".gitignore"
BRINGS: list[Literal["nothing", "tail", "summary"]] = ["nothing", "tail", "summary"]
IGNORED = ["", "*.log\n", "*.tmp\n", "*.log\n*.tmp\n"]


def _suffixes(rules: str) -> set[str]:
    return {line.removeprefix("*") for line in rules.split()}


class WorkTree:
    """A folder with checkpoints, and the files that should be in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._home = folder / "tree", Home(folder / "home")
        self.folder.mkdir(parents=True)
        self.files = dict[str, str]()
        self._held = set[str]()  # ignored since a restore, until the rules are changed
        self._known = set[str]()  # paths that a checkpoint holds
        self.checkpoints: CheckpointManager
        self._write("a.txt", "at the start")

    async def open(self, session: Session) -> None:
        """Open the checkpoints of a session."""
        self.checkpoints = await CheckpointManager.open(session, self.folder, home=self._home)
        assert self.checkpoints.recovered is None

    def change(self, one: int, two: int) -> None:
        """Write or remove a file, or change the rules."""
        if one % 5 == 4:
            self._write(RULES, IGNORED[two % len(IGNORED)])
            self._held = set()
            return
        name = NAMES[one % 5]
        if two % 4 == 0 and name in self.files:
            (self.folder / name).unlink()
            del self.files[name]
        else:
            self._write(name, f"{one} {two}")

    def captured(self) -> dict[str, str]:
        """Return what a checkpoint holds that was just taken."""
        found = self.visible()
        self._known |= set(found)
        return found

    def visible(self) -> dict[str, str]:
        """Return the files that are not ignored."""
        return self._visible(self.files, self._ignored())

    async def leave_tangent(self, aside: Event, how: int) -> str | None:
        """Leave a tangent; the files become what they were when it was entered.

        What was created in it and is in no checkpoint stays: it is the user's. Return the label of a
        checkpoint that was taken of the tangent's files, if they were not in one.
        """
        session = self.checkpoints.session
        label, before = (await self.checkpoints.numbers()).next_turn, await self.checkpoints.on_path()
        left = session.info.branch
        await self.checkpoints.leave_tangent(BRINGS[how])
        known = [one.entry for one in await session.entries(branch=left, kinds=("checkpoint",))]
        self._place(aside, Event("left"), hard=True)
        return label if known[-1] != before[-1] else None

    async def restore(self, event: Event, restored: Event, *, conversation: bool, hard: bool) -> None:
        """Restore a checkpoint, with its files if the new event says so; the event keeps what they were."""
        await self.checkpoints.restore(
            event.label, files=restored.has_files, conversation=conversation, hard=hard
        )
        if restored.has_files:
            self._place(event, restored, hard=hard)

    def _place(self, event: Event, restored: Event, *, hard: bool) -> None:
        ignored = self._ignored() | _suffixes(event.files.get(RULES, ""))
        before = dict(self.files)
        self.files |= self._visible(event.files, ignored)
        if hard:
            newer = self._visible(self.files, ignored).keys() - event.files.keys()
            self.files = {name: text for name, text in self.files.items() if name not in newer & self._known}
        self._held |= (
            _suffixes(before.get(RULES, "")) if before.get(RULES) != self.files.get(RULES) else set()
        )
        restored.before = self._visible(before, ignored)
        restored.created = {name: text for name, text in self.files.items() if name not in before}

    async def undo_restore(self, restored: Event) -> None:
        """Undo a restore: the files before it come back; what it created goes, if it is unchanged."""
        await self.checkpoints.undo_restore()
        rules = self.files.get(RULES)
        ignored = self._ignored() | _suffixes(restored.before.get(RULES, ""))
        self.files |= self._visible(restored.before, ignored)
        for name, text in restored.created.items():
            if name not in restored.before and self.files.get(name) == text:
                del self.files[name]
        if rules != self.files.get(RULES):
            self._held |= _suffixes(rules or "")

    def check(self) -> None:
        """Check that the folder has these files and no others."""
        found = {path.name: path.read_text() for path in self.folder.iterdir()}
        assert found == self.files

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        self.files[name] = text

    def _ignored(self) -> set[str]:
        return self._held | _suffixes(self.files.get(RULES, ""))

    def _visible(self, files: dict[str, str], ignored: set[str]) -> dict[str, str]:
        return {name: text for name, text in files.items() if Path(name).suffix not in ignored}
