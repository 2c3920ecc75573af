"""``turnstate worker``: deliver the messages of sessions to a long-term memory engine."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from ...config.effects import shown_url
from ...errors import NotFound
from ...ids import wall_clock
from ...memory.worker import TIMEOUT, Delivery, Worker
from ...plain_text import counted
from ...stores.port import Store
from ...stores.values import Parcel
from ...terminal import screen
from .. import documents
from ..engine import engine_name, engine_option, opened_engine
from ..options import json_option
from ..store import EXIT_CODES, opened, store_option

PAGE = 1_000
EVERYTHING = "all"
RESULTS = ("delivered", "delayed", "parked", "dropped")


@click.command("worker", epilog=EXIT_CODES)
@store_option
@engine_option
@click.option("--once", is_flag=True, help="Deliver what is due now, then exit.")
@click.option(
    "--interval", type=click.FloatRange(0.01), default=5.0, metavar="S", help="Seconds between polls."
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.01),
    default=TIMEOUT,
    metavar="S",
    help="Maximum seconds for one delivery.",
)
@click.option("--parked", is_flag=True, help="List the parcels that failed permanently, and why.")
@click.option("--revive", metavar="ID", help=f"Retry this parked parcel, or {EVERYTHING} of them.")
@json_option("Print one JSON object per parcel.")
def command(
    store: str,
    engine: str | None,
    once: bool,
    interval: float,
    timeout: float,
    parked: bool,
    revive: str | None,
    as_json: bool,
) -> int:
    """Deliver the messages of sessions to long-term memory.

    When a session ends, and when a cut removes messages from a window, a parcel is added to the
    store's outbox. The worker reads the messages from the log and passes them to a memory engine.
    A failed delivery is retried with growing delays, and parked after eight attempts. Any number of
    workers may run. SIGTERM or Ctrl-C stops after the current parcel; a second one stops immediately.

    \b
    Engines:
      builtin      turns and facts in a database beside the store
      builtin:URL  the same in a file of that path, or at postgresql://…
      none         discards everything
      NAME:ADDRESS an engine of an installed package

    \b
    Example:
      turnstate worker
      turnstate worker --once --engine builtin:memory.db
      turnstate worker --parked
      turnstate worker --revive all

    \b
    With --json, one object per parcel:
      id, kind, tenant, session
      result   delivered, delayed, parked or dropped
      tries    number of attempts
      error    why it failed, or null
      due      time of the next attempt, in milliseconds since 1970, or null
    With --revive: id, and the result revived.
    """
    if sum((once, parked, revive is not None)) > 1:
        raise click.UsageError("pass only one of --once, --parked and --revive")
    if parked:
        return asyncio.run(_list(store, as_json=as_json))
    if revive is not None:
        return asyncio.run(_revive(store, revive, as_json=as_json))
    show = _show_json if as_json else _say
    return asyncio.run(_work(store, engine, show, once=once, interval=interval, timeout=timeout))


Show = Callable[[Parcel, str, str, int | None], None]


async def _work(
    store: str, name: str | None, show: Show, *, once: bool, interval: float, timeout: float
) -> int:
    def report(delivery: Delivery) -> None:
        show(delivery.parcel, delivery.result, delivery.error, delivery.due)

    async with opened(store) as outbox, opened_engine(store, name) as engine:
        worker = Worker(outbox, engine, timeout=timeout, on_delivery=report)
        with _stop_signal() as stop:
            if once:
                counts = await worker.run_once(stop)
            else:
                screen.say(f"delivering from {shown_url(store)} to {shown_url(engine_name(store, name))}")
                counts = await worker.run(stop, interval=interval)
    screen.say(_summary(counts))
    return 1 if once and counts["delayed"] + counts["parked"] else 0


@contextmanager
def _stop_signal() -> Iterator[asyncio.Event]:
    """Yield an event that the first signal sets; a second signal has its default effect."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)

    def restore() -> None:
        for number in signals:
            loop.remove_signal_handler(number)

    def end() -> None:
        stop.set()
        restore()
        screen.say("stopping after the current parcel")

    for number in signals:
        loop.add_signal_handler(number, end)
    try:
        yield stop
    finally:
        restore()


async def _list(store: str, *, as_json: bool) -> int:
    async with opened(store) as outbox:
        found = await outbox.parcels(parked=True, limit=PAGE)
    for parcel in found:
        if as_json:
            _show_json(parcel, "parked", parcel.error, None)
        else:
            times = "once" if parcel.tries == 1 else f"{parcel.tries} times"
            screen.show(f"{parcel.id}  tried {times}  {screen.escaped(parcel.error)}")
    if len(found) == PAGE:
        screen.say(f"showing the first {PAGE:,}; there may be more")
    elif not found:
        screen.say("nothing is parked")
    return 0


async def _revive(store: str, which: str, *, as_json: bool) -> int:
    async with opened(store) as outbox:
        if which == EVERYTHING:
            revived = await _revive_all(outbox)
        else:
            await outbox.revive(which, due=wall_clock())
            revived = [which]
    if as_json:
        for id in revived:
            screen.show(documents.compact({"id": id, "result": "revived"}))
    else:
        screen.say(f"{counted(len(revived), 'parcel')} will be retried")
    return 0


async def _revive_all(outbox: Store) -> list[str]:
    revived = dict[str, None]()  # a parcel that is parked again immediately is not revived twice
    while found := [one.id for one in await outbox.parcels(parked=True, limit=PAGE) if one.id not in revived]:
        for id in found:
            revived[id] = None
            with suppress(NotFound):  # another process was faster
                await outbox.revive(id, due=wall_clock())
    return list(revived)


def _show_json(parcel: Parcel, result: str, error: str, due: int | None) -> None:
    fields: dict[str, Any] = {
        "id": parcel.id,
        "kind": parcel.kind,
        "tenant": parcel.tenant,
        "session": parcel.session,
        "result": result,
        "tries": parcel.tries,
        "error": error or None,
        "due": due,
    }
    screen.show(documents.compact(fields))
    screen.flush()


def _say(parcel: Parcel, result: str, error: str, due: int | None) -> None:
    later = f"; next attempt in {(due - wall_clock()) / 1000:,.0f} s" if due is not None else ""
    screen.say(f"{result} {parcel.id}{f': {error}' if error else ''}{later}")


def _summary(counts: Counter[Any]) -> str:
    text = ", ".join(f"{counts[result]:,} {result}" for result in RESULTS if counts[result])
    return text or "nothing was due"
