"""The SQL of the store, loaded once at import.

``queries.sql`` has the statements of daily use, ``verification.sql`` those that check and repair.
"""

from __future__ import annotations

from ..sql import migration_steps, named_statements

__all__ = ["MIGRATIONS", "SCANS", "SHORT", "SQL"]

SQL = named_statements(__package__, "queries.sql", "verification.sql")
"""Statements by their names."""

MIGRATIONS = migration_steps(__package__)
"""The steps of the schema in order; the number of a step is its place, from 1 on."""

# The outbox has no row numbers, so NOT INDEXED would leave the choice of a tree to SQLite.
_TABLES = {
    "page": ("session", "NOT INDEXED"),
    "page_of_user": ("session", "NOT INDEXED"),
    "due_sessions": ("session", "NOT INDEXED"),
    "due_parcels": ("outbox", "INDEXED BY sqlite_autoindex_outbox_1"),
    "parcels": ("outbox", "INDEXED BY sqlite_autoindex_outbox_1"),
}
SCANS = {
    name: SQL[name].replace(f"FROM {table} ", f"FROM {table} {how} ", 1)
    for name, (table, how) in _TABLES.items()
}
"""Statements that scan their whole table, for use when an index of it is damaged."""

SHORT = {
    name: SQL[name].replace(" body,", " CASE WHEN length(body) <= :most THEN body END,", 1)
    for name in ("read", "read_newest")
}
"""Statements that return NULL for a longer body; its length is known without reading it."""
