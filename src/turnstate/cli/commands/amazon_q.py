"""``turnstate amazon-q import|export``: exchange conversations with the Amazon Q command line.

Its conversations are JSON: a file written by its ``/save``, or rows of its SQLite database, one per
folder. The database is opened read-only, and queries on it are bounded, since its schema is not under our
control.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

import click

from ... import folder_gate
from ...archive import adopt_state, is_incomplete
from ...conversation import MAX_CONVERSATION_STATE_HISTORY_LEN, ConversationState, amazon_q
from ...conversation.amazon_q.fields import KEPT
from ...conversation.amazon_q.reader import LARGEST
from ...errors import Busy, InputError, NotFound, TurnstateError
from ...open_databases import covers, hold
from ...plain_text import counted
from ...session.names import LONGEST, checked
from ...stores.port import Store
from ...terminal import lookup, screen
from ...terminal.screen import metered
from .. import destination, documents
from ..completion import session_argument
from ..options import json_option, output_options, quiet_option
from ..source import STDIN, named, readable
from ..store import EXIT_CODES, managed, opened, tenant_option, user_option
from .import_ import ImportTally

MAGIC = b"SQLite format 3\0"
WAL = 2  # the read version, in byte 19 of the header, of a database in WAL mode
MAX_SHOWN = 5

MAX_CONVERSATIONS = 100_000
MAX_STEPS = 2_000_000_000
"""SQLite virtual-machine instructions per query: far more than reading any real database takes."""

_STEPS = 100_000  # instructions between two calls of the progress handler: about a millisecond


@click.group("amazon-q", epilog=EXIT_CODES)
def command() -> None:
    """Import conversations from the Amazon Q command line, and export sessions to it.

    \b
    Example:
      turnstate amazon-q import talk.json
      turnstate amazon-q import ~/.local/share/amazon-q/data.sqlite3 --key .
      turnstate amazon-q export 0d0f6a52 -o talk.json
    """


@command.command("import", short_help="Import saved conversations into a store.", epilog=EXIT_CODES)
@click.argument("file")
@click.option("--key", metavar="DIR", help="Import the conversation of this folder from a database.")
@click.option("--all", "everything", is_flag=True, help="Import all conversations of a database.")
@click.option("--user", metavar="NAME", help="The user whose conversations these are.")
@click.option("--skip-existing", is_flag=True, help="Skip sessions whose id is already in use.")
@click.option("--keep-going", is_flag=True, help="With --all: report bad rows, continue, and exit with 2.")
@tenant_option
@json_option("Print one JSON object per conversation.")
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
    """Import conversations of the Amazon Q command line into a store.

    FILE is what its /save wrote, or its database (data.sqlite3), which is only read. A database
    contains one conversation per folder: pass --key for one folder, or --all.

    Each conversation becomes a session with the conversation's id; its title is the name of the
    file or folder. It is imported completely or not at all; an id that is already in use is an
    error. `turnstate amazon-q export` writes a conversation back.

    \b
    Example:
      turnstate amazon-q import talk.json
      turnstate amazon-q import ~/.local/share/amazon-q/data.sqlite3 --key .
      turnstate amazon-q import data.sqlite3 --all --skip-existing

    \b
    With --json, one object per conversation:
      id, title, exchanges, messages, tools, files
      summary, tangent, checkpoints  true if it has one
      result  imported or skipped
    """
    if key is not None and everything:
        raise click.UsageError("pass --key or --all, not both")
    work = _AmazonQImport(checked(tenant, "a tenant"), user, skip_existing, as_json)
    return asyncio.run(work.run(store, file, key, everything=everything, keep_going=keep_going))


class _AmazonQImport:
    """Imports conversations and counts the results."""

    def __init__(self, tenant: str, user: str | None, skip_existing: bool, as_json: bool) -> None:
        self._tenant, self._user = tenant, user
        self._skip_existing, self._as_json = skip_existing, as_json
        self._tally = ImportTally()

    async def run(self, url: str, file: str, key: str | None, *, everything: bool, keep_going: bool) -> int:
        """Import the chosen conversations and return the exit code."""
        bad = 0
        with (
            saved_conversations(file, key=key, everything=everything) as (count, found),
            self._tally.summarized(),
            metered("conversations", count) as step,
        ):
            async with opened(url) as store:
                for number, one in enumerate(found, start=1):
                    try:
                        with named(one.where):
                            await self._one(store, one)
                    except TurnstateError as error:
                        if not (keep_going and everything):
                            raise
                        screen.say(screen.located(error))
                        bad += 1
                    step(number, number)
        return 2 if bad else 0

    async def _one(self, store: Store, one: SavedConversation) -> None:
        state = amazon_q.load(one.read())
        restored = await adopt_state(
            store,
            self._tenant,
            state,
            title=one.title[:LONGEST].replace("\0", "�"),
            user=self._user,
            skip_existing=self._skip_existing,
        )
        skipped = restored.result != "imported"
        fields = {**_fields(state, one.title), "result": "skipped" if skipped else "imported"}
        self._tally.add(fields["result"])
        if self._as_json:
            screen.show(documents.compact(fields))
        elif not skipped:
            screen.show(screen.escaped(_line(fields)))
            if fields["checkpoints"]:
                screen.say(f"session {state.conversation_id}: note: its checkpoints are only kept for export")


def _fields(state: ConversationState, title: str) -> dict[str, Any]:
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


def _line(fields: dict[str, Any]) -> str:
    counts = [counted(fields[name], name[:-1]) for name in ("exchanges", "messages", "tools")]
    more = ["a summary"] * fields["summary"] + ["an open tangent"] * fields["tangent"]
    return f"{fields['id']}  {fields['title']}: {', '.join(counts + more)}"


@command.command("export", short_help="Write a session for the Amazon Q command line.", epilog=EXIT_CODES)
@session_argument()
@output_options
@click.option("--row", "as_row", is_flag=True, help="Write one line, as in a row of the database.")
@quiet_option
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
    """Write a session as the Amazon Q command line saves a conversation.

    The file can be read with its /load. A conversation that was imported from there and not changed
    is written byte for byte as it was. A compacted conversation is written as its summary and the
    messages after it.

    \b
    Example:
      turnstate amazon-q export 0d0f6a52 -o talk.json
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
    async with managed(store, tenant, to_read=True) as sessions:
        row = await lookup.session(sessions, id, user=user)
        if is_incomplete(row):
            raise Busy(f"session {row.id} is being imported; wait, or import it again")
        session = await sessions.open(row.id)
        state = await session.conversation(last=MAX_CONVERSATION_STATE_HISTORY_LEN)
        for notice in session.notices:
            screen.say(f"session {row.id}: {notice}")
        with destination.opened(output, force=force, end="") as write:
            write(amazon_q.row(state) if as_row else amazon_q.saved(state))
    if not quiet:
        for note in amazon_q.left_out(state):
            screen.say(f"session {row.id}: note: {note}")
    return 0


