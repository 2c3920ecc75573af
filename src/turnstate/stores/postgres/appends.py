"""Appends in PostgreSQL: a change is a call of one function, and changes of one moment are one statement.

The statement for many takes arrays and calls the same function for each change, so the checks are the same.
It waits for no lock: a change whose session is locked is sent again alone, so nobody waits for the sessions
of others. A statement that fails has written nothing, and its changes are sent again one by one, so that each
gets its own error; only if it is unknown whether it was committed, all of them are told so.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from ...errors import AlreadyExists, InputError, StoreDamaged
from ..admission import KEY_LIFE
from ..batches import Batches, is_plain
from ..values import Change
from .connections import Connections

__all__ = ["Appends"]

_ARRAYS = ("ids", "kinds", "bodies", "tokens", "totals", "sums")

_Columns = dict[str, Any]


class Appends:
    """Sends changes, and returns the rows that the server answers."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.batches = Batches[_Columns](self._alone, self._together)

    async def answer(self, change: Change, columns: _Columns) -> Any:
        """Send a change with its arguments, and return the row that the server answers."""
        if is_plain(change):
            return await self.batches.answer(change.at, columns)
        return await self._alone(columns)

    async def _alone(self, columns: _Columns) -> Any:
        (answer,) = await self._connections.write("append", **columns)
        return answer

    async def _together(self, each: Sequence[_Columns]) -> Sequence[Any]:
        try:
            answers = await self._connections.write("append_all", **_arguments(each))
        except (AlreadyExists, InputError, StoreDamaged):  # of one of them
            return [None] * len(each)
        return [None if answer["outcome"] == "locked" else answer for answer in answers]


def _arguments(each: Sequence[_Columns]) -> dict[str, Any]:
    """Return the arguments of a call for many: a list for each column, and the records of all in a row."""
    ends = list(accumulate(len(one["ids"]) for one in each))
    return {
        **{name: [value for one in each for value in one[name]] for name in _ARRAYS},
        "starts": [1, *(end + 1 for end in ends[:-1])],
        "ends": ends,
        "tenants": [one["tenant"] for one in each],
        "sessions": [one["session"] for one in each],
        "nows": [one["now"] for one in each],
        "creations": [one["created"] for one in each],
        "epochs": [one["epoch"] for one in each],
        "key_names": [one["key_name"] for one in each],
        "key_digests": [one["key_digest"] for one in each],
        "key_life": KEY_LIFE,
        "fences": [one["fence"] for one in each],
        "versions": [one["expected_version"] for one in each],
        "branches": [one["expected_branch"] for one in each],
        "seqs": [one["expected_seq"] for one in each],
        "moves": [one["moves_path"] for one in each],
        "activities": [one["is_activity"] for one in each],
    }
