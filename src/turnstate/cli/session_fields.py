"""A session as commands tell it: the fields that programs read, and what state it is in."""

from __future__ import annotations

from typing import Any

from ..archive import is_half_made
from ..session.clock import wall_clock
from ..stores.values import SessionRow
from .moments import iso

__all__ = ["entries", "fields", "state"]


def state(row: SessionRow) -> str:
    """Say whether a session is live, written by somebody, ended, or not yet imported."""
    now = wall_clock()
    if is_half_made(row):
        return "importing"
    if row.ended is not None:
        return "ended"
    if row.lease_until > now:
        return "leased"
    return "idle" if row.is_idle(now) else "live"


def fields(row: SessionRow) -> dict[str, Any]:
    """Give what is known of a session, for programs."""
    return {
        "id": row.id,
        "tenant": row.tenant,
        "user": row.user,
        "title": row.title,
        "tags": list(row.tags),
        "state": state(row),
        "entries": row.seq,
        "tokens": row.total,
        "counter": row.counter,
        "created": iso(row.created),
        "active": iso(row.active),
        "idle": row.idle / 1000 or None,
        "ended": iso(row.ended) if row.ended is not None else None,
        "reason": row.reason or None,
        "epoch": row.epoch,
        "version": row.version,
        "branch": row.branch,
        "meta": row.meta,
    }


def entries(count: int) -> str:
    """Write how many entries there are."""
    return "1 entry" if count == 1 else f"{count:,} entries"
