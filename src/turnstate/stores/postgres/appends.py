"""Appends in PostgreSQL: a change is one function call, and plain changes made at the same time share a call.

A shared call takes arrays, writes the changes that pass every check, and waits for no lock. A change that it
leaves unanswered is sent again alone: that call waits if the session is locked, and gives the reason if it
refuses the change. So no one waits for the sessions of others. If one change makes a shared call fail,
nothing is written, and the changes are sent again one by one, so that each gets its own error. If the answer
is lost, a change with a key is sent again, on a new connection, until its time is up: if it was committed,
the answer is its first receipt. For a change without a key the error says that its outcome is unknown.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from ...errors import AlreadyExists, EpochEnded, InputError, NotFound, StoreDamaged, StoreUnavailable
from ...threads import INLINE, off_loop
from ..batches import Batches, is_plain
from ..values import Address, Change, Receipt
from .connections import PATIENCE, Connections
from .faults import AnswerLost
from .log import change_columns, refusal
from .rows import entry_columns

PAUSE = 0.2
"""The most seconds before a change is sent again whose answer was lost."""

LEAST = 1.0
"""The fewest seconds that an attempt gets."""


class BatchedAppends:
    """Sends changes, and returns their receipts."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.batches = Batches[Change](self._alone, self._together)

    async def receipt(self, change: Change) -> Receipt:
        """Send a change, and return its receipt or raise the reason for its refusal."""
        self._connections.owner.check()  # before it waits for a call that another process has in flight
        if is_plain(change):
            receipt: Receipt = await self.batches.answer(change.at, change)
            return receipt
        return await self._alone(change)

    async def _alone(self, change: Change) -> Receipt:
        large = sum(len(record.body) for record in change.records) > INLINE
        columns = await off_loop(lambda: change_columns(change), large=large)
        answer, lost = await self._answered(change, columns)
        outcome, epoch, version, branch, first, last, *_ = answer
        if outcome not in ("taken", "repeated"):
            refused = refusal(change, answer)
            # Epoch and existence are checked before the key, so the attempt that was lost may be written.
            raise lost if lost and isinstance(refused, EpochEnded | NotFound) else refused
        return Receipt(
            epoch=epoch,
            version=version,
            branch=branch,
            first=first,
            last=last,
            repeated=outcome == "repeated",
        )

    async def _answered(self, change: Change, columns: dict[str, Any]) -> tuple[Any, AnswerLost | None]:
        """Send a change, again if it has a key and an answer is lost; return the answer and the last loss."""
        deadline, lost = time.monotonic() + PATIENCE, None
        while True:
            try:
                left = max(LEAST, deadline - time.monotonic())
                (answer,) = await self._connections.write_within(left, "append", **columns)
                return answer, lost
            except StoreUnavailable as error:
                is_lost = isinstance(error, AnswerLost)
                if change.key is None or not (is_lost or lost):
                    raise
                lost = error if isinstance(error, AnswerLost) else lost
                if time.monotonic() > deadline:
                    raise lost or error from None
            await asyncio.sleep(random.uniform(0.0, PAUSE))  # noqa: S311

    async def _together(self, changes: Sequence[Change]) -> Sequence[Receipt | AnswerLost | None]:
        receipts: list[Receipt | AnswerLost | None] = [None] * len(changes)
        try:
            answers = await self._connections.write("append_all", **_arguments(changes))
        except (AlreadyExists, InputError, StoreDamaged):  # caused by one of the changes
            return receipts
        except AnswerLost as lost:
            return [None if change.key else lost for change in changes]
        for number, epoch, version, branch, last in answers:
            first = last - len(changes[number - 1].records) + 1
            receipts[number - 1] = Receipt(
                epoch=epoch, version=version, branch=branch, first=first, last=last
            )
        return receipts


def _arguments(changes: Sequence[Change]) -> dict[str, Any]:
    """Return the arguments of a shared call: one list per column, with all records concatenated."""
    rounds, latest = list[int](), dict[Address, int]()
    for change in changes:
        latest[change.at] = latest.get(change.at, 0) + 1
        rounds.append(latest[change.at])
    each = [change.records for change in changes]
    totals = [list(accumulate((record.tokens for record in records), initial=0)) for records in each]
    heads = [change.expected_head or (None, None) for change in changes]
    return {
        **entry_columns([record for records in each for record in records]),
        "owners": [number for number, records in enumerate(each, 1) for _ in records],
        "places": [place for records in each for place in range(1, len(records) + 1)],
        "totals": [total for one in totals for total in one[1:]],
        "counts": [len(records) for records in each],
        "added": [one[-1] for one in totals],
        "said": [change.is_activity for change in changes],
        "rounds": rounds,
        "tenants": [change.at.tenant for change in changes],
        "sessions": [change.at.session for change in changes],
        "nows": [change.now for change in changes],
        "creations": [change.created for change in changes],
        "epochs": [change.epoch for change in changes],
        "key_names": [change.key and change.key.name for change in changes],
        "key_digests": [change.key and change.key.digest for change in changes],
        "key_life": max(change.key_life for change in changes),
        "fences": [change.fence for change in changes],
        "versions": [change.expected_version for change in changes],
        "branches": [branch for branch, _ in heads],
        "seqs": [seq for _, seq in heads],
    }
