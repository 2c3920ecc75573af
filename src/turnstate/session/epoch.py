"""The next epoch of a session: its first entries, written in one change with the end of the one before."""

from __future__ import annotations

from ..entry import Bootstrap, Entry, Prompt
from ..errors import Busy, Conflict
from ..stores.values import FOREVER, Fork
from .handle import Handle
from .names import checked_prompt


async def begin_epoch(handle: Handle, system: str | None) -> bool:
    """Begin the next epoch; return False if another process wrote after the head was read."""
    writer, memory = handle.writer, handle.memory
    row = await writer.refresh()
    if row.lease_until == FOREVER:
        raise Busy(f"session {row.id} is being imported; wait for it, or import its archive again")
    fold = (await handle.windows.loaded()).fold
    prompt = fold.prompt if system is None else checked_prompt(system)
    profile = await memory.profile(writer.counter(fold.model)) if memory else None
    entries: list[Entry] = [fold.model] if fold.model else []
    entries += [Prompt(prompt)] if prompt is not None else []
    entries += [Bootstrap(profile)] if profile else []
    try:
        await writer.commit(
            records=await writer.records(entries),
            expected_head=row.head,
            fork=Fork(parent=None, seq=0, operation="reset"),
            parcels=await writer.ending("reset"),
            next_epoch=True,
        )
    except Conflict:
        return False
    return True
