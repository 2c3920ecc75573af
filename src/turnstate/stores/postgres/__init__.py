"""Sessions in PostgreSQL, for many machines: one round trip per append, as durable as the server."""

from ...errors import StoreUnavailable

try:
    from .store import PostgresStore, connect
except ModuleNotFoundError as missing:
    if missing.name != "asyncpg":
        raise
    raise StoreUnavailable(
        "the PostgreSQL store needs the package `asyncpg`: pip install 'turnstate[postgres]'"
    ) from None

__all__ = ["PostgresStore", "connect"]
