"""After the fault: a fresh process opens the store, finds what was promised, and goes on.

What a store says through its face is compared with the promises; then its file is read directly, since a
row without its key, or words without their entry, would not show. A store on a server checks itself there.
"""

from __future__ import annotations

from pathlib import Path

from inside import disagreements
from nursery import Died, Nursery
from promises import Promises

FILE = "sqlite:///"


def examine(nursery: Nursery, url: str, session: str, promises: Promises) -> list[str]:
    """Name everything that is wrong with a session after a fault; end with one more append."""
    with nursery.worker(url) as worker:
        try:
            enter = ("resume", {"session": session}) if session else ("create", {})
            for do, details in (("open", {}), enter):
                if "error" in (reply := worker.ask(do, **details)):
                    lost = [f"lost: session {session}"] if reply["error"] == "NotFound" else []
                    return [f"cannot {do}: {reply}", *lost, *promises.broken_by([])]
            broken = promises.broken_by(worker.must("read_all")["texts"])
            name = promises.ask(f"after-{len(promises.asked)}")
            reply = worker.ask("append", name=name)
            promises.hear([reply])
            if "ack" not in reply:
                broken.append(f"cannot append any more: {reply}")
            if not url.startswith(FILE):
                broken += [f"verify: {fault}" for fault in worker.must("verify")["findings"]]
            worker.must("close")
        except Died as death:
            return [f"crashed: {death}"]
    return broken + (disagreements(Path(url.removeprefix(FILE))) if url.startswith(FILE) else [])
