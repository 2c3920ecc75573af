"""A process that makes or brings up a store, and kills itself before a chosen statement, or does not.

It forks itself for every run, so that a hundred deaths cost no hundred starts of Python. What became
of the file after each is printed as a line of JSON.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import apsw

from turnstate.stores.sqlite import SqliteStore, connection
from turnstate.stores.sqlite.queries import MIGRATIONS
from turnstate.stores.values import Address, SessionRow

SECOND = "CREATE TABLE second (a INTEGER PRIMARY KEY, b TEXT) STRICT; INSERT INTO second VALUES (1, 'one');"
THIRD = "ALTER TABLE second ADD COLUMN c TEXT; UPDATE second SET c = b; CREATE INDEX by_c ON second (c);"
STEPS = [*MIGRATIONS, SECOND, THIRD]


def die_before(number: int) -> None:
    """Kill this process before the statement of that number, counted over all connections."""
    statements = itertools.count()

    def trace(*_: object) -> bool:
        if next(statements) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    apsw.connection_hooks.append(lambda db: db.set_exec_trace(trace))


def bring_up(steps: int) -> None:
    """Migrate with so many steps."""
    connection.MIGRATIONS = tuple(STEPS[:steps])


def in_a_child(work: Any) -> int:
    """Do something in a process of its own, and give its status."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(json.dumps({"error": repr(error)}), flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def state(path: str) -> list[Any]:
    """Return the number of the schema, and everything in it."""
    db = apsw.Connection(path)
    try:
        tables = sorted(name for (name,) in db.execute("SELECT name FROM sqlite_schema"))
        rows = list(db.execute("SELECT * FROM second")) if "second" in tables else []
        return [db.pragma("user_version"), db.pragma("application_id"), tables, rows]
    finally:
        db.close()


def open_and_close(path: str) -> None:
    asyncio.run(SqliteStore(path).close())


def killed(folder: Path, before: int, after: int, step: int) -> None:
    """Kill a migration from one number of steps to another, each time before a later statement."""
    for number in itertools.count(step=step):
        path = str(folder / f"{before}-{after}-{number}.db")

        def prepare() -> None:
            if before:
                bring_up(before)
                open_and_close(path)  # noqa: B023

        def die() -> None:
            bring_up(after)
            die_before(number)  # noqa: B023
            open_and_close(path)  # noqa: B023

        def finish() -> None:
            bring_up(after)
            open_and_close(path)  # noqa: B023

        def tell() -> None:
            print(json.dumps(state(path)), flush=True)  # noqa: B023

        in_a_child(prepare)
        died = os.WIFSIGNALED(in_a_child(die))
        print(json.dumps({"number": number, "died": died}), flush=True)
        in_a_child(tell)
        in_a_child(finish)
        in_a_child(tell)
        if not died:
            return


def together(folder: Path, processes: int, rounds: int) -> None:
    """Open a file that is not there in several processes at once, each making a session."""
    for number in range(rounds):
        path = str(folder / f"together-{number}.db")
        start, go = os.pipe()
        children = [os.fork() for _ in range(processes) if os.getpid() == PARENT]
        if os.getpid() != PARENT:
            os.close(go)
            os.read(start, 1)
            asyncio.run(_make(path, str(os.getpid())))
            os._exit(0)
        os.close(start)
        os.close(go)
        statuses = [os.waitpid(child, 0)[1] for child in children]
        db = apsw.Connection(path)
        ((sessions,),) = db.execute("SELECT count(*) FROM session")
        print(json.dumps({"statuses": statuses, "sessions": sessions, "version": db.pragma("user_version")}))
        db.close()


async def _make(path: str, id: str) -> None:
    bring_up(len(STEPS))
    store = SqliteStore(path)
    row = SessionRow(
        tenant="t", id=id, user=None, title="", tags=(), counter="c", meta={}, created=1, active=1
    )
    await store.create(row)
    assert (await store.get(Address("t", id))).id == id
    await store.close()


PARENT = os.getpid()

if __name__ == "__main__":
    if sys.argv[6:] == ["loosely"]:  # a planted bug: every statement is a transaction of its own
        connection.with_lock = lambda _, work: work()
    if sys.argv[1] == "killed":
        killed(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
    else:
        together(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
