"""Eight worker processes serve the sessions of one store, and one of them is killed in the middle.

    python docs/examples/eight_workers.py [URL]

URL is a store (default: a SQLite file in a temporary folder). Every worker takes whatever session is free,
under a lease, and answers a few of its requests; where a worker dies, its lease runs out and another one
goes on. At the end the sessions are compared with what was acknowledged to the workers.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from turnstate import Message, Session, SessionManager, errors

WORKERS, VICTIM = 8, 3
SESSIONS, REQUESTS = 16, 12
PORTION = 4  # requests that a worker answers before it lets others have the session
LEASE = 2.0  # seconds after which the session of a dead worker is free
THINKING = 0.01  # seconds, in place of a model

Said = tuple[str, str, str]
"""What happened; and of an append, in which session and its text."""


# ── a worker ──────────────────────────────────────────────────────────────────────────────────────


async def work(url: str, tenant: str, name: str) -> None:
    """Serve sessions until all of them are complete."""
    async with SessionManager.open(url, tenant=tenant) as sessions:
        say("ready")
        sys.stdin.readline()
        while unfinished := [row.id async for row in sessions.all() if row.version < 2 * REQUESTS]:
            random.shuffle(unfinished)
            for id in unfinished:
                await serve(sessions, id, name)
            await asyncio.sleep(0.05)
    say("ended")


async def serve(sessions: SessionManager, id: str, name: str) -> None:
    """Answer some requests of a session, unless another worker does; errors are retried later."""
    try:
        session = await sessions.open(id)
        async with session.lease(seconds=LEASE, holder=name):
            await answer(session)
    except errors.Busy:  # another worker has it
        say("busy")
    except (errors.Fenced, errors.Conflict) as error:  # this worker was too slow: open it again
        say(type(error).__name__)
    except errors.StoreUnavailable as error:  # unknown whether the last write was committed: the key does
        say(type(error).__name__)
        await asyncio.sleep(0.5)


async def answer(session: Session) -> None:
    """Go on where the session is: each step has a key of its own, so that none is taken twice."""
    first = len(await session.messages()) // 2
    for number in range(first, min(first + PORTION, REQUESTS)):
        receipt = await session.append(Message.user(f"request {number}"), key=f"request-{number}")
        say("begun by another" if receipt.repeated else "asked", session.id, f"request {number}")
        await asyncio.sleep(THINKING)
        await session.append(Message.assistant(f"answer {number}"), key=f"answer-{number}")
        say("answered", session.id, f"answer {number}")


def say(what: str, session: str = "", text: str = "") -> None:
    """Report an event to the parent; an append is reported when it was acknowledged."""
    print(json.dumps([what, session, text]), flush=True)


# ── who starts them, kills one, and looks at the end ──────────────────────────────────────────────


async def run(url: str) -> bool:
    """Let the workers work, print what came of it, and tell whether nothing was lost or doubled."""
    tenant = f"eight-workers-{os.getpid()}"
    async with SessionManager.open(url, tenant=tenant, counter="estimate") as sessions:
        for number in range(SESSIONS):
            await sessions.create(id=f"session-{number:02}")
        kind, durability = url.partition(":")[0], sessions.store.durability
        print(f"{WORKERS} workers on {kind} ({durability}): {SESSIONS} sessions of {REQUESTS} requests each")
        events = await all_events(url, tenant)
        found = {row.id: await texts(sessions, row.id) async for row in sessions.all()}
        for id in found:
            await sessions.destroy(id)
    return report(events, found)


async def all_events(url: str, tenant: str) -> list[list[Said]]:
    """Start the workers together, and give what each said until it ended or was killed."""
    arguments = [sys.executable, __file__, url, tenant]
    pipe = asyncio.subprocess.PIPE
    workers = [
        await asyncio.create_subprocess_exec(*arguments, f"worker {number}", stdin=pipe, stdout=pipe)
        for number in range(WORKERS)
    ]
    for worker in workers:
        await worker.stdout.readline()
    for worker in workers:
        worker.stdin.write(b"go\n")
    return await asyncio.gather(*(heard(worker, number) for number, worker in enumerate(workers)))


async def heard(worker: asyncio.subprocess.Process, number: int) -> list[Said]:
    """Listen to a worker; the victim is killed when it has asked and not yet answered."""
    events, spared = list[Said](), number != VICTIM
    async for line in worker.stdout:
        events.append(tuple(json.loads(line)))
        if not spared and events[-1][0] == "asked" and len(events) >= PORTION:
            worker.kill()  # SIGKILL
            spared = True
            print(f"worker {number} is killed in the middle of a request, with the lease of a session")
    await worker.wait()
    return events


async def texts(sessions: SessionManager, id: str) -> list[str]:
    """Return the texts of a session's messages."""
    return [message.text for message in await (await sessions.open(id)).messages()]


def report(events: list[list[Said]], found: dict[str, list[str]]) -> bool:
    """Compare what was acknowledged with what is there."""
    for number, said in enumerate(events):
        did, served = Counter(what for what, *_ in said), len({session for _, session, _ in said if session})
        counts = f"{did['answered']} answers in {served} sessions, turned away {did['busy']} times"
        print(f"worker {number}: {counts}")
    expected = [f"{what} {number}" for number in range(REQUESTS) for what in ("request", "answer")]
    acknowledged = {(session, text) for said in events for _, session, text in said if session}
    lost = [text for session, text in acknowledged if text not in found[session]]
    doubled = [text for held in found.values() for text, times in Counter(held).items() if times > 1]
    whole = sum(held == expected for held in found.values())
    taken_over = sum(what == "begun by another" for said in events for what, *_ in said)
    ended = sum(said[-1][0] == "ended" for said in events)
    print(f"requests begun by one worker and answered by another: {taken_over}")
    print(f"{ended} of {WORKERS} workers ended by themselves")
    print(f"{whole} of {SESSIONS} sessions hold their {2 * REQUESTS} messages, each once and in order")
    print(f"acknowledged and lost: {len(lost)}; written twice: {len(doubled)}")
    return whole == SESSIONS and not lost and not doubled


def main() -> int:
    """Be a worker, or start them."""
    if len(sys.argv) == 4:
        asyncio.run(work(*sys.argv[1:]))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{Path(folder) / 'agent.db'}"
        return 0 if asyncio.run(run(url)) else 1


if __name__ == "__main__":
    sys.exit(main())
