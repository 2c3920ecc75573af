"""``turnstate export qcli``: a session as the Q command line keeps a conversation."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

import click

from ...archive import ImportResult, archive, bundles, encode_line, is_incomplete, restore
from ...cli_kit import screen
from ...cli_kit.progress import metered
from ...clock import wall_clock
from ...conversation import ConversationState, amazon_q
from ...conversation.amazon_q.fields import KEPT
from ...conversation.amazon_q.reader import LARGEST
from ...errors import Busy, InputError, NotFound, SessionError, TurnstateError
from ...session import SessionManager
from ...session.names import LONGEST, checked
from ...stores.memory import MemoryStore
from ...stores.port import Store
from ...stores.values import Address
from .. import destination, documents, lookup
from ..source import STDIN, readable
from ..store import EXIT_CODES, as_json, managed, opened, tenant_option, user_option

__all__ = ["Found", "export_command", "import_command", "stored_conversations"]


@click.command("qcli", epilog=EXIT_CODES)
@click.argument("id", metavar="SESSION")
@click.option(
    "-o",
    "--out",
    "--output",
    "output",
    metavar="FILE",
    help="Write to this file, which appears complete or not at all.",
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--row", "as_row", is_flag=True, help="On one line, as a row of the database.")
@click.option("--quiet", is_flag=True, help="Do not tell what had to be left out.")
@tenant_option
@user_option
def export_command(
    id: str,
    output: str | None,
    force: bool,
    as_row: bool,
    quiet: bool,
    store: str,
    tenant: str,
    user: str | None,
) -> int:
    """Write a session as the Q command line saves a conversation.

    What came from there and was not changed goes back equal. The file can be read with its /load.
    A conversation that was compacted is written as its summary and what followed.

    \b
    Example:
      turnstate export qcli 0d0f6a52 --out talk.json
    """
    return asyncio.run(_export(id, store, tenant, user, output, force=force, as_row=as_row, quiet=quiet))


async def _export(
    id: str,
    store: str,
    tenant: str,
    user: str | None,
    output: str | None,
    *,
    force: bool,
    as_row: bool,
    quiet: bool,
) -> int:
    async with managed(store, tenant) as sessions:
        row = await lookup.session(sessions, id, user=user)
        if is_incomplete(row):
            raise Busy(f"session {row.id} is being imported; wait for it, or import it again")
        session = await sessions.open(row.id)
        state = await session.conversation()
        for notice in session.notices:
            screen.say(f"session {row.id}: {notice}")
        with destination.opened(output, force=force, end="") as write:
            write(amazon_q.row(state) if as_row else amazon_q.saved(state))
    if not quiet:
        for note in amazon_q.left_out(state):
            screen.say(f"session {row.id}: note: {note}")
    return 0


# Where the original's conversations come from: a file that it saved, or rows of its database.


MAGIC = b"SQLite format 3\0"
WAL = 2  # what the byte behind the magic, its page size and its read version say
MOST_SHOWN = 5

MAX_CONVERSATIONS = 100_000
MAX_STEPS = 2_000_000_000
"""Instructions of SQLite's virtual machine in one query: far more than reading any real database takes."""

_STEPS = 100_000  # after which SQLite asks whether to go on: about a millisecond


class Found(NamedTuple):
    """A conversation as it was found: what to call it, where it stands, and how to take its bytes."""

    title: str
    where: str
    take: Callable[[], bytes]


@contextmanager
def stored_conversations(
    path: str, *, key: str | None, everything: bool
) -> Iterator[tuple[int, Iterator[Found]]]:
    """Find the conversations of a file, and how many there are; of a database that of one folder, or all."""
    if path != "-" and _is_database(path):
        with _opened(path) as database:
            chosen = _chosen(path, _keys(path, database), key, everything)
            yield len(chosen), (_row(path, database, one) for one in chosen)
        return
    if key is not None or everything:
        raise InputError(f"{path}: --key and --all are for a database, and this is none")
    yield 1, iter([_file(path)])


def _is_database(path: str) -> bool:
    with readable(path), open(path, "rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def _file(path: str) -> Found:
    name = STDIN if path == "-" else path
    return Found(os.path.basename(name), name, partial(_bytes, path))


def _bytes(path: str) -> bytes:
    if path != "-":
        with readable(path), open(path, "rb") as stream:
            return stream.read(LARGEST + 1)
    if sys.stdin is None:
        raise InputError("closed; name a file instead")
    return sys.stdin.buffer.read(LARGEST + 1)


@contextmanager
def _opened(path: str) -> Iterator[sqlite3.Connection]:
    with _told(path):
        database = sqlite3.connect(f"file:{quote(os.path.abspath(path))}?{_mode(path)}", uri=True)
    with closing(database):
        database.text_factory = bytes
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST + 1)
        database.execute("PRAGMA trusted_schema = OFF")
        yield database


