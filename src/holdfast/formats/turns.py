"""Wire messages that alternate: where neighbours of one role are joined, and where kept apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .draft import Draft
from .scope import Piece

__all__ = ["in_turns", "merged"]


def in_turns(
    items: Iterable[Any], read: Callable[[int, Any], tuple[str, Iterable[Draft]]]
) -> Iterator[Draft]:
    """Read wire messages of alternating roles, marking those that stand apart from a neighbour."""
    before: str | None = None
    for index, item in enumerate(items):
        role, drafts = read(index, item)
        for position, draft in enumerate(drafts):
            if position == 0 and role == before:
                draft.starts = True
            yield draft
        before = role


def merged(
    pieces: Iterable[Piece],
    key: str,
    blocks: Callable[[Any], list[Any]] = list,
    apart: Callable[[Piece, Piece], bool] | None = None,
) -> list[dict[str, Any]]:
    """Join neighbours of one wire role into one wire message, block after block."""
    wires: list[dict[str, Any]] = []
    before: Piece | None = None
    for piece in pieces:
        if piece.leading:
            continue
        joins = before is not None and before.body["role"] == piece.body["role"]
        if joins and before is not None:
            joins = not (
                piece.starts if piece.starts is not None else apart is not None and apart(before, piece)
            )
        if joins:
            wires[-1] = {**wires[-1], **piece.body, key: blocks(wires[-1][key]) + blocks(piece.body[key])}
        else:
            wires.append(piece.body)
        before = piece
    return wires