class SavedConversation(NamedTuple):
    """A conversation in a file or database: its title, its place for error messages, and its bytes."""

    title: str
    where: str
    read: Callable[[], bytes]


@contextmanager
def saved_conversations(
    path: str, *, key: str | None, everything: bool
) -> Iterator[tuple[int, Iterator[SavedConversation]]]:
    """Yield the number of chosen conversations and an iterator over them; a file holds exactly one."""
    with readable(path):
        is_own = path != "-" and covers(os.stat(path))
    if is_own:  # closing it would release the locks of the store
        raise InputError(f"{path}: is the store that the conversations are imported into; give another file")
    if path != "-" and _is_database(path):
        with _opened(path) as database:
            chosen = _chosen(path, _keys(path, database), key, everything)
            yield len(chosen), (_row(path, database, one) for one in chosen)
        return
    if key is not None or everything:
        raise InputError(f"{path}: is not a database; --key and --all are only for a database")
    yield 1, iter([_file(path)])


def _is_database(path: str) -> bool:
    with readable(path), folder_gate.stream(path) as stream:
        return stream.read(len(MAGIC)) == MAGIC


def _file(path: str) -> SavedConversation:
    name = STDIN if path == "-" else path
    return SavedConversation(os.path.basename(name), name, partial(_bytes, path))


