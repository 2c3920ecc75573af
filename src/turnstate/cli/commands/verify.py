"""``turnstate verify``: check every record of a store, and set damaged ones aside with --repair."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import click
import msgspec

from ...config.effects import file_of, shown_url
from ...errors import StoreDamaged, StoreError
from ...home import Home
from ...log.records import recount, sampled_recount
from ...plain_text import counted
from ...stores.values import Finding
from ...terminal import screen
from ...terminal.screen import metered
from .. import documents
from ..options import json_option
from ..store import existing, store_option

EXIT_CODES = """\b
Exit codes:
  0  success
  1  damage was found, whether or not it was repaired
  2  bad usage, or input that cannot be read
  3  the store cannot be opened, or not be repaired in place
"""


@click.command("verify", epilog=EXIT_CODES)
@store_option
@click.option("--repair", is_flag=True, help="Set damaged records aside, so that the rest can be used.")
@click.option("--deep", is_flag=True, help="Recount the tokens of every message, not of a sample.")
@json_option("Print one JSON object per finding, then the result.")
def command(store: str, repair: bool, deep: bool, as_json: bool) -> int:
    """Check a whole store, all tenants: order, checksums, branches, token counts and search index.

    Then check the checkpoints of this installation: every byte of their repositories, and which of
    them can be restored.

    Without --repair nothing is changed. Records that are set aside stay beside the log and can be
    inspected. Copy the store's files before a repair. Redis and Valkey are not repaired in place: export
    all sessions, and import them into an empty database.

    \b
    Example:
      turnstate verify
      turnstate verify --deep
      turnstate verify --store sqlite:///agent.db --repair

    \b
    With --json, one object per finding:
      tenant, session, branch, seq, id  where, as far as known
      fault                             what is wrong
      done                              what was done about it, or an empty string
    and then one for the result:
      store, sound, findings, unrepaired
    """
    return asyncio.run(_verify(store, repair=repair, deep=deep, as_json=as_json))


async def _verify(url: str, *, repair: bool, deep: bool, as_json: bool) -> int:
    found = undone = 0
    with metered("findings") as step:
        async for finding in _everything(url, repair=repair, deep=deep):
            found += 1
            undone += not finding.done
            _show(finding, as_json=as_json)
            step(found, found)
    if as_json:
        summary = {"store": shown_url(url), "sound": not found, "findings": found, "unrepaired": undone}
        screen.show(documents.compact(summary))
    if not found:
        screen.say(f"{shown_url(url)}: no damage found")
    elif not repair:
        screen.say(f"{counted(found, 'finding')}; --repair sets damaged records aside")
    else:
        screen.say(f"{counted(found, 'finding')}, {undone:,} not repaired")
    return 1 if found else 0


async def _everything(url: str, *, repair: bool, deep: bool) -> AsyncIterator[Finding]:
    """Yield the findings of a store, then those of all checkpoints, also if the store cannot be used."""
    unusable: StoreError | None = None
    try:
        async for finding in _findings(url, repair=repair, deep=deep):
            yield finding
    except StoreError as error:
        unusable = error
    from ...checkpoints import verify  # deferred: help does not need it

    for finding in verify(Home.from_environment(), repair=repair):
        yield finding
    if unusable is not None:
        raise unusable


async def _findings(url: str, *, repair: bool, deep: bool) -> AsyncIterator[Finding]:
    """Yield the findings of a store; with repair, salvage an SQLite file that cannot be opened."""
    try:
        async with existing(url, to_read=not repair) as store:
            recounting = recount if deep else sampled_recount
            async for finding in store.verify(repair=repair, recount=recounting):
                yield finding
    except StoreDamaged as damage:
        path = file_of(url)
        if path is None or not repair:
            raise
        screen.say(str(damage))
        from ...stores.sqlite import rescue  # deferred: only a damaged file needs it

        async for finding in rescue(path):
            yield finding


def _show(finding: Finding, *, as_json: bool) -> None:
    if as_json:
        screen.show(documents.compact(msgspec.to_builtins(finding)))
        return
    place = [
        f"tenant {finding.tenant}" if finding.tenant not in ("", "default") else "",
        f"session {finding.session}" if finding.session else "",
        f"branch {finding.branch}" if finding.branch else "",
        f"entry {finding.seq}" if finding.seq else "",
        finding.id,
    ]
    where = " ".join(one for one in place if one)
    done = f" ({finding.done})" if finding.done else ""
    screen.show(screen.escaped(f"{where}{': ' if where else ''}{finding.fault}{done}"))
