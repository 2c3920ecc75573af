"""The SQL of the store, loaded once at import.

``queries.sql`` has the statements for normal operation, ``verification.sql`` those for checks and repairs.
"""

from __future__ import annotations

from ..sql import migration_steps, named_statements

SQL = named_statements(__package__, "queries.sql", "verification.sql")
"""Statements by name."""

MIGRATIONS = migration_steps(__package__)
"""The schema migrations in order; a step's number is its position, counted from 1."""

SHORT = {
    name: SQL[name].replace(" body,", " CASE WHEN length(body) <= :most THEN body END,", 1)
    for name in ("read", "read_newest")
}
"""Statements that return NULL for a body longer than `:most`; SQLite knows its length without reading it."""
