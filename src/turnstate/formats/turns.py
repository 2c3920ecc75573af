"""Wire messages of alternating roles: which neighbors of one role are joined and which stay separate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from ..message import Role
from .draft import Draft
from .scope import Piece

__all__ = ["are_of_two_roles", "in_turns", "is_placed", "merged", "result_runs", "with_notices"]

_Blocks = Callable[[Any], list[Any]]
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
    blocks: Iterable[dict[str, Any]],
    is_result: Callable[[dict[str, Any]], bool],
    is_blank: Callable[[dict[str, Any]], bool],
) -> list[tuple[bool, list[dict[str, Any]]]]:
    """Divide a wire message of the user between results and what the user says.

    Blank text beside results belongs to them. As a message of its own it would be sent as a placeholder, and
    could come between a call and its answer.
    """
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
) -> Iterator[Piece]:
    """Turn the system messages of a window into notices where the provider takes none.

    It takes one after a message that `may_precede` it, and before the assistant's or at the end.
    """
    shown = [piece for piece in pieces if not piece.leading]
    for at, piece in enumerate(shown):
        follows = at > 0 and may_precede(shown[at - 1].body)
        precedes = at + 1 == len(shown) or shown[at + 1].role == "assistant"
        if is_placed(piece.body) and piece.mended and not (follows and precedes):
            yield piece._replace(body=notice(piece.body))
        else:
            yield piece


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
