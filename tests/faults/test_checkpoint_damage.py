"""Each file of a shadow repository is damaged in turn: the result is right, or an error says what to do."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.harness.thoroughness import LONG, report, rng
from turnstate import Message
from turnstate.checkpoints import CheckpointManager, verify
from turnstate.errors import CheckpointError, CheckpointsDamaged
from turnstate.home import Home
from turnstate.session import SessionManager

QUICK, QUICK_BIG = 3, 2  # cases that the quick version takes at random
Files = dict[str, str]

pytestmark = pytest.mark.req("O2", "O3")


class Setup:
    """A session with three turns, a restore and its undo; each damage starts from a copy of it."""

    def __init__(self, folder: Path) -> None:
        self.template, self.run = folder / "template", folder / "run"
        self.tree, self.home = self.run / "tree", Home(self.run / "home")
        self.moments = dict[str, Files]()
        (self.tree / "sub").mkdir(parents=True)
        asyncio.run(self._prepare())
        os.rename(self.run, self.template)
        self.begin()

    def begin(self) -> None:
        shutil.rmtree(self.run, ignore_errors=True)
        shutil.copytree(self.template, self.run, symlinks=True)

    @property
    def shadow(self) -> Path:
        (found,) = (self.home.path / "checkpoints").iterdir()
        return found

    @property
    def files(self) -> Files:
        return {
            str(one.relative_to(self.tree)): one.read_text() for one in self.tree.rglob("*") if one.is_file()
        }

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[CheckpointManager]:
        async with await SessionManager.open(f"sqlite:///{self.run}/agent.db") as sessions:
            (row,) = await sessions.list() or [(await sessions.create(system="s")).info]
            session = await sessions.open(row.id)
            yield await CheckpointManager.open(session, self.tree, home=self.home)

    async def discard(self) -> int:
        async with await SessionManager.open(f"sqlite:///{self.run}/agent.db") as sessions:
            session = await sessions.open((await sessions.list())[0].id)
            return await CheckpointManager.discard(session, home=self.home)

    async def _prepare(self) -> None:
        self._write({"same": "same\n" * 400, "a": "0", "sub/b": "0", ".gitignore": "*.log\n"})
        async with self.opened() as checkpoints:
            self.moments["0"] = self.files
            for number in (1, 2, 3):
                await checkpoints.session.append(Message.user(f"turn {number}"))
                self._write({"a": f"{number} " * 300, "sub/b": f"{number}", f"new{number}": f"{number}"})
                await checkpoints.tool_finished("write")
                await checkpoints.session.append(Message.assistant("done"))
                await checkpoints.turn_finished(f"turn {number}")
                self.moments[f"{number}"] = self.files
            await checkpoints.restore("1")
            await checkpoints.undo_restore()

    def _write(self, files: Files) -> None:
        for name, text in files.items():
            (self.tree / name).write_text(text)


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    memory = Path("/dev/shm")
    if LONG or not memory.is_dir():
        yield Setup(tmp_path_factory.mktemp("setup"))
        return
    with TemporaryDirectory(prefix="turnstate-", dir=memory, ignore_cleanup_errors=True) as path:
        yield Setup(Path(path))


def flipped(path: Path, place: float) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[min(len(data) - 1, int(len(data) * place))] ^= 0x55
    replaced(path, bytes(data))


def replaced(path: Path, data: bytes) -> None:
    path.chmod(0o600)
    path.write_bytes(data)


def no_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "deleted": lambda path: path.unlink(),
    "emptied": lambda path: replaced(path, b""),
    "cut": lambda path: replaced(path, path.read_bytes()[: path.stat().st_size // 2]),
    "one byte short": lambda path: replaced(path, path.read_bytes()[:-1]),
    "longer": lambda path: replaced(path, path.read_bytes() + b"x"),
    "garbage": lambda path: replaced(path, b"\0garbage\xff" * 20),
    "flipped first": lambda path: flipped(path, 0),
    "flipped middle": lambda path: flipped(path, 0.5),
    "flipped late": lambda path: flipped(path, 0.9),
    "flipped last": lambda path: flipped(path, 1),
    "a folder": no_folder,
}
BIG = {
    "the repository is a file": lambda shadow: (
        shutil.rmtree(shadow / "repository"),
        write(shadow / "repository"),
    ),
    "the repository is gone": lambda shadow: shutil.rmtree(shadow / "repository"),
    "the repository is empty": lambda shadow: (
        shutil.rmtree(shadow / "repository"),
        (shadow / "repository").mkdir(),
    ),
    "no packs": lambda shadow: shutil.rmtree(shadow / "repository" / "objects"),
    "no references": lambda shadow: shutil.rmtree(shadow / "repository" / "refs"),
    "the folder is a file": lambda shadow: (shutil.rmtree(shadow), write(shadow)),
    "the folder is empty": lambda shadow: (shutil.rmtree(shadow), shadow.mkdir()),
    "nothing may be entered": lambda shadow: [
        one.chmod(0) for one in [*shadow.rglob("*"), shadow] if one.is_dir()
    ],
    "a garbage index": lambda shadow: write(shadow / "repository" / "index"),
    "garbage packed references": lambda shadow: write(shadow / "repository" / "packed-refs"),
    "all indexes gone": lambda shadow: [one.unlink() for one in shadow.rglob("*.idx")],
}


def write(path: Path) -> None:
    path.write_bytes(b"\0garbage\xff")


class Outcome(Counter[str]):
    """The results of the commands on one damaged repository, and what was wrong with them."""

    def __init__(self, setup: Setup, *, history: bool = True) -> None:
        super().__init__()
        self.setup, self.history, self.broken = setup, history, list[str]()

    def refused(self, what: str, error: CheckpointError) -> None:
        self["refused"] += 1
        if "checkpoint clean" not in str(error) and "remove it" not in str(error):
            self.broken.append(f"{what}: no way out: {error}")

    async def play(self) -> None:
        before = shadow_state(self.setup.shadow)
        findings = list(verify(self.setup.home))
        if shadow_state(self.setup.shadow) != before:
            self.broken.append("verify changed something")
        try:
            async with self.setup.opened() as checkpoints:
                damaged = await self._restores(checkpoints)
                if damaged and not findings:
                    self.broken.append("verify found nothing")
                await self._keeps(checkpoints)
        except CheckpointError as error:
            self.refused("open", error)
            if not findings and not empty(self.setup.shadow):
                self.broken.append(f"verify found nothing of: {error}")
        await self.setup.discard()
        async with self.setup.opened() as checkpoints:
            await checkpoints.keep("after cleaning")
            await checkpoints.restore("1", conversation=False)

    async def _restores(self, checkpoints: CheckpointManager) -> bool:
        first = await checkpoints.damaged()
        self.history = self.history and not first
        on_path = {turn.label: turn.commit for turn in await checkpoints.turns()}
        for label in [*on_path, *on_path]:
            if label not in self.setup.moments or len(on_path) < len(self.setup.moments):
                continue  # nothing was left, and a new history has begun
            files = self.setup.files
            damaged = await checkpoints.damaged()  # what a restore keeps again may heal others
            try:
                await checkpoints.diff(label)
                await checkpoints.restore(label, conversation=False, hard=True)
            except CheckpointError as error:
                self.refused(f"restore {label}", error)
                if not isinstance(error, CheckpointsDamaged) or on_path[label] not in damaged:
                    self.broken.append(f"{label} is not marked as damaged: {error!r}")
                if self.setup.files != files:
                    self.broken.append(f"the refused restore of {label} changed files")
            else:
                self["restored"] += 1
                if on_path[label] in damaged:
                    self.broken.append(f"{label} is marked as damaged and can be restored")
                if not self._is_right(self.setup.files, self.setup.moments[label]):
                    self.broken.append(f"{label} came back wrong")
        return bool(first)

    def _is_right(self, files: Files, expected: Files) -> bool:
        """Return True if a hard restore had the right result.

        It leaves newer files that no sound checkpoint holds, or none that a reference leads to.
        """
        if self.history:
            return files == expected
        return expected.items() <= files.items() and files.keys() <= self.setup.moments["3"].keys()

    async def _keeps(self, checkpoints: CheckpointManager) -> None:
        (self.setup.tree / "a").write_text("kept since")
        files = self.setup.files
        kept = await checkpoints.keep("since")
        self["kept"] += 1
        (self.setup.tree / "a").write_text("changed")
        (self.setup.tree / "same").unlink()
        await checkpoints.restore(kept.label, conversation=False)
        if self.setup.files != files:
            self.broken.append("what was kept after the damage came back wrong")
        await checkpoints.undo_restore()
        if self.setup.files.get("a") != "changed" or "same" in self.setup.files:
            self.broken.append("the undo after the damage went elsewhere")


def empty(shadow: Path) -> bool:
    return shadow.is_dir() and not any(shadow.iterdir())


def shadow_state(shadow: Path) -> dict[str, bytes]:
    passing = {"lock"}
    if not shadow.is_dir():
        return {}
    return {
        str(one): one.read_bytes() for one in shadow.rglob("*") if one.is_file() and one.name not in passing
    }


def files_of(shadow: Path) -> list[Path]:
    """Return the files of a shadow repository; of references of one kind, only the first and the last."""
    every = sorted(one.relative_to(shadow) for one in shadow.rglob("*") if one.is_file())
    folders = Counter(one.parent for one in every)
    many = [one for one in folders if one.parts[-2:] in (("refs", "tags"), ("refs", "restores"))]
    tags = {parent: [one for one in every if one.parent == parent] for parent in many}
    return [
        one for one in every if one.parent not in tags or one in (tags[one.parent][0], tags[one.parent][-1])
    ]


HARMLESS = {"one byte short", "longer", "flipped first", "flipped last"}  # to a pack, all of it can be saved


def test_each_damaged_file_gives_a_right_result_or_an_error_that_says_what_to_do(
    setup: Setup, record_property: Callable[[str, object], None]
) -> None:
    setup.begin()
    cases = [(path, how) for path in files_of(setup.shadow) for how in DAMAGES]
    counts, broken = Counter[str](), list[str]()
    for path, how in cases if LONG else rng("checkpoint damage").sample(cases, QUICK):
        setup.begin()
        DAMAGES[how](setup.shadow / path)
        outcome = Outcome(setup)
        asyncio.run(outcome.play())
        if ((path.suffix == ".pack" and how in HARMLESS) or path.suffix == ".idx") and outcome["refused"]:
            outcome.broken.append("objects that could be saved were lost")
        counts += outcome
        broken += [f"{path} {how}: {what}" for what in outcome.broken]
    report(record_property, "damaged files of a shadow repository", cases=len(cases), **counts)
    assert not broken, "\n".join(broken)
    assert counts["restored"] > 0 or not LONG  # a few cases may all be refused
    assert counts["restored"] + counts["refused"] > 0


@pytest.mark.parametrize("how", BIG if LONG else rng("large damage").sample(list(BIG), QUICK_BIG))
def test_after_large_damage_errors_say_what_to_do(setup: Setup, how: str) -> None:
    setup.begin()
    BIG[how](setup.shadow)
    outcome = Outcome(setup, history=how != "no references")
    asyncio.run(outcome.play())
    assert outcome.broken == []


@pytest.mark.parametrize("plant", ["the check of packs", "the check of names"])
def test_a_planted_bug_is_caught(plant: str, setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    from turnstate.shadow import packs

    if plant == "the check of packs":
        monkeypatch.setattr(packs, "check", lambda *_, **__: packs.Checked((), suspect=False, changed=False))
    else:
        monkeypatch.setattr("turnstate.shadow.health.Survey.problem", lambda *_: "")
    setup.begin()
    for pack in setup.shadow.rglob("*.pack"):  # without its last byte, all objects of a pack can be saved
        data = pack.read_bytes()
        replaced(pack, data[:-1] if plant == "the check of packs" else data[: len(data) // 2])
    outcome = Outcome(setup)
    asyncio.run(outcome.play())
    assert outcome.broken != []
