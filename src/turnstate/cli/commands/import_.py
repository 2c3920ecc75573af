"""``turnstate import``: an archive, or conversations as they were sent to a provider, into a store."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import click

from ... import ids
from ...archive import Bundle, ImportResult, adopt, bundles, restore
from ...archive.format import MAX_LINE_BYTES
from ...cli_kit import progress, screen
from ...cli_kit.progress import metered
from ...clock import wall_clock
from ...errors import InputError, SessionError, TurnstateError
from ...formats.port import Format
from ...session.names import checked
from ...stores.port import Store
from .. import documents, source
from ..first_word import FirstWord
from ..source import readable
from ..store import EXIT_CODES, as_json, opened, tenant_option
from .sessions import entries

__all__ = ["command"]

STEP = 64 << 10
"""Bytes of an archive after which progress is told: also in the middle of a long session."""

RESULTS = {"imported": "imported", "known": "there already", "skipped": "passed over"}


def _found(_ctx: click.Context, _option: click.Parameter, name: str | None) -> Format | None:
    from ... import formats  # only now: help does not need it

    return formats.get(name) if name is not None else None


@click.command("import", cls=FirstWord, others={"qcli": "amazon_q:import_command"}, epilog=EXIT_CODES)
@click.argument("file")
@click.option("--from", "provider", metavar="NAME", callback=_found, help="Read this provider's format.")
@click.option("--user", metavar="NAME", help="With --from: whose conversations these are.")
@click.option("--skip-existing", is_flag=True, help="Pass over sessions whose id another one has.")
@click.option(
    "--keep-going", is_flag=True, help="With --from: report every bad line, go on, and exit with 2."
)
@tenant_option
@as_json("Print one JSON object a session.")
def command(
    file: str,
    provider: Format | None,
    user: str | None,
    skip_existing: bool,
    keep_going: bool,
    store: str,
    tenant: str,
    as_json: bool,
) -> int:
    """Bring sessions into a store: from an archive, or from a provider's conversations.

    FILE is what `turnstate export` wrote, or - for standard input. Ids, order, branches, epochs,
    decisions and times stay what they were. A session is there whole or not at all, and one that
    is there already is not imported twice: after an interruption, give the same command again.
    An id that another session has is an error.

    With --from, FILE holds conversations as `turnstate convert` reads them, one document or one a
    line. Each becomes a session: its id is the document's, its prompt the system messages that
    lead it, its title and its meta the document's other fields.

    `turnstate import qcli` brings conversations of the Q command line over.

    \b
    Example:
      turnstate import backup.jsonl --store sqlite:///agent.db
      turnstate export --all | ssh host turnstate import -
      turnstate import conversations.jsonl --from openai-chat --user anna

    \b
    Formats:
      openai-chat  openai-responses  anthropic  bedrock  gemini

    \b
    With --json, one object a session:
      id, entries
      result  imported, known or skipped
    """
    if provider is None and (user is not None or keep_going):
        raise click.UsageError("--user and --keep-going are for conversations that are imported with --from")
    work = _Import(checked(tenant, "a tenant"), skip_existing, as_json)
    if provider is None:
        return asyncio.run(work.archive(store, file))
    return asyncio.run(work.conversations(store, file, provider, user, keep_going=keep_going))


class _Import:
    """Sessions on their way into a store, and what became of them."""

    def __init__(self, tenant: str, skip_existing: bool, as_json: bool) -> None:
        self._tenant, self._skip_existing, self._as_json = tenant, skip_existing, as_json
        self._results, self._entries = Counter[str](), 0

    async def archive(self, url: str, file: str) -> int:
        """Import an archive."""
        with _bytes(file) as (name, stream), self._told(), metered("sessions", _size(stream)) as step:
            lines = _Lines(stream, lambda far: step(far, self._results.total()))
            with _named(name):
                found = bundles(lines)
            async with opened(url) as store:
                with _named(name):
                    for bundle in found:
                        self._note(await self._restored(store, bundle))
        return 0

    async def conversations(
        self, url: str, file: str, provider: Format, user: str | None, *, keep_going: bool
    ) -> int:
        """Import a provider's conversations."""
        bad = 0
        with (
            source.opened(file) as found,
            progress.shown(found.size, many=found.many) as advance,
            self._told(),
        ):
            async with opened(url) as store:
                for one in found.documents:
                    try:
                        with _named(one.where):
                            self._note(await self._adopted(store, one, provider, user))
                    except TurnstateError as error:
                        if not (keep_going and found.many):
                            raise
                        screen.say(screen.located(error))
                        bad += 1
                    advance(len(one.data))
        return 2 if bad else 0

    async def _restored(self, store: Store, bundle: Bundle) -> ImportResult:
        return await restore(store, self._tenant, bundle, now=wall_clock(), skip_existing=self._skip_existing)

    async def _adopted(
        self, store: Store, one: source.Document, provider: Format, user: str | None
    ) -> ImportResult:
        payload = one.value()
        fields = documents.annotations_of(payload, provider)
        return await adopt(
            store,
            self._tenant,
            provider.parse(payload),
            id=_text(fields.pop("id", "")) or str(ids.derived_id(one.line or 0, one.data)),
            now=wall_clock(),
            user=user,
            title=_text(fields.pop("title", "")),
            meta=fields,
            skip_existing=self._skip_existing,
        )

    def _note(self, restored: ImportResult) -> None:
        self._results[restored.result] += 1
        self._entries += restored.entries if restored.result == "imported" else 0
        if self._as_json:
            told = {"id": restored.id, "result": restored.result, "entries": restored.entries}
            screen.show(documents.compact(told))

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Sum up at the end; where it comes early, what was done before it."""
        try:
            yield
        except BaseException:
            if self._results:
                self._sum_up()
            raise
        self._sum_up()

    def _sum_up(self) -> None:
        counts = [
            f"{screen.counted(self._results[result], 'session')} {text}"
            for result, text in RESULTS.items()
            if self._results[result] or result == "imported"
        ]
        screen.say(f"{', '.join(counts)} ({entries(self._entries)})")


class _Lines:
    """The lines of a stream; how many bytes of it were read is told now and then."""

    def __init__(self, stream: BinaryIO, tell: Callable[[int], None]) -> None:
        self._stream, self._tell = stream, tell

    def __iter__(self) -> Iterator[bytes]:
        read, told = 0, 0
        while data := self._next():
            read += len(data)
            if read - told >= STEP:
                self._tell(told := read)
            yield data
        self._tell(read)

    def _next(self) -> bytes:
        try:
            return self._stream.readline(MAX_LINE_BYTES + 1)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror or error}") from None


@contextmanager
def _bytes(file: str) -> Iterator[tuple[str, BinaryIO]]:
    if file == "-":
        if sys.stdin is None:
            raise InputError(f"{source.STDIN}: closed; name a file instead")
        yield source.STDIN, sys.stdin.buffer
        return
    with readable(file):
        stream = open(file, "rb")  # noqa: SIM115
    with stream:
        yield file, stream


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Say in which file, or on which line, something went wrong."""
    try:
        yield
    except (InputError, SessionError) as error:
        error.add_note(name)
        raise


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str | int) else ""


def _size(stream: BinaryIO) -> int | None:
    with suppress(OSError, AttributeError, ValueError):
        status = os.fstat(stream.fileno())
        return status.st_size if stat.S_ISREG(status.st_mode) else None
    return None
