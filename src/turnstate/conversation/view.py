"""What a view of a session shows, and a log of it: a view is saved as JSON like any conversation.

Entries are numbered anew there, so the numbers in reverts and tangents are, too. What a cut from before the
loaded part covers is not in that log.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from msgspec import structs

from ..entry import Checkpoint, Cut, Entry, FileLines, Note, Revert, Summary, Tangent
from ..ids import MessageId
from ..log.memory_log import MemoryLog
from ..log.operations import Effect, is_clear
from ..log.path import END
from ..log.tangents import TANGENT, KeptTangent
from ..stores.values import BranchRow, Fork, Position
from .line_tracker import FileLineTracker, tracker_to_json
from .shown import DAMAGED, ShownConversation


class Viewed(NamedTuple):
    """What a state shows: the path to one head, and the tangents around it, the innermost first.

    ``main`` is the main conversation while a tangent is open. ``lines``, ``checkpoints`` and ``kept`` are
    None if a view was loaded without them.
    """

    shown: ShownConversation
    open: tuple[BranchRow, ...]
    main: ShownConversation | None
    version: int = 0
    lines: dict[str, FileLineTracker] | None = None
    checkpoints: list[tuple[int, Checkpoint]] | None = None
    kept: list[KeptTangent] | None = None


def log_of(id: str, view: Viewed) -> MemoryLog:
    """Return a log of what a view shows: the main conversation, and the path to the head.

    If the path does not begin with what is loaded of the main conversation, both are logged whole.
    """
    log, shown, main, opened = MemoryLog(id), view.shown, view.main, list(view.open[::-1])
    # A tangent may begin before the one around it: of that one, the path has only what comes before both.
    ends = [*accumulate([tangent.fork_seq for tangent in view.open], min)][::-1]
    is_apart = main is not None and (
        main.first > ends[0] + 1 or (main.first, main.recalled) != (shown.first, shown.recalled)
    )
    if main is not None and is_apart:
        _Part(log, main, _in_force(main)).add()
        _begin(log, opened.pop(0), Position(1, 0))
        ends.pop(0)
    before = [*_in_force(shown), *_loaded_beyond(view)]
    part, begun = _Part(log, shown, before), 0
    for tangent, end in zip(opened, ends, strict=True):
        part.add(begun, end)
        place, begun = log.head, end
        if main is not None and not is_apart and tangent is opened[0]:
            _Part(log, main, before, is_there=True).add(end)
        _begin(log, tangent, place)
    part.add(begun)
    return log


def _in_force(shown: ShownConversation) -> list[Entry]:
    """Return what is in force from before the first entry; what a cut covers is not in the log."""
    return [_without_what_it_covers(one, shown) for one in shown.recalled if not is_clear(one)]


def _loaded_beyond(view: Viewed) -> Iterator[Entry]:
    """Return the checkpoints and the records of lines that a view has from before its first entry."""
    yield from (one for number, one in view.checkpoints or () if number < view.shown.first)
    for path, tracker in (view.lines or {}).items():
        if path not in view.shown.trackers:
            yield FileLines(path, tracker_to_json(tracker))


def _begin(log: MemoryLog, tangent: BranchRow, place: Position) -> None:
    fork = Fork(parent=place.branch, seq=place.seq, name=tangent.name, operation=TANGENT)
    log.apply(Effect(fork=fork), now=tangent.created)


class _Part:
    """A part of a path that is added to a log, after what is in force from `before`."""

    def __init__(
        self, log: MemoryLog, shown: ShownConversation, before: Sequence[Entry], *, is_there: bool = False
    ) -> None:
        self._log, self._placed = log, shown.placed
        self._here = {message.id for message in shown.fold.messages}
        self._numbers = {one.seq: len(before) + place for place, one in enumerate(shown.placed, start=1)}
        self._cut = next((place for place, one in enumerate(before, start=1) if isinstance(one, Cut)), 0)
        for entry in () if is_there else before:
            log.add(entry)

    def add(self, first: int = 0, last: int = END) -> None:
        """Add the entries after one number and up to another."""
        for one in self._placed:
            if first < one.seq <= last:
                entry = one.entry if one.entry is not None else Note(DAMAGED)
                if self._cut and isinstance(entry, Cut | Summary | Revert):
                    entry = Note("")  # the cut from before is in force, so nothing came of these
                elif isinstance(entry, Cut):
                    entry = _imported(entry, self._here)
                self._log.add(_renumbered(entry, self._number))

    def _number(self, of: int) -> int:
        return self._numbers.get(of, self._cut if of else 0)


def _without_what_it_covers(entry: Entry, shown: ShownConversation) -> Entry:
    """Return a cut from before a log that does not have what it covers; undo does not revert such a cut."""
    if not isinstance(entry, Cut):
        return entry
    if entry.asked:
        return _imported(entry, ())
    first = next(iter(shown.fold.messages), None)
    is_before = entry.kept_from is not None and shown.fold.place_of(entry.kept_from) is None
    return structs.replace(entry, kept_from=first.id) if is_before and first else entry


def _imported(cut: Cut, here: Container[MessageId]) -> Cut:
    """Return a compaction as an imported one unless the first message that it covers is here."""
    if not cut.asked or is_clear(cut) or cut.covers[0] in here:
        return cut
    kept_from = cut.kept_from if cut.kept_from in here else None
    return structs.replace(cut, kept_from=kept_from, covers=(MessageId(""), MessageId("")))


def _renumbered(entry: Entry, number: Callable[[int], int]) -> Entry:
    match entry:
        case Revert(at=at, former=former):
            return structs.replace(entry, at=number(at), former=number(former))
        case Tangent(undone=undone) if undone:
            return structs.replace(entry, undone=number(undone), branch=0)
        case Tangent(branch=branch) if branch:  # its branch is not in this log
            return structs.replace(entry, branch=0)
        case _:
            return entry
