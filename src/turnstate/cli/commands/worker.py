"""``turnstate worker``: what sessions left for long-term memory, delivered."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from ...cli_kit import screen
from ...clock import wall_clock
from ...errors import NotFound
from ...home import Home
from ...memory.engines import open_engine
from ...memory.worker import TIMEOUT, Delivery, Worker
from ...stores.port import Store
from ...stores.values import Parcel
from .. import documents
from ..store import EXIT_CODES, opened, shown_url, store_option

__all__ = ["command"]

PAGE = 1_000
EVERYTHING = "all"
RESULTS = ("delivered", "delayed", "parked", "dropped")


@click.command("worker", epilog=EXIT_CODES)
@store_option
@click.option("--engine", metavar="NAME", help="Where to.  [default: jsonl: and a folder of your own]")
@click.option("--once", is_flag=True, help="Try what is due now, and end.")
@click.option(
    "--interval", type=click.FloatRange(0.01), default=5.0, metavar="S", help="Seconds between looks."
)
@click.option(
    "--timeout", type=click.FloatRange(0.01), default=TIMEOUT, metavar="S", help="Seconds for a delivery."
)
@click.option("--parked", is_flag=True, help="List what was given up, and why.")
@click.option("--revive", metavar="ID", help=f"Try this parked parcel again, or {EVERYTHING} of them.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a parcel.")
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
    """Deliver to long-term memory what sessions left for it.

    A session that ends, and each cut that takes messages out of a window, leave a parcel in the
    store. The worker reads the messages from the log and gives them to a memory engine. What fails
    is tried again later and later, and after eight tries parked. Any number of workers may run.
    It runs until SIGTERM or Ctrl-C, which let the parcel in hand arrive; a second one does not.

    \b
    Engines:
      jsonl:PATH   a folder of text files, one a user
      none         nothing is remembered
      NAME:ADDRESS an engine that an installed package offers

    \b
    Example:
      turnstate worker
      turnstate worker --once --engine jsonl:memory
      turnstate worker --parked
      turnstate worker --revive all

    \b
    With --json, one object a parcel:
      id, kind, tenant, session
      result   delivered, delayed, parked or dropped
      tries    how often it was tried
      error    why it did not arrive, or null
      due      when it is tried again, in milliseconds since 1970, or null
    With --revive, its id and the result revived.
    """
    if sum((once, parked, revive is not None)) > 1:
        raise click.UsageError("give one of --once, --parked and --revive")
    if parked:
        return asyncio.run(_list(store, as_json=as_json))
    if revive is not None:
        return asyncio.run(_revive(store, revive, as_json=as_json))
    show = _show_json if as_json else _say
    name = engine or f"jsonl:{Home.from_environment().path / 'memory'}"
    return asyncio.run(_work(store, name, show, once=once, interval=interval, timeout=timeout))


Show = Callable[[Parcel, str, str, int | None], None]


async def _work(store: str, name: str, show: Show, *, once: bool, interval: float, timeout: float) -> int:
    def tell(delivery: Delivery) -> None:
        show(delivery.parcel, delivery.result, delivery.error, delivery.due)

    async with opened(store) as outbox:
        engine = await open_engine(name)
        try:
            worker = Worker(outbox, engine, timeout=timeout, tell=tell)
            with _stopping() as stop:
                if once:
                    counts = await worker.run_once(stop)
                else:
                    screen.say(f"delivering from {shown_url(store)} to {shown_url(name)}")
                    counts = await worker.run(stop, interval=interval)
        finally:
            await engine.close()
    screen.say(_summed_up(counts))
    return 1 if once and counts["delayed"] + counts["parked"] else 0


@contextmanager
def _stopping() -> Iterator[asyncio.Event]:
    """Give an event that the first signal sets; the second does what it always does."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)

    def leave() -> None:
        for number in signals:
            loop.remove_signal_handler(number)

    def end() -> None:
        stop.set()
        leave()
        screen.say("stopping when the parcel in hand has arrived")

    for number in signals:
        loop.add_signal_handler(number, end)
    try:
        yield stop
    finally:
        leave()


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
        screen.say(f"the first {PAGE:,} are shown; there may be more")
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
        screen.say(f"{screen.counted(len(revived), 'parcel')} will be tried again")
    return 0


async def _revive_all(outbox: Store) -> list[str]:
    revived = dict[str, None]()  # one that is parked again at once is not revived twice
    while found := [one.id for one in await outbox.parcels(parked=True, limit=PAGE) if one.id not in revived]:
        for id in found:
            revived[id] = None
            with suppress(NotFound):  # somebody else was faster
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
    later = f"; again in {(due - wall_clock()) / 1000:,.0f} s" if due is not None else ""
    screen.say(f"{result} {parcel.id}{f': {error}' if error else ''}{later}")


def _summed_up(counts: Counter[Any]) -> str:
    told = ", ".join(f"{counts[result]:,} {result}" for result in RESULTS if counts[result])
    return told or "nothing was due"
