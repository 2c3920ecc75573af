"""``turnstate import qcli``: conversations of the Q command line, each as a session of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import click

from ..archive import Restored, archive, bundles, restore, written
from ..conversation import ConversationState, original
from ..conversation.original.fields import KEPT
from ..errors import InputError, SessionError, TurnstateError
from ..session import SessionManager
from ..session.clock import wall_clock
from ..session.names import LONGEST, checked
from ..stores.memory import MemoryStore
from ..stores.port import Store
from ..stores.values import Address
from . import document, original_rows, screen
from .access import as_json, tenant_option
from .meter import metered
from .original_rows import Found
from .store_option import EXIT_CODES, opened

__all__ = ["command"]


@click.command("qcli", epilog=EXIT_CODES)
@click.argument("file")
@click.option("--key", metavar="DIR", help="Of a database: the conversation of this folder.")
@click.option("--all", "everything", is_flag=True, help="Of a database: all conversations.")
@click.option("--user", metavar="NAME", help="Whose conversations these are.")
@click.option("--skip-existing", is_flag=True, help="Pass over sessions whose id is taken.")
@click.option("--keep-going", is_flag=True, help="With --all: report what is bad, go on, and exit with 2.")
@tenant_option
@as_json("Print one JSON object a conversation.")
def command(
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
            original_rows.found(file, key=key, everything=everything) as (count, found),
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
        state = original.load(one.take())
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
            screen.show(document.compact(told))
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
) -> Restored:
    """Make a session of a conversation, whole or not at all: it is archived, and the archive restored."""
    async with SessionManager(MemoryStore(), tenant=tenant) as sessions:
        session = await sessions.create(id=state.conversation_id, title=title, user=user)
        await session.commit(state)
        lines = [written(line).encode() async for line in archive(sessions.store, _only(session.row.address))]
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
