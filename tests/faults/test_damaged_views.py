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
from damage import PAGE
from store_views import VIEWS, Truth
from thoroughness import LONG, report, rng, runs

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
    return Truth(folder / "template")


def sampled(pages: list[tuple[str, int, str]], random: Random) -> list[tuple[str, int, str]]:
    """Return all pages in the long version; in the quick one, one page of each kind in each tree."""
    if LONG:
        return pages
    random.shuffle(pages)
    seen = Counter[tuple[str, str]]()
    chosen = list[tuple[str, int, str]]()
    for name, page, kind in pages:
        seen[name, kind] += 1
        if seen[name, kind] <= 1:
            chosen.append((name, page, kind))
    return chosen


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
    random, count = rng("changed pages"), runs(12, long=2_000)
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
