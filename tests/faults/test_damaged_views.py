"""No view of a damaged store is silently incomplete, whichever page of whichever tree is damaged.

First every page of every tree is emptied in turn, of indexes and of tables. SQLite accepts an empty page
and finds less, without an error. After that pages are changed at random.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from tests.faults.damage import PAGE
from tests.faults.store_views import VIEWS, Truth
from tests.harness.thoroughness import LONG, report, rng, runs

QUICK = 10  # pages that the quick version empties
MEMORY = Path("/dev/shm")
WORDS = "word_data"
"""Lists of the messages that hold a word. Nothing else says which do, so a search cannot tell that a list
was changed inside; a check of the store can.
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="turnstate-", dir=MEMORY if MEMORY.is_dir() else None) as path:
        yield Path(path)


@pytest.fixture(scope="module")
def truth(folder: Path) -> Truth:
    return Truth(folder / "template", indexed=True)


@pytest.fixture(scope="module")
def not_indexed(folder: Path) -> Truth:
    return Truth(folder / "not indexed", indexed=False)


def sampled(pages: list[tuple[str, int, str]], random: Random) -> list[tuple[str, int, str]]:
    """Return all pages in the long version; in the quick one, some, of different kinds or trees."""
    if LONG:
        return pages
    random.shuffle(pages)
    seen = Counter[tuple[str, str]]()
    chosen = list[tuple[str, int, str]]()
    for name, page, kind in pages:
        seen[name, kind] += 1
        if seen[name, kind] <= 1:
            chosen.append((name, page, kind))
    return chosen[:QUICK]


def test_no_view_is_silently_incomplete_when_a_page_is_emptied(
    truth: Truth, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    pages = sampled([page for page in truth.pages() if page[1] != 1], rng("emptied pages"))
    wrong = [
        f"{name} page {page} ({kind}): {what}"
        for name, page, kind in pages
        for what in truth.silently_wrong(folder / "run", truth.emptied(page))
    ]
    report(record_property, "emptied pages", pages=len(pages), views=len(VIEWS), silent=len(wrong))
    assert wrong == []


def test_no_search_is_silently_incomplete_when_a_page_is_emptied_that_was_not_indexed_yet(
    not_indexed: Truth, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    pages = [page for page in not_indexed.pages() if page[0] in ("entry", "sqlite_sequence", "word_docsize")]
    pages = sampled(pages, rng("emptied pages that were not indexed"))
    wrong = [
        f"{name} page {page} ({kind}): {what}"
        for name, page, kind in pages
        for what in not_indexed.silently_wrong(folder / "run", not_indexed.emptied(page))
    ]
    report(record_property, "emptied pages that were not indexed", pages=len(pages), silent=len(wrong))
    assert wrong == []


def changed(page: int, random: Random) -> list[tuple[int, bytes]]:
    """Return a change of bytes of a page: one anywhere, one of its header, or a short run."""
    place, how = (page - 1) * PAGE, random.randrange(3)
    if how == 0:
        return [(place + random.randrange(PAGE), random.randbytes(1))]
    if how == 1:
        return [(place + random.randrange(8), random.randbytes(1))]
    return [(place + random.randrange(PAGE - 16), random.randbytes(random.randrange(2, 16)))]


def test_no_view_is_silently_incomplete_when_bytes_of_a_page_change(
    truth: Truth, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    random, count = rng("changed pages"), runs(6, long=2_000)
    pages = [page for page in truth.pages() if page[1] != 1]
    wrong = list[str]()
    for _ in range(count):
        tree = random.choice(sorted({name for name, _, _ in pages}))
        name, page, kind = random.choice([one for one in pages if one[0] == tree])
        edits = changed(page, random)
        wrong += [
            f"{name} page {page} ({kind}) {edits}: {what}"
            for what in truth.silently_wrong(folder / "run", edits)
            if not (name == WORDS and what.startswith("search"))
        ]
    report(record_property, "changed pages", runs=count, views=len(VIEWS), silent=len(wrong))
    assert wrong == []
