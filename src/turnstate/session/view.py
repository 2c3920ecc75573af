"""Views of a session: what a conversation state shows at one version, read in one snapshot.

By default a view has the exchanges since the newest cut, `NEWEST` at most. Which prompt, model, settings and
cut are in force is read by their kind. With `last`, it also has every checkpoint of the files, all records of
the line tracker and the tangents that were left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..context.cut import MAX_CONVERSATION_STATE_HISTORY_LEN
from ..context.policy import Policy
from ..conversation import ConversationState, Os
from ..conversation.line_tracker import FileLineTracker, track
from ..conversation.shown import ShownConversation
from ..conversation.view import Viewed
from ..entry import START, Checkpoint, Cut, Summary
from ..ids import MessageId
from ..log import tangents
from ..log.operations import (
    Effect,
    Find,
    Here,
    Placed,
    Steps,
    Walk,
    back_to,
    branches,
    cut_in_force,
    is_clear,
    newest,
    of_kind,
    tip,
)
from ..log.path import CUTS, END, between, spans
from ..stores.port import Reads
from ..stores.values import SessionRow, Span
from .operate import answered
from .writer import SessionWriter

NEWEST = 100
"""The most exchanges of a view by default: what people look at, read in a few milliseconds."""

ROWS = 4
"""The rows of most exchanges: so many are read at once, which saves a server four round trips."""

_IN_FORCE = ("prompt", "bootstrap", "model", "settings")
"""The kinds of entries whose newest one is in force, wherever it is on the path."""


async def view(
    writer: SessionWriter, *, policy: Policy, last: int | None, os: Os | None
) -> ConversationState:
    """Return a view of the session as it is now."""
    whole = bool(last)
    most = min(NEWEST if last is None else last, MAX_CONVERSATION_STATE_HISTORY_LEN)
    if most == MAX_CONVERSATION_STATE_HISTORY_LEN:
        most += 1  # then the history is too long, and begins where a turn does

    async def job(row: SessionRow, log: Reads) -> Viewed:
        here = Here(row.id, row.head)
        viewed = await answered(_viewed(here, most, whole=whole), log, row.address)
        return viewed._replace(version=row.version)

    viewed = await writer.read(job)
    return ConversationState.viewing(writer.row.id, viewed, os=os, policy=policy, counter=writer.start.name)


def _viewed(here: Here, most: int, *, whole: bool) -> Steps[Viewed]:
    known = yield from branches()
    path = spans(known.values(), here.head)
    opened = tangents.around(known, here.head.branch)
    marks = yield from newest(path, *_IN_FORCE, *CUTS, "checkpoint", "lines")
    shown = yield from _part(path, most, marks, from_cut=not whole)
    main = None
    if opened:
        end = yield from tip(known[opened[-1].former or 1])
        back = spans(known.values(), end)
        main = yield from _part(back, most, (yield from newest(back, *_IN_FORCE, *CUTS)), from_cut=not whole)
    lines: dict[str, FileLineTracker] | None = None
    if "lines" not in marks or shown.first == 1:
        lines = dict(shown.trackers)
    elif whole:
        lines = {}
        for one in (yield from of_kind(path, "lines")):
            track(lines, one.entry)
    checkpoints = yield from _checkpoints(path, shown, whole=whole or "checkpoint" not in marks)
    kept = None
    if whole:
        effect: Effect = yield from tangents.kept()(here)
        kept = effect.result
    return Viewed(shown, tuple(opened), main, lines=lines, checkpoints=checkpoints, kept=kept)


def _part(
    path: list[Span], most: int, marks: Mapping[str, Placed], *, from_cut: bool
) -> Steps[ShownConversation]:
    """Return the newest part of a path, with what is in force from before it."""
    standing = yield from cut_in_force(path, marks)
    start = 1
    if from_cut and standing is not None and isinstance(standing.entry, Cut):
        start = yield from _start(path, standing, standing.entry)
    found = yield from _newest_part(path, start, most)
    first = found[0].seq if found else 1
    if not found or not between(path, 1, first - 1):
        first = 1
    shown = ShownConversation(first)
    if first > 1:
        for kind in _IN_FORCE:
            if (one := marks.get(kind)) is not None and one.seq < first and one.entry is not None:
                shown.recall(one.entry)
        if standing is not None and standing.seq < first and isinstance(standing.entry, Cut):
            shown.recall(standing.entry)
            by_model = yield from _summary_of(between(path, standing.seq, END), standing.entry)
            if by_model is not None:
                shown.recall(by_model)
    shown.extend(found)
    return shown


def _start(path: list[Span], standing: Placed, cut: Cut) -> Steps[int]:
    """Return the number of the first entry that a cut keeps; a clearing hides nothing from people."""
    if is_clear(cut):
        return 1
    named: MessageId | None = cut.kept_from or cut.covers[1] or None
    if named is None:
        return standing.seq
    found: list[Placed] = yield Find((named,))
    for one in found:
        if between(path, one.seq, one.seq):
            return one.seq if cut.kept_from else one.seq + 1
    return standing.seq if cut.kept_from is None else 1  # late results are kept under another id


def _newest_part(path: list[Span], start: int, most: int) -> Steps[list[Placed]]:
    """Return the entries from a number on, but at most so many exchanges, and whole ones only, in order.

    A cut may keep an answer and pin its question: so the part begins before the number if an exchange does.
    """
    walk, found, exchanges = Walk(path, page=ROWS * most + 1), list[Placed](), 0
    while page := (yield from walk.page()):
        for one in page:
            if (message := one.message) is not None and message.role == "assistant":
                exchanges += 1
                if exchanges > most or one.seq < start:
                    return found[::-1]
            found.append(one)
    return found[::-1]


def _summary_of(path: list[Span], cut: Cut) -> Steps[Summary | None]:
    """Return the newest summary that a model wrote for a cut, after the cut's entry."""

    def is_its(one: Placed) -> bool:
        return isinstance(one.entry, Summary) and one.entry.cut == cut.id

    found = yield from back_to(path, is_its, kinds=("summary",))
    summary = found[0].entry if found and is_its(found[0]) else None
    return summary if isinstance(summary, Summary) else None


def _checkpoints(
    path: list[Span], shown: ShownConversation, *, whole: bool
) -> Steps[list[tuple[int, Checkpoint]] | None]:
    """Return the checkpoints since the newest start; None if they are not loaded and not wanted."""
    known = shown.checkpoints_since_start
    if shown.first == 1 or (known and known[0][1].label == START):
        return known
    if not whole:
        return None
    return (yield from checkpoints(path))


def checkpoints(path: Sequence[Span]) -> Steps[list[tuple[int, Checkpoint]]]:
    """Return the checkpoints of a path since the newest start, with their numbers."""
    found = yield from back_to(
        path,
        lambda one: isinstance(one.entry, Checkpoint) and one.entry.label == START,
        kinds=("checkpoint",),
    )
    return [(one.seq, one.entry) for one in found if isinstance(one.entry, Checkpoint)]