def _mode(path: str) -> str:
    with readable(path), open(path, "rb") as stream:
        in_wal_mode = stream.read(20)[19:] == bytes([WAL])
    return "immutable=1" if in_wal_mode and not os.path.exists(f"{path}-wal") else "mode=ro"


def _keys(path: str, database: sqlite3.Connection) -> list[str]:
    tables = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'conversations' AND rootpage > 0"
    if not _rows(path, database, tables):
        raise InputError(f"{path}: has no table of conversations; is it the database of the Q command line?")
    keys = "SELECT key FROM conversations ORDER BY key LIMIT ?"
    rows = _rows(path, database, keys, MAX_CONVERSATIONS + 1)
    if len(rows) > MAX_CONVERSATIONS:
        raise InputError(f"{path}: holds more than {MAX_CONVERSATIONS:,} conversations; import it in parts")
    return [_text(key) for (key,) in rows]


def _chosen(path: str, keys: Sequence[str], key: str | None, everything: bool) -> Sequence[str]:
    if everything:
        return keys
    if key is not None:
        return [_original_rows_named(path, keys, key)]
    if len(keys) != 1:
        raise InputError(f"{path}: holds {_listed(keys)}; say which with --key DIR, or --all")
    return keys


def _original_rows_named(path: str, keys: Sequence[str], key: str) -> str:
    """Give the folder that is meant, however it is written."""
    for spelling in (key, os.path.abspath(key), os.path.realpath(key)):
        if spelling in keys:
            return spelling
    raise NotFound(f"{path}: no conversation of {key}; there are {_listed(keys)}")


def _listed(keys: Sequence[str]) -> str:
    count = screen.counted(len(keys), "conversation")
    more = f" and {len(keys) - MOST_SHOWN:,} more" if len(keys) > MOST_SHOWN else ""
    return f"{count} ({', '.join(keys[:MOST_SHOWN])}{more})" if keys else "no conversations"


def _row(path: str, database: sqlite3.Connection, key: str) -> Found:
    return Found(key, f"{path}, {key}", partial(_value, path, database, key))


def _value(path: str, database: sqlite3.Connection, key: str) -> bytes:
    rows = _rows(path, database, "SELECT value FROM conversations WHERE key = ? LIMIT 1", key)
    value = rows[0][0] if rows else None
    if not isinstance(value, bytes):
        raise InputError("the row holds no text")
    return value


