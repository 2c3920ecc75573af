"""The process that tests kill while it restores files and conversation together.

It opens a session and its checkpoints, prints `ready`, waits for a line, runs the operation that its
arguments name, and prints `done`. The arguments also name a planted bug.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from turnstate.checkpoints import CheckpointManager, transaction
from turnstate.home import Home
from turnstate.log import operations
from turnstate.log.operations import Effect, Here, Operation, Steps
from turnstate.session import SessionManager, handle
from turnstate.session.operate import Operated
from turnstate.session.writer import SessionWriter
from turnstate.stores.sqlite import writer


def no_intent() -> None:
    transaction.write = lambda *_: None  # type: ignore[assignment]


def forgets_too_early() -> None:
    """Treat an intent as carried out as soon as the files are in place."""
    really = transaction.write

    def write(one: transaction.Intent, folder: Path) -> None:
        really(one, folder)
        if one.placed:
            transaction.forget(folder)

    transaction.write = write  # type: ignore[assignment]


def in_two_changes() -> None:
    """Write the entries of an operation first, where the head is, and then select another branch."""
    really = handle.operate

    async def twice(writer: SessionWriter, operation: Operation, *, anywhere: bool = False) -> Operated:
        planned: Effect = (await really(writer, _alone(operation))).result
        if planned.select is None or not planned.entries:
            return await really(writer, operation, anywhere=anywhere)
        await really(writer, operations.write(*planned.entries))
        return await really(writer, _returning(Effect(result=planned.result, select=planned.select)))

    handle.operate = twice


def _alone(operation: Operation) -> Operation:
    """Return an operation that changes nothing and returns what another would."""

    def steps(here: Here) -> Steps[Effect]:
        return Effect(result=(yield from operation(here)))

    return steps


def _returning(effect: Effect) -> Operation:
    def steps(_: Here) -> Steps[Effect]:
        yield from ()
        return effect

    return steps


PLANTED: dict[str, Callable[[], None]] = {
    "no intent": no_intent,
    "forgets the intent too early": forgets_too_early,
    "two changes": in_two_changes,
}


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def main(operation: str, folder: Path, session: str, plant: str) -> None:
    if plant:
        PLANTED[plant]()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))  # so that a point is the same in every run
    writer.IDLE = 3_600.0  # as is what the store writes: no search index in the background
    async with await SessionManager.open(f"sqlite:///{folder}/tree/agent.db") as sessions:
        sessions.store._writer.start()  # type: ignore[attr-defined]
        await asyncio.to_thread(str)  # only calls of threads that are there can be chosen
        opened = await sessions.open(session)
        home = Home(folder / "home")
        if operation == "open":
            say("ready")
            await asyncio.to_thread(sys.stdin.readline)
            await CheckpointManager.open(opened, folder / "tree", home=home)
        else:
            checkpoints = await CheckpointManager.open(opened, folder / "tree", home=home)
            say("ready")
            await asyncio.to_thread(sys.stdin.readline)
            await OPERATIONS[operation](checkpoints)
    say("done")


OPERATIONS: dict[str, Callable[[CheckpointManager], Any]] = {
    "restore": lambda checkpoints: checkpoints.restore("1", hard=True),
    "undo": lambda checkpoints: checkpoints.undo_restore(),
    "leave": lambda checkpoints: checkpoints.leave_tangent("tail"),
    "leave without files": lambda checkpoints: checkpoints.session.leave_tangent("tail"),
    "undo an exit": lambda checkpoints: checkpoints.session.undo(only="tangent exit"),
}


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