def _bytes(path: str) -> bytes:
    if path != "-":
        with readable(path), folder_gate.stream(path) as stream:
            return stream.read(LARGEST + 1)
    if sys.stdin is None:
        raise InputError("closed; name a file instead")
    return sys.stdin.buffer.read(LARGEST + 1)


@contextmanager
def _opened(path: str) -> Iterator[sqlite3.Connection]:
    mode = _mode(path)
    with ExitStack() as stack:
        with readable(path):
            stack.callback(hold(path, guard=False).release)
        with _readable_database(path):
            database = sqlite3.connect(f"file:{quote(os.path.abspath(path))}?{mode}", uri=True)
        stack.enter_context(closing(database))
        database.text_factory = bytes
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST + 1)
        database.execute("PRAGMA trusted_schema = OFF")
        yield database


def _mode(path: str) -> str:
    with readable(path), folder_gate.stream(path) as stream:
        in_wal_mode = stream.read(20)[19:] == bytes([WAL])
    return "immutable=1" if in_wal_mode and not os.path.exists(f"{os.path.realpath(path)}-wal") else "mode=ro"


def _keys(path: str, database: sqlite3.Connection) -> list[str]:
    tables = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'conversations' AND rootpage > 0"
    if not _rows(path, database, tables):
        raise InputError(f"{path}: has no table `conversations`; is it the Amazon Q command line's database?")
    keys = "SELECT key FROM conversations ORDER BY key LIMIT ?"
    rows = _rows(path, database, keys, MAX_CONVERSATIONS + 1)
    if len(rows) > MAX_CONVERSATIONS:
        raise InputError(f"{path}: has more than {MAX_CONVERSATIONS:,} conversations; import them by --key")
    return [_text(key) for (key,) in rows]


def _chosen(path: str, keys: Sequence[str], key: str | None, everything: bool) -> Sequence[str]:
    if everything:
        return keys
    if key is not None:
        return [_matching_key(path, keys, key)]
    if len(keys) != 1:
        raise InputError(f"{path}: contains {_listed(keys)}; pass --key DIR or --all")
    return keys


def _matching_key(path: str, keys: Sequence[str], key: str) -> str:
    """Return the stored key of a folder, which may be given as a relative path or a symlink."""
    for spelling in (key, os.path.abspath(key), os.path.realpath(key)):
        if spelling in keys:
            return spelling
    raise NotFound(f"{path}: no conversation for {key}; it contains {_listed(keys)}")


def _listed(keys: Sequence[str]) -> str:
    count = counted(len(keys), "conversation")
    more = f" and {len(keys) - MAX_SHOWN:,} more" if len(keys) > MAX_SHOWN else ""
    return f"{count} ({', '.join(keys[:MAX_SHOWN])}{more})" if keys else "no conversations"


def _row(path: str, database: sqlite3.Connection, key: str) -> SavedConversation:
    return SavedConversation(key, f"{path}, {key}", partial(_value, path, database, key))


def _value(path: str, database: sqlite3.Connection, key: str) -> bytes:
    rows = _rows(path, database, "SELECT value FROM conversations WHERE key = ? LIMIT 1", key)
    value = rows[0][0] if rows else None
    if not isinstance(value, bytes):
        raise InputError("the row's value is not text")
    return value


def _rows(path: str, database: sqlite3.Connection, query: str, *given: str | int) -> list[tuple[object, ...]]:
    """Run a query; interrupt it after `MAX_STEPS`, so that a hostile schema cannot hang the program."""
    steps = iter(range(MAX_STEPS // _STEPS))
    database.set_progress_handler(lambda: next(steps, None) is None, _STEPS)
    with _readable_database(path):
        return database.execute(query, given).fetchall()


def _text(key: object) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


@contextmanager
def _readable_database(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            raise InputError(f"{path}: cannot be read: a query takes too long") from None
        advice = "is it the Amazon Q command line's database, and is no other program writing to it?"
        raise InputError(f"{path}: cannot be read: {error}; {advice}") from None
