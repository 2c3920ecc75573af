"""``turnstate import``: import an archive, or conversations in a provider's format, into a store."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO

import click

from ... import ids
from ...archive import Bundle, ImportResult, adopt, bundles, restore
from ...archive.format import MAX_LINE_BYTES
from ...errors import InputError, TurnstateError
from ...formats.port import Format
from ...ids import wall_clock
from ...plain_text import counted
from ...session.names import checked
from ...stores.port import Store
from ...terminal import screen
from ...terminal.screen import Step, metered
from ...terminal.session_text import entry_count
from .. import documents, source
from ..options import json_option, named_format
from ..store import EXIT_CODES, opened, tenant_option

STEP = 64 << 10
"""Bytes of an archive between two updates of the progress meter, even within a long session."""

RESULTS = {"imported": "imported", "known": "already present", "skipped": "skipped"}


def _format(_ctx: click.Context, _option: click.Parameter, name: str | None) -> Format | None:
    return named_format(name) if name is not None else None


@click.command("import", epilog=EXIT_CODES)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--from", "provider", metavar="NAME", callback=_format, help="Read this provider's format.")
@click.option("--user", metavar="NAME", help="With --from: the user whose conversations these are.")
@click.option("--skip-existing", is_flag=True, help="Skip sessions whose id is already in use.")
@click.option(
    "--keep-going", is_flag=True, help="With --from: report every bad line, continue, and exit with 2."
)
@tenant_option
@json_option("Print one JSON object per session.")
def command(
    files: tuple[str, ...],
    provider: Format | None,
    user: str | None,
    skip_existing: bool,
    keep_going: bool,
    store: str,
    tenant: str,
    as_json: bool,
) -> int:
    """Import sessions into a store: from an archive, or from conversations in a provider's format.

    Each FILE is an archive written by `turnstate export`, or - for standard input. Ids, order, branches,
    epochs, decisions and times are preserved. Each session is imported completely or not at all, and
    a session that is already present is not imported twice: after an interruption, run the same
    command again. An id that is used by a different session is an error.

    With --from, each FILE contains conversations as `turnstate convert` reads them: one document, or
    one per line. Each becomes a session. Its id, title and meta come from the document's own fields, its
    system prompt from the leading system messages.

    To import conversations of the Amazon Q command line, use `turnstate amazon-q import`.

    \b
    Example:
      turnstate import backup.jsonl --store sqlite:///agent.db
      turnstate export --all | ssh host turnstate import -
      turnstate import conversations.jsonl --from openai-chat --user anna

    \b
    Formats:
      openai-chat  openai-responses  anthropic  bedrock  gemini

    \b
    With --json, one object per session:
      id, entries
      result  imported, known or skipped
    """
    if provider is None and (user is not None or keep_going):
        raise click.UsageError("--user and --keep-going require --from")
    work = _Import(checked(tenant, "a tenant"), skip_existing, as_json)
    if provider is None:
        return asyncio.run(work.archives(store, files))
    return asyncio.run(work.conversations(store, files, provider, user, keep_going=keep_going))


class ImportTally:
    """Counts the results of an import, by `RESULTS`, and the imported entries if they are known."""

    def __init__(self, *, entries: int | None = None) -> None:
        self._results, self._entries = Counter[str](), entries

    def add(self, result: str, entries: int = 0) -> None:
        """Count one session."""
        self._results[result] += 1
        if self._entries is not None and result == "imported":
            self._entries += entries

    @property
    def total(self) -> int:
        """The number of sessions so far."""
        return self._results.total()

    @contextmanager
    def summarized(self) -> Iterator[None]:
        """Print the counts at the end, even after a failure if something was imported before it."""
        try:
            yield
        except BaseException:  # Ctrl-C, too: what was imported so far is told
            if self._results:
                self._print()
            raise
        self._print()

    def _print(self) -> None:
        counts = [
            f"{counted(self._results[result], 'session')} {text}"
            for result, text in RESULTS.items()
            if self._results[result] or result == "imported"
        ]
        entries = f" ({entry_count(self._entries)})" if self._entries is not None else ""
        screen.say(f"{', '.join(counts)}{entries}")


class _Import:
    """Imports sessions and counts the results."""

    def __init__(self, tenant: str, skip_existing: bool, as_json: bool) -> None:
        self._tenant, self._skip_existing, self._as_json = tenant, skip_existing, as_json
        self._tally = ImportTally(entries=0)

    async def archives(self, url: str, files: Sequence[str]) -> int:
        """Import archives, one after another."""
        with self._tally.summarized():
            for file in files:
                with _bytes(file) as (name, stream), metered("sessions", source.size_of(stream)) as step:
                    lines = _Lines(stream, partial(self._progressed, step))
                    with source.named(name):
                        found = bundles(lines)  # before opening, and perhaps creating, the store
                    async with opened(url) as store:
                        with source.named(name):
                            for bundle in found:
                                self._count(await self._restored(store, bundle))
        return 0

    def _progressed(self, step: Step, far: int) -> None:
        step(far, self._tally.total)

    async def conversations(
        self, url: str, files: Sequence[str], provider: Format, user: str | None, *, keep_going: bool
    ) -> int:
        """Import conversations in a provider's format."""
        bad = 0
        with self._tally.summarized():
            for file in files:
                with (
                    source.opened(file) as found,
                    screen.input_progress(found.size, many=found.many) as advance,
                ):
                    keeps_going = keep_going and (found.many or len(files) > 1)
                    async with opened(url) as store:
                        for one in found.documents:
                            bad += await self._tried(store, one, provider, user, keep_going=keeps_going)
                            advance(len(one.data))
        return 2 if bad else 0

    async def _tried(
        self,
        store: Store,
        one: source.SourceDocument,
        provider: Format,
        user: str | None,
        *,
        keep_going: bool,
    ) -> bool:
        """Import one conversation; return True if it was invalid and has been reported."""
        try:
            with source.named(one.where):
                self._count(await self._adopted(store, one, provider, user))
        except TurnstateError as error:
            if not keep_going:
                raise
            screen.say(screen.located(error))
            return True
        return False

    async def _restored(self, store: Store, bundle: Bundle) -> ImportResult:
        return await restore(store, self._tenant, bundle, now=wall_clock(), skip_existing=self._skip_existing)

    async def _adopted(
        self, store: Store, one: source.SourceDocument, provider: Format, user: str | None
    ) -> ImportResult:
        stored = one.stored() if one.layout == "stored" else None
        payload = one.value() if stored is None else None
        fields = documents.annotations_of(payload, provider)
        return await adopt(
            store,
            self._tenant,
            provider.parse(payload) if stored is None else stored,
            id=_text(fields.pop("id", "")) or str(ids.derived_id(one.line or 0, one.data)),
            now=wall_clock(),
            user=user,
            title=_text(fields.pop("title", "")),
            meta=fields,
            skip_existing=self._skip_existing,
        )

    def _count(self, restored: ImportResult) -> None:
        self._tally.add(restored.result, restored.entries)
        if self._as_json:
            fields = {"id": restored.id, "result": restored.result, "entries": restored.entries}
            screen.show(documents.compact(fields))


class _Lines:
    """The lines of a stream; calls back with the number of bytes read every `STEP` bytes."""

    def __init__(self, stream: BinaryIO, report: Callable[[int], None]) -> None:
        self._stream, self._report = stream, report

    def __iter__(self) -> Iterator[bytes]:
        read = reported = 0
        while data := self._next():
            read += len(data)
            if read - reported >= STEP:
                self._report(reported := read)
            yield data
        self._report(read)

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
    with source.file_opened(file) as stream:
        yield file, stream


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str | int) else ""
