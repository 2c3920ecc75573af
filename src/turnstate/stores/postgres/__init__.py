"""Sessions in PostgreSQL, for many machines: one round trip an append, durable as the server is set."""

from ...errors import StoreUnavailable

try:
    from .store import PostgresStore, connect
except ModuleNotFoundError as missing:
    if missing.name != "asyncpg":
        raise
    raise StoreUnavailable(
        "PostgreSQL is spoken through asyncpg, which is not installed: pip install 'turnstate[postgres]'"
    ) from None

__all__ = ["PostgresStore", "connect"]