def _rows(path: str, database: sqlite3.Connection, query: str, *given: str | int) -> list[tuple[object, ...]]:
    """Run a query that stops after so much work, whatever the schema makes of it."""
    steps = iter(range(MAX_STEPS // _STEPS))
    database.set_progress_handler(lambda: next(steps, None) is None, _STEPS)
    with _told(path):
        return database.execute(query, given).fetchall()


def _text(key: object) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


@contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            raise InputError(f"{path}: cannot be read: a query does not come to an end") from None
        advice = "is it the database of the Q command line, and no other program writes to it?"
        raise InputError(f"{path}: cannot be read: {error}; {advice}") from None


# ``turnstate import qcli``: conversations of the Q command line, each as a session of its own.


@click.command("qcli", epilog=EXIT_CODES)
@click.argument("file")
@click.option("--key", metavar="DIR", help="Of a database: the conversation of this folder.")
@click.option("--all", "everything", is_flag=True, help="Of a database: all conversations.")
@click.option("--user", metavar="NAME", help="Whose conversations these are.")
@click.option("--skip-existing", is_flag=True, help="Pass over sessions whose id is taken.")
@click.option("--keep-going", is_flag=True, help="With --all: report what is bad, go on, and exit with 2.")
@tenant_option
@as_json("Print one JSON object a conversation.")
def import_command(
    file: str,
    key: str | None,
    everything: bool,
    user: str | None,
    skip_existing: bool,
    keep_going: bool,
    store: str,
    tenant: str,
    as_json: bool,
) -> int:
    """Bring conversations of the Q command line into a store.

    FILE is what its /save wrote, or its database (data.sqlite3), which is only read. A database
    holds one conversation a folder: name the folder with --key, or take --all.

    Each becomes a session. Its id is that of the conversation, its title the name of the file or
    the folder. It is there whole or not at all; an id that is taken is an error. `turnstate export
    qcli` writes a conversation back.

    \b
    Example:
      turnstate import qcli talk.json
      turnstate import qcli ~/.local/share/amazon-q/data.sqlite3 --key .
      turnstate import qcli data.sqlite3 --all --skip-existing

    \b
    With --json, one object a conversation:
      id, title, exchanges, messages, tools, files
      summary, tangent, checkpoints  whether it has such
      result  imported or skipped
    """
    if key is not None and everything:
        raise click.UsageError("give --key or --all, not both")
    work = _Import(checked(tenant, "a tenant"), user, skip_existing, as_json)
    return asyncio.run(work.run(store, file, key, everything=everything, keep_going=keep_going))


class _Import:
    """Conversations on their way into a store."""

    def __init__(self, tenant: str, user: str | None, skip_existing: bool, as_json: bool) -> None:
        self._tenant, self._user = tenant, user
        self._skip_existing, self._as_json = skip_existing, as_json
        self._imported = self._skipped = 0

    async def run(self, url: str, file: str, key: str | None, *, everything: bool, keep_going: bool) -> int:
        """Import what there is, and say what came over."""
        bad = 0
        with (
            stored_conversations(file, key=key, everything=everything) as (count, found),
            self._told(),
            metered("conversations", count) as step,
        ):
            async with opened(url) as store:
                for number, one in enumerate(found, start=1):
                    try:
                        with _named(one.where):
                            await self._one(store, one)
                    except TurnstateError as error:
                        if not (keep_going and everything):
                            raise
                        screen.say(screen.located(error))
                        bad += 1
                    step(number, number)
        return 2 if bad else 0

    async def _one(self, store: Store, one: Found) -> None:
        state = amazon_q.load(one.take())
        restored = await _kept(
            store,
            self._tenant,
            state,
            title=one.title[:LONGEST].replace("\0", "�"),
            user=self._user,
            skip_existing=self._skip_existing,
        )
        skipped = restored.result != "imported"
        self._skipped += skipped
        self._imported += not skipped
        told = {**_described(state, one.title), "result": "skipped" if skipped else "imported"}
        if self._as_json:
            screen.show(documents.compact(told))
        elif not skipped:
            screen.show(screen.escaped(_line(told)))
            if told["checkpoints"]:
                screen.say(
                    f"session {state.conversation_id}: note: its checkpoints are kept for the way back only"
                )

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Sum up at the end; where it comes early, what was done before it."""
        try:
            yield
        except BaseException:
            if self._imported or self._skipped:
                self._sum_up()
            raise
        self._sum_up()

    def _sum_up(self) -> None:
        passed = f", {screen.counted(self._skipped, 'session')} passed over" if self._skipped else ""
        screen.say(f"{screen.counted(self._imported, 'session')} imported{passed}")


async def _kept(
    store: Store,
    tenant: str,
    state: ConversationState,
    *,
    title: str,
    user: str | None,
    skip_existing: bool,
) -> ImportResult:
    """Make a session of a conversation, whole or not at all: it is archived, and the archive restored."""
    async with SessionManager(MemoryStore(), tenant=tenant) as sessions:
        session = await sessions.create(id=state.conversation_id, title=title, user=user)
        await session.commit(state)
        lines = [
            encode_line(line).encode() async for line in archive(sessions.store, _only(session.row.address))
        ]
    for bundle in bundles(lines):
        restored = await restore(store, tenant, bundle, now=wall_clock(), skip_existing=skip_existing)
    return restored


async def _only(address: Address) -> AsyncIterator[Address]:
    yield address


def _described(state: ConversationState, title: str) -> dict[str, Any]:
    foreign = state.extra.get(KEPT, {})
    return {
        "id": state.conversation_id,
        "title": title,
        "exchanges": len(state.history),
        "messages": len(state.messages),
        "tools": sum(map(len, state.tools.values())),
        "files": len(state.file_line_tracker),
        "summary": state.latest_summary is not None,
        "tangent": state.is_in_tangent_mode(),
        "checkpoints": "checkpoint_manager" in foreign,
    }


def _line(told: dict[str, Any]) -> str:
    counts = [screen.counted(told[name], name[:-1]) for name in ("exchanges", "messages", "tools")]
    more = ["a summary"] * told["summary"] + ["a tangent under way"] * told["tangent"]
    return f"{told['id']}  {told['title']}: {', '.join(counts + more)}"


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Say in which file, or in which row, something went wrong."""
    try:
        yield
    except (InputError, SessionError) as error:
        error.add_note(where)
        raise
