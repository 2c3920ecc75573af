"""After the fault: a new process opens the store, finds what was promised, and appends again.

First the messages are compared with the promises. Then the tables of a file are compared with each other,
since a row without its key or an index entry without its row would not show otherwise. A store on a server
runs its own check instead.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from tests.faults.fork_server import Died, ForkServer
from tests.faults.promises import Promises

FILE = "sqlite:///"


def examine(fork_server: ForkServer, url: str, session: str, promises: Promises) -> list[str]:
    """Return everything that is wrong with a session after a fault; append once more at the end."""
    with fork_server.worker(url) as worker:
        try:
            enter = ("resume", {"session": session}) if session else ("create", {})
            for do, details in (("open", {}), enter):
                if "error" in (reply := worker.ask(do, **details)):
                    lost = [f"lost: session {session}"] if reply["error"] == "NotFound" else []
                    return [f"cannot {do}: {reply}", *lost, *promises.broken_by([])]
            stored = worker.must("read_all")["texts"]
            broken = promises.broken_by(stored)
            if url.startswith(FILE):
                broken += _not_found(stored, worker.must("search")["texts"])
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


def _not_found(stored: list[str], found: list[str]) -> list[str]:
    """Return the first messages of appends that a search does not find, or finds twice."""
    first = [text for text in stored if text.endswith("/0")]
    return [f"found {found.count(text)} times: {text}" for text in first if found.count(text) != 1]


FAULTS = {
    "a branch has a gap, or does not start after its fork": """
        SELECT branch.session, branch.id, count(*), min(entry.seq), max(entry.seq)
        FROM branch JOIN entry ON entry.session = branch.session AND entry.branch = branch.id
        GROUP BY branch.session, branch.id
        HAVING min(entry.seq) <> fork_seq + 1 OR max(entry.seq) <> fork_seq + count(*)
    """,
    "an entry has no branch": """
        SELECT session, branch, seq FROM entry
        WHERE (session, branch) NOT IN (SELECT session, id FROM branch)
    """,
    "the running sum of tokens is wrong": """
        SELECT session, branch, seq, tokens, total FROM (
            SELECT *, lag(total) OVER (PARTITION BY session, branch ORDER BY seq) AS former FROM entry
        ) WHERE former IS NOT NULL AND total <> former + tokens
    """,
    "a session is not at the tip of its branch": """
        SELECT session.key, session.branch, session.seq, session.total, entry.seq, entry.total
        FROM session JOIN entry ON entry.session = session.key AND entry.branch = session.branch
        WHERE entry.seq = (SELECT max(seq) FROM entry
                           WHERE entry.session = session.key AND entry.branch = session.branch)
          AND (entry.seq, entry.total) <> (session.seq, session.total)
    """,
    "a session has no entries, but a position": """
        SELECT key, seq, version FROM session
        WHERE seq > 0 AND NOT EXISTS (SELECT 1 FROM entry WHERE entry.session = session.key)
    """,
    "a key has no entries": """
        SELECT key.session, key.name, key.first, key.last FROM key
        WHERE last >= first AND last - first + 1 <> (
            SELECT count(*) FROM entry
            WHERE entry.session = key.session AND entry.branch = key.branch
              AND entry.seq BETWEEN key.first AND key.last
        )
    """,
    "an entry has no key": """
        SELECT session, branch, seq FROM entry
        WHERE kind = 0 AND NOT EXISTS (
            SELECT 1 FROM key WHERE key.session = entry.session AND key.branch = entry.branch
                                AND entry.seq BETWEEN key.first AND key.last)
    """,
    "a session is older than one of its keys": """
        SELECT session.key, session.version, key.name, key.version
        FROM session JOIN key ON key.session = session.key WHERE key.version > session.version
    """,
    "an entry is not in the index, but a later one is": """
        SELECT session, branch, seq FROM entry
        WHERE kind = 0 AND key NOT IN (SELECT rowid FROM word) AND key < (SELECT max(rowid) FROM word)
    """,
    "the index has words of no entry": "SELECT rowid FROM word WHERE rowid NOT IN (SELECT key FROM entry)",
    "a conversation ended without a parcel, or a parcel is of one that did not": """
        SELECT key, epoch, ended FROM session
        WHERE epoch - 1 + (ended IS NOT NULL) <> (
            SELECT count(*) FROM outbox
            WHERE outbox.tenant = session.tenant AND outbox.session = session.id AND outbox.kind = 'ingest')
    """,
    "a parcel has no session": """
        SELECT id FROM outbox WHERE (tenant, session) NOT IN (SELECT tenant, id FROM session)
    """,
}


def disagreements(path: Path) -> list[str]:
    """Return every inconsistency between the tables of a file that no process writes to."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        found = [f"integrity: {said}" for (said,) in db.execute("PRAGMA integrity_check") if said != "ok"]
        found += [f"{fault}: {row}" for fault, sql in FAULTS.items() for row in db.execute(sql)]
    finally:
        db.close()
    return found
