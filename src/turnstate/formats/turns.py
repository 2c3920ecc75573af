"""Wire messages of alternating roles: which neighbors of one role are joined and which stay separate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from ..message import Role
from .draft import Draft
from .scope import Piece

_Blocks = Callable[[Any], list[Any]]
_IsOne = Callable[[dict[str, Any]], bool]
_Apart = Callable[[Piece, Piece], bool]


def in_turns(
    items: Sequence[Any], start: int, before: Role | None, read: Callable[[int, Any], Iterable[Draft]]
) -> Iterator[Draft]:
    """Read wire messages of alternating roles from `start` on; mark those that repeat the role before."""
    speaking = None if start == 0 else before == "assistant"
    for index in range(start, len(items)):
        for position, draft in enumerate(read(index, items[index])):
            if position == 0:
                if (draft.role == "assistant") is speaking:
                    draft.starts = True
                speaking = draft.role == "assistant"
            draft.end = index + 1
            yield draft


def result_runs(
    blocks: Iterable[dict[str, Any]], is_result: _IsOne, is_blank: _IsOne
) -> Iterator[tuple[bool, list[dict[str, Any]], list[Any]]]:
    """Divide a wire message of the user between results and what the user says.

    Yield whether a run answers calls, what it consists of, and the wire's content. Blank text beside results
    belongs to the next of them, or to the last: each is a group with its result there. As a message of its
    own it would be sent as a placeholder, and could come between a call and its answer.
    """
    for answers, run in _runs(blocks, is_result, is_blank):
        if answers:
            yield True, [one for one in run if is_result(one)], _grouped(run, is_result)
        else:
            yield False, run, run


def _grouped(run: list[dict[str, Any]], is_result: _IsOne) -> list[Any]:
    """Group the blocks of a run with their results; a result without others stays as it is."""
    groups: list[list[dict[str, Any]]] = []
    waiting: list[dict[str, Any]] = []
    for block in run:
        waiting.append(block)
        if is_result(block):
            groups.append(waiting)
            waiting = []
    groups[-1].extend(waiting)
    return [tuple(group) if len(group) > 1 else group[0] for group in groups]


def _runs(
    blocks: Iterable[dict[str, Any]], is_result: _IsOne, is_blank: _IsOne
) -> list[tuple[bool, list[dict[str, Any]]]]:
    runs: list[tuple[bool, list[dict[str, Any]]]] = []
    for answers, group in groupby(blocks, is_result):
        run = list(group)
        before = runs[-1] if runs else None
        if before and (before[0] == answers or (before[0] and all(map(is_blank, run)))):
            before[1].extend(run)
        elif before and answers and all(map(is_blank, before[1])):
            runs[-1] = (True, before[1] + run)
        else:
            runs.append((answers, run))
    return runs


def is_placed(body: Any) -> bool:
    """Return True if a piece is a system message that its document has among the other messages."""
    return isinstance(body, dict) and body.get("role") == "system"


def with_notices(
    pieces: Sequence[Piece],
    may_precede: Callable[[dict[str, Any]], bool],
    notice: Callable[[dict[str, Any]], dict[str, Any]],
    silence: list[dict[str, Any]],
) -> Iterator[Piece]:
    """Keep the system messages of a window where the provider takes them; turn the others into notices.

    It takes one after a message that `may_precede` it, and before the assistant's or at the end. Only what
    comes before decides, so that what was sent stays the same when the conversation goes on: the next system
    message joins the one before, and before the user's next message the assistant says nothing.
    """
    before: Piece | None = None
    for given in pieces:
        if given.leading:
            continue
        piece, kept = given, before is not None and before.mended and is_placed(before.body)
        if is_placed(given.body) and given.mended:
            if before is not None and kept and _fields(before) == _fields(given):
                piece = given._replace(starts=False)
            elif before is None or not may_precede(before.body):
                piece = given._replace(body=notice(given.body))
        if kept and piece.body.get("role") == "user":
            yield Piece("assistant", {"role": "assistant", "content": silence}, mended=True)
        yield piece
        before = piece


def _fields(piece: Piece) -> dict[str, Any]:
    """Return the fields of a wire message beside its content."""
    return {key: value for key, value in piece.body.items() if key != "content"}


def are_of_two_roles(before: Piece, piece: Piece) -> bool:
    """Return True if the wire messages of two pieces have different roles."""
    return bool(before.body.get("role") != piece.body.get("role"))


def merged(
    pieces: Iterable[Piece],
    key: str,
    opening: dict[str, Any],
    *,
    blocks: _Blocks = list,
    apart: _Apart = lambda _one, _other: False,
) -> list[dict[str, Any]]:
    """Join neighbors of one wire role into one wire message, block after block.

    Providers that require alternating roles require the user to begin. If the assistant begins, `opening`
    goes first, unless the provider's own document began that way.
    """
    groups: list[list[Piece]] = []
    for piece in pieces:
        if piece.leading:
            continue
        if groups and _joins(groups[-1][-1], piece, apart):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    wires = [_joined(group, key, blocks) for group in groups]
    if groups and groups[0][0].role == "assistant" and not groups[0][0].native:
        wires.insert(0, opening)
    return wires


def _joins(before: Piece, piece: Piece, apart: _Apart) -> bool:
    if (before.role == "assistant") != (piece.role == "assistant"):
        return False
    return not (apart(before, piece) if piece.starts is None else piece.starts)


def _joined(group: list[Piece], key: str, blocks: _Blocks) -> dict[str, Any]:
    whole: dict[str, Any] = group[0].body
    if len(group) == 1:
        return whole
    added = {name: value for piece in group[1:] for name, value in piece.body.items() if name != "role"}
    return {**added, **whole, key: [block for piece in group for block in blocks(piece.body.get(key) or [])]}
