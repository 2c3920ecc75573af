"""The log on the server: a change is one script, and a read fetches entries in answers of limited size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ...errors import AlreadyExists, InputError, NotFound, StoreDamaged, StoreError, StoreUnavailable
from ...threads import INLINE, off_loop
from ..admission import admitted
from ..ahead import FIRST, NEWEST, NEWEST_BYTES
from ..batches import Batches, is_plain
from ..values import MESSAGE, Address, BranchRow, Change, Receipt, Row, Span
from .faults import ReplyLost
from .layout import MOST, bucket_of, index_key, named, natural, packed, session_key, session_keys, text
from .losses import LossDetector, Sighting
from .rows import branch_rows, entry, known_key, packed_parcel, receipt, record_arguments, session
from .server import Server, script

MAX_ENTRIES = 1_000
MAX_BYTES = 4_000_000
"""Limits of one answer, unless a single entry is larger: the server does nothing else while it builds one."""

SWEEP_STEP = 1_000
"""Entries of a removed session that are swept at a time: a few milliseconds, during which others wait."""


class PipelinedAppends:
    """Sends changes; those made at the same time share a pipeline, but on a Cluster each is sent alone."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.batches = Batches[_AppendJob](self._alone, self._together)

    async def answer(self, change: Change, arguments: Sequence[bytes], until: float) -> list[Any]:
        """Send a change with its arguments, and return the server's answer."""
        self._server.owner.check()  # before it waits for a call that another process has in flight
        job = _AppendJob(session_keys(change.at), arguments, until)
        if self._server.is_cluster or not is_plain(change):
            return await self._alone(job)
        answer: list[Any] = await self.batches.answer(change.at, job)
        return answer

    async def _alone(self, job: _AppendJob) -> list[Any]:
        answer: list[Any] = await self._server.run(script("commit"), job.keys, job.arguments, until=job.until)
        return answer

    async def _together(self, jobs: Sequence[_AppendJob]) -> list[Any]:
        calls = [(job.keys, job.arguments) for job in jobs]
        return await self._server.run_each(script("commit"), calls, until=min(job.until for job in jobs))


class _AppendJob(NamedTuple):
    """The keys and arguments of a change, and when it times out."""

    keys: Sequence[bytes]
    arguments: Sequence[bytes]
    until: float


async def commit(server: Server, appends: PipelinedAppends, losses: LossDetector, change: Change) -> Receipt:
    """Apply a change as a whole, or raise the error of the first failed check and change nothing."""
    known = losses.known(change.at)
    answer = await _committed(server, appends, change, known)
    if answer[0] in (b"done", b"repeated"):
        got = receipt(answer[1:6], repeated=answer[0] == b"repeated")
        losses.wrote(change, got, born=int(answer[6]), known=known, gone=answer[7] == b"1")
        return got
    if answer[0] == b"refused":
        row = session(change.at, answer[1])
        admitted(row, change, known_key(answer[2]) if answer[2] else None)
        raise StoreError(
            f"the server refused a change of session {row.id} without giving a reason; report this as a bug"
        )
    raise refusal(change.at, answer)


async def _committed(
    server: Server, appends: PipelinedAppends, change: Change, known: Sighting | None
) -> list[Any]:
    """Run the script; if the answer is lost, run it again, provided that the change has a key.

    A known key returns the receipt of the first request. After any other answer it is still unknown whether
    the first request was applied, since the epoch may have ended in between.
    """
    until = server.deadline
    large = sum(len(record.body) for record in change.records) > INLINE
    arguments = await off_loop(lambda: _arguments(change, known), large=large)
    answer: list[Any]
    try:
        answer = await appends.answer(change, arguments, until)
    except ReplyLost as lost:
        if change.key is None:
            raise
        try:  # within the time of the first request: a caller waits for one timeout, not for two
            keys = session_keys(change.at)
            answer = await server.run(script("commit"), keys, arguments, twice=True, until=until)
        except StoreUnavailable:
            raise lost from None
        if answer[0] not in (b"done", b"repeated"):
            raise
    return answer


async def read(
    server: Server,
    at: Address,
    span: Span,
    *,
    limit: int | None,
    newest: bool,
    kinds: Sequence[str] | None,
) -> list[Row]:
    """Return the entries of a span in order; ``limit`` selects the first ones, or the newest."""
    keys, rows = session_keys(at), list[Row]()
    first, last = (_bounded(number) for number in span[1:])
    born, most = b"", b"" if limit is None else _bounded(limit)
    wanted = [] if kinds is None else [b"kinds", *(text(kind) for kind in set(kinds) - {MESSAGE})]
    while True:
        order = b"1" if newest else b"0"
        asked = [
            born,
            _bounded(span.branch),
            first,
            last,
            most,
            order,
            b"%d" % MAX_ENTRIES,
            b"%d" % MAX_BYTES,
            *wanted,
        ]
        answer = await server.run(script("read"), keys, asked, twice=True)
        if answer[0] == b"absent":
            raise refusal(at, answer)
        born, first, last, found = answer
        rows += [entry(at, *columns) for columns in found]
        if int(first) > int(last):
            return rows
        most = b""  # the first answer has turned the limit into a first and a last number


async def find(server: Server, at: Address, ids: Sequence[str]) -> list[Row]:
    """Return the entries with these ids, in log order."""
    wanted = sorted({text(id) for id in ids})
    places = list[bytes]()
    for start in range(0, len(wanted), MAX_ENTRIES):
        some = wanted[start : start + MAX_ENTRIES]
        places += [place for place in await server.ask("HMGET", session_key(at, b"id"), *some) if place]
    rows = await rows_at(server, at, places)
    return sorted((row for row in rows if row.id in ids), key=lambda row: (row.branch, row.seq))


