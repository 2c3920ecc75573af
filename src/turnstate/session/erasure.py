"""Erasure: deletes everything of a session or a user, wherever it is kept, and returns a receipt.

The shadow repositories come first: if another process is using one, nothing is erased, and the call can be
repeated. Then the store, then snapshots and memory, and last the bytes that are left in the store's files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct

from ..errors import HomeUnusable, NotFound
from ..home import Home
from ..memory.port import MemoryEngine, Scrubs, User
from ..shadow.folder import erase
from ..snapshots import Snapshots
from ..snapshots.folder import snapshot_name
from ..stores.port import Store
from ..stores.values import Address, Removed


class Erasure(Struct, frozen=True, kw_only=True):
    """The receipt of an erasure: what was deleted of which sessions, and when.

    ``memories`` counts messages in the memory engine, ``snapshots`` files, ``checkpoints`` the sessions
    whose shadow repository existed, ``state`` the values of the user or tenant, including replaced ones.
    ``scrubbed`` is True if no byte of the data is left in the files of the store and the built-in memory. It
    is False if others were reading the whole time; scrubbing again completes it.
    """

    at: int
    sessions: dict[str, Removed]
    snapshots: int
    memories: int
    scrubbed: bool
    checkpoints: int = 0
    state: int = 0


async def erased(
    store: Store,
    sessions: Sequence[Address],
    *,
    tenant: str,
    user: str | None,
    states: Sequence[Address] = (),
    snapshots: Snapshots | None,
    memory: MemoryEngine | None,
    home: Home | None,
    now: int,
) -> Erasure:
    """Delete sessions and everything that was kept of them; with a user, also all memories of that user."""
    shadows = sum([await erase_checkpoints(home, at) for at in sessions])
    removed = dict[str, Removed]()
    for at in sessions:
        with suppress(NotFound):  # another process removed it first
            removed[at.session] = await store.remove(at)
    values = 0
    for at in states:
        with suppress(NotFound):  # nothing was ever kept
            values += (await store.remove(at)).entries
    files = 0
    if snapshots is not None:
        for at in sessions:
            files += await asyncio.to_thread(snapshots.erase, snapshot_name(at))
    memories, scrubbed = 0, True
    if memory is not None:
        whose = [User(tenant, user)] if user is not None else sessions
        memories = sum([await memory.forget(one) for one in whose])
        scrubbed = not isinstance(memory, Scrubs) or await memory.scrub()
    scrubbed = await store.scrub() and scrubbed
    return Erasure(
        at=now,
        sessions=removed,
        snapshots=files,
        memories=memories,
        scrubbed=scrubbed,
        checkpoints=shadows,
        state=values,
    )


async def erase_checkpoints(home: Home | None, at: Address) -> bool:
    """Remove the shadow repository of a session; return True if there was one."""
    try:
        where = home or Home.from_environment()
    except HomeUnusable:  # so nothing can have been kept there
        return False
    return await asyncio.to_thread(erase, where, at.tenant, at.session)
