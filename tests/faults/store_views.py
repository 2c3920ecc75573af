"""Every view of a damaged store, compared with what the store showed before.

A view is right, or reports the damage: by a notice, a mark on a damaged entry, or a typed error. A view
that differs silently is a fault of the store, whatever was done to its file.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import apsw

from tests.faults.damage import PAGE
from turnstate import Budget, Message, SessionManager, cli
from turnstate.conversation import FileLineTracker
from turnstate.errors import TurnstateError
from turnstate.session import Session
from turnstate.stores.sqlite import writer

FILE = "agent.db"
PLAIN, BRANCHED, SUMMARIZED = "plain", "branched", "summarized"
BUDGET = Budget(60_000)
LONG_TEXT = "lorem ipsum dolor sit amet " * 12


async def fill(url: str, *, indexed: bool) -> None:
    """Write three sessions: a plain one, one with branches, and one that starts with a summary."""
    async with await SessionManager.open(url) as sessions:
        plain = await sessions.create(id=PLAIN, user="anna", system="You are plain.", tags=["red"])
        await _talk(plain, "plain", 60)
        branched = await sessions.create(id=BRANCHED, user="bert", system="You are branched.", tags=["blue"])
        await _talk(branched, "trunk", 20)
        middle = (await branched.messages())[19]
        await branched.rewind(to=middle.id)
        await _talk(branched, "second", 12)
        await branched.fork(name="aside")
        await _talk(branched, "third", 8)
        summarized = await sessions.create(id=SUMMARIZED, user="anna", system="You are old.", tags=["red"])
        await _talk(summarized, "early", 30)
        await summarized.record_lines({f"/{number}": FileLineTracker(lines=number) for number in range(9)})
        await summarized.set_system("You are summarized.")
        await _talk(summarized, "middle", 30)
        await summarized.compact(BUDGET)
        await summarized.record_lines({"/0": None, "/1": FileLineTracker(lines=100)})
        for aside in ("first aside", "second aside"):
            await summarized.begin_tangent()
            await _talk(summarized, aside, 2)
            await summarized.leave_tangent("tail")
        await _talk(summarized, "late", 3)
        for number in range(40):
            await sessions.create(id=f"short-{number}", user=f"user-{number % 3}")
        if indexed:
            _ = [one async for one in sessions.search("question", limit=1)]


async def _talk(session: Session, word: str, turns: int) -> None:
    for number in range(turns):
        await session.append(
            Message.user(f"{word} question {number}: {LONG_TEXT}"),
            Message.assistant(f"{word} answer {number}"),
        )


class Seen(NamedTuple):
    """What a view showed, and whether it reported damage."""

    shown: Any
    told: bool


View = Callable[[SessionManager, str], Awaitable[Seen]]


def _of_session(show: Callable[[Session], Awaitable[Any]], id: str) -> View:
    async def view(sessions: SessionManager, _: str) -> Seen:
        session = await sessions.open(id)
        shown = await show(session)
        return Seen(shown, bool(session.notices))

    return view


async def _messages(session: Session) -> Any:
    return [message.text for message in await session.messages()]


async def _last(session: Session) -> Any:
    return [message.text for message in await session.messages(last=7)]


async def _window(session: Session) -> Any:
    window = await session.preview(BUDGET)
    return [(message.role, message.text) for message in window.messages]


async def _conversation(session: Session) -> Any:
    state = await session.conversation(last=10_000)
    return [str(one.entry) for one in state.shown.placed]


async def _newest(session: Session) -> Any:
    """Return the part that people look at by default, with what is in force from before it."""
    state = await session.conversation()
    shown = [str(one.entry) for one in state.shown.placed]
    return [*shown, state.system, state.latest_summary, state.valid_history_range, state.has_earlier]


async def _lines(session: Session) -> Any:
    return sorted((path, one.lines) for path, one in (await session.lines()).items())


async def _tangents(session: Session) -> Any:
    return [one.opening for one in await session.tangents()]


async def _tangent(session: Session) -> Any:
    """Begin a tangent and leave it with its tail."""
    await session.begin_tangent()
    await session.append(Message.user("aside"), Message.assistant("found"))
    await session.leave_tangent("tail")
    return await _messages(session)


async def _cleared(session: Session) -> Any:
    await session.clear()
    return await _window(session)


async def _branches(session: Session) -> Any:
    return [(branch.id, branch.parent, branch.fork_seq) for branch in await session.branches()]


async def _undone(session: Session) -> Any:
    """Undo the newest operation."""
    await session.undo()
    return await _messages(session)


def _of_list(**which: Any) -> View:
    async def view(sessions: SessionManager, _: str) -> Seen:
        return Seen([row.id async for row in sessions.all(**which)], told=False)

    return view


def _of_search(text: str) -> View:
    async def view(sessions: SessionManager, _: str) -> Seen:
        found = sessions.search(text, limit=500)
        return Seen([(one.session, one.message.text) async for one in found], told=False)

    return view


def _of_command(*arguments: str, only: str | None = None) -> View:
    async def view(_: SessionManager, url: str) -> Seen:
        seen = await asyncio.to_thread(_run, [*arguments, "--store", url])
        lines = seen.shown.splitlines()
        return seen._replace(shown=[json.loads(line)[only] for line in lines] if only else lines)

    return view


def _run(arguments: list[str]) -> Seen:
    out, errors = (TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(errors):
        code = cli.run(arguments)
    shown, said = (stream.detach().getvalue().decode() for stream in (out, errors))
    return Seen(shown, told=bool(code) or "damaged" in said)


SESSIONS = (PLAIN, BRANCHED, SUMMARIZED)

READING: dict[str, View] = {
    **{
        f"{name} of {id}": _of_session(show, id)
        for id in SESSIONS
        for name, show in {
            "messages": _messages,
            "last messages": _last,
            "window": _window,
            "conversation": _conversation,
            "newest part": _newest,
            "branches": _branches,
        }.items()
    },
    f"lines of {SUMMARIZED}": _of_session(_lines, SUMMARIZED),
    f"tangents of {SUMMARIZED}": _of_session(_tangents, SUMMARIZED),
    "list": _of_list(),
    "list of a user": _of_list(user="anna"),
    "list of a tag": _of_list(tag="red"),
    "search for a common word": _of_search("question"),
    "search for a rare word": _of_search("trunk 17"),
}
COMMANDS: dict[str, View] = {
    **{f"show {id}": _of_command("show", id) for id in SESSIONS},
    "sessions list": _of_command("sessions", "list", "--json", only="id"),
    "search": _of_command("search", "trunk"),
}
WRITING: dict[str, View] = {
    f"undo in {BRANCHED}": _of_session(_undone, BRANCHED),
    f"tangent in {PLAIN}": _of_session(_tangent, PLAIN),
    f"undo in {SUMMARIZED}": _of_session(_undone, SUMMARIZED),
    f"clearing in {PLAIN}": _of_session(_cleared, PLAIN),
}
VIEWS = READING | COMMANDS | WRITING


async def _seen(view: View, folder: Path) -> Seen | Exception:
    url = f"sqlite:///{folder}/{FILE}"
    try:
        async with await SessionManager.open(url) as sessions:
            return await view(sessions, url)
    except Exception as error:
        return error


class Truth:
    """A sound store, and what every view shows of it."""

    def __init__(self, template: Path, *, indexed: bool) -> None:
        self.template = template
        template.mkdir()
        with patch.object(writer, "IDLE", 3_600):
            asyncio.run(fill(f"sqlite:///{template}/{FILE}", indexed=indexed))
        self.known = self._look(template.with_name("truth"), [])
        assert all(isinstance(seen, Seen) and not seen.told for seen in self.known.values()), self.known

    def _look(self, copy: Path, edits: list[tuple[int, bytes]]) -> dict[str, Seen | Exception]:
        """Return what every view shows of a changed copy; the views that write come last."""
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.template, copy)
        with (copy / FILE).open("r+b") as file:
            for place, data in edits:
                file.seek(place)
                file.write(data)
        return {name: asyncio.run(_seen(view, copy)) for name, view in VIEWS.items()}

    def silently_wrong(self, copy: Path, edits: list[tuple[int, bytes]]) -> list[str]:
        """Damage a copy, and return the views that differ without a report."""
        seen, wrong = self._look(copy, edits), list[str]()
        for name, known in self.known.items():
            now = seen[name]
            if isinstance(now, Exception) and not isinstance(now, TurnstateError):
                wrong.append(f"{name}: not ours: {now!r}")
            if isinstance(now, Seen) and not now.told and now != known:
                wrong.append(f"{name}: {_difference(now.shown, known)}")
        return wrong

    def pages(self) -> list[tuple[str, int, str]]:
        """Return the pages of all trees: name of the tree, number of the page, kind."""
        db = apsw.Connection(str(self.template / FILE), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            found = db.execute("SELECT name, pageno, pagetype FROM dbstat ORDER BY pageno")
            return [(str(name), int(page), str(kind)) for name, page, kind in found]
        finally:
            db.close()

    def emptied(self, page: int) -> list[tuple[int, bytes]]:
        """Return the edit that leaves a page of a tree without cells, which SQLite accepts."""
        place = (page - 1) * PAGE
        with (self.template / FILE).open("rb") as file:
            file.seek(place)
            kind = file.read(1)[0]
        leaf = {2: 10, 5: 13}.get(kind, kind)
        return [(place, bytes([leaf, 0, 0, 0, 0]) + PAGE.to_bytes(2, "big") + b"\0")]


def _difference(shown: Any, known: object) -> str:
    if isinstance(known, Seen) and isinstance(known.shown, list):
        return f"{len(shown)} of {len(known.shown)}"
    return f"{len(shown)} characters"
