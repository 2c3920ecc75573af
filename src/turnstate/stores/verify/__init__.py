"""The rules for verifying and repairing stores, shared by SQLite, PostgreSQL and Redis.

A rule is a generator that asks for rows by the name of a statement (`inspection`); a store runs the
statements. `lineage` has the rules for branches and head, `entries` for the log, `descriptions` for the rest.
"""

from __future__ import annotations
