"""The schema comes up to date when a store is opened.

A new database, an old schema and eight processes that open it at once are the normal case: whoever gets
the lock migrates, the others find it done. All steps are one transaction, so a process that is killed in
it leaves the schema as it was. A schema of another program, or of a newer Turnstate, is left untouched.

The steps change tables. Functions hold no data, so all of them are replaced whenever a step is taken.
"""

from __future__ import annotations

from hashlib import sha256

from ...errors import NewerFormat, StoreDamaged
from .connections import Connections, Work
from .queries import functions, migrations
from .target import Target

__all__ = ["migrate"]


async def migrate(connections: Connections) -> None:
    """Make the schema, or bring it up to date, or refuse it untouched."""
    target = connections.target
    steps = migrations(target.schema)
    async with connections.transaction(frozen=True) as work:
        if await _version(work, target) == len(steps):
            return
    async with connections.transaction() as work:
        await work.rows("pin_names")
        await work.rows("lock_schema", lock=_lock(target.schema))
        version = await _version(work, target)
        if version == len(steps):  # another process did it meanwhile
            return
        if version is None:
            await work.connection.execute(f'CREATE SCHEMA "{target.schema}"')
        if not version:
            await work.rows("make_migration")
        for number in range(version or 0, len(steps)):
            if steps[number]:
                await work.connection.execute(steps[number])
            await work.rows("add_migration", number=number + 1)
        await work.connection.execute(functions(target.schema))


async def _version(work: Work, target: Target) -> int | None:
    """Give the version of the schema, 0 where it is empty, nothing where it is missing."""
    ((there, is_ours, tables),) = await work.rows("schema", schema=target.schema)
    if not there:
        return None
    if not is_ours and tables:
        raise StoreDamaged(
            f"{target.shown}: the schema {target.schema!r} is another program's; add ?schema=NAME to the URL"
        )
    if not is_ours:
        return 0
    ((version,),) = await work.rows("version")
    known = len(migrations(target.schema))
    if not version:
        raise StoreDamaged(f"{target.shown}: the schema {target.schema!r} is damaged: it has no number")
    if version > known:
        raise NewerFormat(
            f"{target.shown} has schema {version}, newer than {known}; update Turnstate to open it"
        )
    return int(version)


def _lock(schema: str) -> int:
    """Give the number under which those who migrate a schema wait for each other."""
    return int.from_bytes(sha256(f"turnstate schema {schema}".encode()).digest()[:8], signed=True)