async def newest(server: Server, at: Address, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Row]:
    """Return the newest entry of each kind on a path; its newest span comes first."""
    names = list(dict.fromkeys(kinds))
    asked = [b"%d" % len(spans), *(_bounded(number) for span in spans for number in span)]
    asked += [text(name) for name in names]
    answer = await server.run(script("newest"), session_keys(at), asked, twice=True)
    if answer[0] == b"absent":
        raise refusal(at, answer)
    found = zip(names, answer[1], strict=True)
    return {name: entry(at, *columns) for name, columns in found if columns}


async def ahead(
    server: Server, at: Address, kinds: Sequence[str]
) -> tuple[list[bytes], list[Row], dict[str, Row | None]]:
    """Return the fields of a session, rows of its branch, and the newest row of each given kind."""
    asked = [*(b"%d" % most for most in (FIRST, NEWEST, NEWEST_BYTES)), *map(text, kinds)]
    answer = await server.run(script("ahead"), session_keys(at), asked, twice=True)
    if answer[0] == b"absent":
        raise refusal(at, answer)
    _, flat, marks, early, late = answer
    rows = [entry(at, *columns) for columns in (*early, *late)]
    found = zip(kinds, marks, strict=True)
    return flat, rows, {kind: entry(at, *columns) if columns else None for kind, columns in found}


async def branches(server: Server, at: Address) -> list[BranchRow]:
    """Return all branches of a session in the order of their creation."""
    answer = await server.run(script("branches"), session_keys(at), twice=True)
    if answer[0] == b"absent":
        raise refusal(at, answer)
    _, head, seq, count, entries, flat = answer
    return branch_rows(at, flat, head=head, seq=seq, count=count, entries=entries)


async def rows_at(server: Server, at: Address, places: Iterable[bytes]) -> list[Row]:
    """Return the entries at the given places of a session, or raise `NotFound` if the session is missing."""
    keys, rest, rows = session_keys(at), list(places), list[Row]()
    while True:
        some = rest[:MAX_ENTRIES]
        answer = await server.run(script("places"), keys, [b"%d" % MAX_BYTES, *some], twice=True)
        if answer[0] == b"absent":
            raise refusal(at, answer)
        rows += [entry(at, *columns) for columns in answer[1]]
        rest = rest[len(answer[1]) :]
        if not rest:
            return rows


async def sweep(server: Server, at: Address) -> None:
    """Remove the words of a deleted session from the lists, a step at a time."""
    keys = [index_key(bucket_of(at)), session_key(at, b"gone")]
    asked = [named(at.tenant), text(at.session), b"%d" % SWEEP_STEP]
    while await server.run(script("sweep"), keys, asked, twice=True):
        pass


def refusal(at: Address, answer: Sequence[bytes]) -> Exception:
    """Return the error for a script's refusal."""
    why, *details = (piece.decode(errors="replace") for piece in answer)
    match why, details:
        case "absent", _:
            return NotFound(f"there is no session {at.session}")
        case "there", _:
            return AlreadyExists(f"session {at.session} already exists")
        case "id taken", [id]:
            return AlreadyExists(f"session {at.session} already has an entry {id}")
        case "no branch", [branch]:
            return NotFound(f"session {at.session} has no branch {branch}")
        case "no entry", [branch, seq]:
            return NotFound(f"branch {branch} of session {at.session} has no entry {seq}")
        case "foreign parcel", [id]:
            return InputError(f"the parcel {id} belongs to another session than {at.session}, which sends it")
        case "beyond", _:
            return InputError(f"the tokens of session {at.session} would add up to more than 53 bits")
        case "damaged", _:
            return StoreDamaged(f"session {at.session} is damaged; run `turnstate verify`")
    return StoreError(f"session {at.session}: the server answered {why!r:.80}")


def _bounded(number: int) -> bytes:
    """Encode a number, and clamp it if it is out of range."""
    return b"%d" % min(max(number, -MOST), MOST)


def _arguments(change: Change, known: Sighting | None) -> list[bytes]:
    """Return the arguments of the script for a change."""
    at = change.at
    asked: dict[str, Any] = {
        "tenant": named(at.tenant).decode(),
        "session": at.session,
        "now": natural(change.now),
        "key_life": change.key_life,
        "moves": change.moves_path,
        "activity": change.is_activity,
        "next_epoch": change.next_epoch,
        "records": len(change.records),
    } | _conditions(change)
    if known and known.own:
        branch, seq = known.own.place
        asked["known"] = (str(known.born), known.own.id, f"{branch}:{seq}")
    digest = change.key.digest if change.key else b""
    return [packed(asked), digest, *record_arguments(at, change.records), *_parcel_arguments(change)]


def _conditions(change: Change) -> dict[str, Any]:
    """Return the optional conditions and actions that a change has."""
    given: dict[str, Any] = {
        "created": change.created,
        "epoch": change.epoch,
        "fence": change.fence,
        "version": change.expected_version,
        "head": change.expected_head,
        "select": change.select,
        "key": change.key and change.key.name,
        "end": change.end,
    }
    if fork := change.fork:
        made = {"seq": fork.seq, "name": fork.name, "operation": fork.operation}
        given["fork"] = made if fork.parent is None else made | {"parent": fork.parent}
    return {name: value for name, value in given.items() if value is not None}


def _parcel_arguments(change: Change) -> list[bytes]:
    """Return the arguments for parcels; one of another session gets no time, so the script refuses it."""
    arguments = list[bytes]()
    for parcel in change.parcels:
        due = b"%d" % natural(parcel.due) if (parcel.tenant, parcel.session) == change.at else b""
        arguments += (text(parcel.id), due, packed_parcel(parcel))
    return arguments
