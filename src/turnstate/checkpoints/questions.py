"""What checkpoints ask the log of their conversation; nothing here reads messages beyond the last turn.

Each question is an operation that only reads (see `log.operations`), so it sees one version of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..entry import START, Checkpoint, Restore
from ..log.fold import open_calls
from ..log.operations import (
    Effect,
    Here,
    Operation,
    Placed,
    Steps,
    at,
    back_to,
    branches,
    last_round,
    of_kind,
    path_to,
)
from ..log.path import END, between, spans
from ..log.tangents import around
from ..message import ToolCallRequest
from ..session.view import checkpoints
from ..stores.values import Span
from .labels import ASIDE, is_numbered

Numbered = tuple[int, Checkpoint]
"""A checkpoint with the number of its entry."""


class Standing(NamedTuple):
    """Where checkpoints stand: the newest ones, whether the user has spoken since, and the open calls.

    The newest ones go back to one whose label has a number: that is all that the next number depends on.
    """

    newest: Sequence[Checkpoint]
    is_interrupted: bool
    open: Sequence[ToolCallRequest]


def standing() -> Operation:
    """Return where checkpoints stand."""

    def steps(here: Here) -> Steps[Effect]:
        path = yield from path_to(here.head)
        found = yield from _back(path, lambda one: is_numbered(one) or one.label == START)
        spoken = yield from _has_spoken(path, found[-1][0] if found else here.head.seq)
        asked = open_calls((yield from last_round(path)))
        return Effect(result=Standing([one for _, one in found], spoken, asked))

    return steps


def since_start() -> Operation:
    """Return the checkpoints of the path since the newest start, and whether the user has spoken since."""

    def steps(here: Here) -> Steps[Effect]:
        path = yield from path_to(here.head)
        found = yield from checkpoints(path)
        spoken = yield from _has_spoken(path, found[-1][0] if found else here.head.seq)
        return Effect(result=(found, spoken))

    return steps


def _back(path: Sequence[Span], is_enough: Callable[[Checkpoint], bool]) -> Steps[list[Numbered]]:
    """Return the newest checkpoints of a path in order, back to one that is enough."""
    found = yield from back_to(
        path,
        lambda one: isinstance(one.entry, Checkpoint) and is_enough(one.entry),
        kinds=("checkpoint",),
    )
    return [(one.seq, one.entry) for one in found if isinstance(one.entry, Checkpoint)]


def _has_spoken(path: Sequence[Span], since: int) -> Steps[bool]:
    """Return True if the user has spoken after an entry."""

    def is_users(one: Placed) -> bool:
        return (message := one.message) is not None and message.role == "user"

    found = yield from back_to(between(path, since + 1, END), is_users)
    return bool(found) and is_users(found[0])


def newest_of_branches() -> Operation:
    """Return the commits of the newest checkpoint of every branch."""

    def steps(_: Here) -> Steps[Effect]:
        found = set[str]()
        for branch in (yield from branches()).values():
            own = [Span(branch.id, branch.fork_seq + 1, END)]
            found.update(one.commit for _, one in (yield from _back(own, lambda _: True)))
        return Effect(result=found)

    return steps


def restores(here: Here) -> Steps[list[tuple[int, Restore]]]:
    """Return the restores on the path, the newest first, with the numbers of their entries."""
    found = yield from of_kind((yield from path_to(here.head)), "restore")
    return [(one.seq, one.entry) for one in reversed(found) if isinstance(one.entry, Restore)]


def newest_restore() -> Operation:
    """Return the newest restore on the path that was not undone, with its number; None if there is none."""

    def steps(here: Here) -> Steps[Effect]:
        undone = set[int]()
        for number, one in (yield from restores(here)):
            if one.undone:
                undone.add(one.undone)
            elif number not in undone:
                return Effect(result=(number, one))
        return Effect()

    return steps


def on_path(here: Here, number: int) -> Steps[Placed | None]:
    """Return the entry of the path with a number."""
    return (yield from at((yield from path_to(here.head)), number))


def tangents(here: Here) -> Steps[list[str]]:
    """Return the names of the tangents that contain the head, the innermost first."""
    return [one.name for one in around((yield from branches()), here.head.branch)]


def in_tangent() -> Operation:
    """Return the innermost tangent and the commit of the files before it; None outside of a tangent."""

    def steps(here: Here) -> Steps[Effect]:
        known = yield from branches()
        for tangent in around(known, here.head.branch):
            own = between(spans(known.values(), here.head), tangent.fork_seq + 1, END)
            before = yield from _back(own, lambda one: one.label == ASIDE)
            commit = before[0][1].commit if before and before[0][1].label == ASIDE else ""
            return Effect(result=(tangent.name, commit))
        return Effect()

    return steps


def newest_entry(here: Here) -> Steps[Placed | None]:
    """Return the entry at the head."""
    return (yield from on_path(here, here.head.seq))
