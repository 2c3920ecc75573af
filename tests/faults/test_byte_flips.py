"""Any byte of a file may change: everything is served as it was, or the fault is reported; nothing is false.

A changed byte of the WAL ends it there, and what was committed later is lost. Verification reports that,
unless it is the last commit, which looks as if a power cut had torn it before it was acknowledged.

`make test` flips a few bytes at random, `make faults` hundreds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.harness.thoroughness import SEED, rng, runs
from tests.unit.stores.verification_fixtures import MANY, everything, furnish_more, left_open, run, verified
from turnstate.errors import TurnstateError
from turnstate.stores.sqlite import log, writer
from turnstate.stores.values import Finding

pytestmark = pytest.mark.req("G5", "G6")

FALSE = "FALSE"
PER_COMMIT = 6  # entries that each of the last commits brought

Rows = dict[Any, Any]


@pytest.fixture(autouse=True)
def _never_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing write to the file in between, so that it can be compared."""
    monkeypatch.setattr(writer, "IDLE", 3_600)


class Store:
    """A store's files, and what is in it."""

    def __init__(self, path: Path, *, was_closed: bool) -> None:
        self.path, self.log = path, path.with_name(f"{path.name}-wal")
        if was_closed:
            run(path, furnish_more)
        else:
            left_open(path, furnish_more)
        self.files = {one: one.read_bytes() for one in path.parent.iterdir()}
        self.whole = run(path, everything)

    def restore(self) -> None:
        """Put the files back as they were."""
        for one in self.path.parent.iterdir():
            one.unlink()
        for one, data in self.files.items():
            one.write_bytes(data)

    def used(self, file: Path) -> int:
        """Return the length of a file without the zeros that a WAL is grown by."""
        return len(self.files[file].rstrip(b"\0"))

    def flip(self, file: Path, place: int, by: int) -> None:
        """Put the files back, and change one byte."""
        self.restore()
        data = bytearray(self.files[file])
        data[place] ^= by
        file.write_bytes(data)

    def served(self) -> tuple[Rows, bool]:
        """Return what is served, and whether a fault was reported."""
        rows, reported = Rows(), False
        try:
            rows = run(self.path, everything)
        except TurnstateError:
            reported = True
        return rows, bool(self.checked(repair=False)) or reported

    def checked(self, *, repair: bool) -> list[Finding]:
        """Return the findings of a check; a file that is refused is one."""
        try:
            return verified(self.path, repair=repair)
        except TurnstateError as error:
            return [Finding(fault=f"refused: {error}")]

    def received(self) -> str:
        """Return how a changed file was received."""
        rows, reported = self.served()
        sound = {place: row for place, row in rows.items() if not row.damaged}
        if any(content(row) != content(self.whole.get(place)) for place, row in sound.items()):
            return FALSE
        if rows == self.whole:
            return "served whole, and reported" if reported else "served whole"
        if reported:
            return "served in part, and reported" if sound else "refused"
        return "shorter" if is_shorter(rows, self.whole) else FALSE

    def repaired(self) -> str:
        """Repair a changed file, and return the outcome."""
        found = self.checked(repair=True)
        if not found:
            return "nothing to repair"
        if found[0].fault.startswith("refused"):
            return "refused"
        copy = self.path.with_name(f"{self.path.name}.salvaged")
        path = copy if copy.exists() else self.path
        rows = run(path, everything)
        false = [place for place, row in rows.items() if content(row) != content(self.whole.get(place))]
        if verified(path) or any(rows[place].kind != "note" or rows[place].damaged for place in false):
            return FALSE
        return "salvaged" if copy.exists() else "repaired in place"


def content(row: Any) -> Any:
    """Return what an entry contains; wrong sums are reported by a check."""
    return row and (row.branch, row.seq, row.id, row.kind, row.body)


def is_shorter(rows: Rows, whole: Rows) -> bool:
    """Return True if only the last commit is missing."""
    missing = sorted(seq for at, _, seq in whole.keys() - rows.keys() if at == MANY)
    return len(missing) == len(whole) - len(rows) == PER_COMMIT and missing[-1] == max(
        seq for at, _, seq in whole if at == MANY
    )


def flips(store: Store, file: Path, count: int) -> Counter[str]:
    """Change bytes at random places; count how each was received, and print what was not as it should be."""
    random, counts = rng(file.name), Counter[str]()
    for _ in range(count):
        place, by = random.randrange(store.used(file)), random.randrange(1, 256)
        store.flip(file, place, by)
        outcome = store.received()
        counts[outcome] += 1
        repair = store.repaired() if outcome != FALSE and file == store.path else ""
        if repair:
            counts[repair] += 1
        if FALSE in (outcome, repair):
            print(f"byte {place} of {file.name} ^ {by}, TURNSTATE_SEED={SEED}: {outcome}, {repair}")
    return counts


def test_a_changed_byte_of_the_file_is_harmless_or_reported(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    store = Store(tmp_path / "agent.db", was_closed=True)
    counts = flips(store, store.path, runs(20, long=1_500))
    record_property("counted", ("changed bytes of the file", dict(counts)))
    assert counts[FALSE] == counts["shorter"] == 0


def test_a_changed_byte_of_the_wal_is_harmless_or_reported(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    store = Store(tmp_path / "agent.db", was_closed=False)
    counts = flips(store, store.log, runs(12, long=800))
    record_property("counted", ("changed bytes of the WAL", dict(counts)))
    assert counts[FALSE] == 0
    assert counts["served in part, and reported"] > 0


def test_only_the_last_commit_can_be_lost_unseen(tmp_path: Path) -> None:
    store = Store(tmp_path / "agent.db", was_closed=False)
    for by in (1, 0x80):
        store.flip(store.log, store.used(store.log) - 5, by)
        assert store.received() == "shorter"
        assert len(store.whole) - len(run(store.path, everything)) == PER_COMMIT


def test_a_store_that_trusts_its_bytes_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, read = Store(tmp_path / "agent.db", was_closed=True), log.entry_row
    monkeypatch.setattr(log, "entry_row", lambda columns: structs.replace(read(columns), damaged=False))
    store.flip(store.path, store.files[store.path].index(b"lorem ipsum"), 1)
    assert store.received() == FALSE


def test_a_check_that_finds_nothing_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "agent.db", was_closed=True)
    monkeypatch.setattr(store, "checked", lambda **_: [])
    monkeypatch.setattr(log, "rows_around", lambda *_, **__: [])
    data = store.files[store.path]
    outcomes = set[str]()
    for page in range(1, len(data) // 4096):  # the kind of the page, and the number of its cells
        store.flip(store.path, page * 4096 + 4, 0x0F)
        outcomes.add(store.received())
    assert FALSE in outcomes or "shorter" in outcomes
