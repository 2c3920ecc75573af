"""Names are safe for every session id, never shared, and sort as they were given."""

from __future__ import annotations

import os
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnstate.home import SigningKey
from turnstate.snapshots.folder import file_name, folder_name, is_own, newest_first, next_number

KEY, OTHER = SigningKey(b"k" * 32), SigningKey(b"o" * 32)
HOSTILE = [
    "",
    ".",
    "..",
    "../x",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "a\0b",
    "x" * 300,
    "x" * 80,
    "X",
    "x",
    "é",
    "e\u0301",
    "É",
    "\ud7ff",
    "日本",
    "-rf",
    "=x",
    "x.json",
    "x ",
    " x",
    "x\n",
    "CON",
    "~",
    "=" + "0" * 64,
    "%2e%2e",
    "ſ",
    "s",
    "K",
    "k",
]
ids = st.text(st.characters(exclude_categories=["Cs"]), max_size=300) | st.sampled_from(HOSTILE)


def as_a_careless_disk_sees_it(name: str) -> str:
    return unicodedata.normalize("NFKC", name.casefold())


@pytest.mark.req("H2")
@given(ids)
@example("\0" * 300)
def test_a_folder_name_stays_inside_and_is_short(session: str) -> None:
    name = folder_name(session)
    assert name not in ("", ".", "..")
    assert os.path.basename(name) == name
    assert name.isascii()
    assert name.isprintable()
    assert len(name) <= 80
    assert not name.startswith((".", "-", "~"))


@pytest.mark.req("H2")
@given(ids, ids)
def test_two_sessions_never_share_a_folder_also_where_case_and_accents_do_not_count(a: str, b: str) -> None:
    same = as_a_careless_disk_sees_it(folder_name(a)) == as_a_careless_disk_sees_it(folder_name(b))
    assert same == (a == b)


@pytest.mark.req("H2")
def test_none_of_the_hostile_ids_share_a_folder() -> None:
    assert len({as_a_careless_disk_sees_it(folder_name(one)) for one in HOSTILE}) == len(set(HOSTILE))


@given(ids)
def test_an_id_that_looks_like_the_folder_of_another_has_a_folder_of_its_own(session: str) -> None:
    taken = folder_name(session)
    assert taken == session or folder_name(taken) != taken


def test_a_minted_id_names_its_folder_itself() -> None:
    assert folder_name("0198c0de-0000-7000-8000-000000000001") == "0198c0de-0000-7000-8000-000000000001"


@pytest.mark.req("H2")
@given(st.integers(0, 10**13), st.integers(0, 10**13))
def test_file_names_sort_by_number(a: int, b: int) -> None:
    one, two = (file_name(n, session="s", key=KEY) for n in (a, b))
    assert one != two
    assert a == b or (one < two) == (a < b)
    assert a == b or newest_first([one, two])[0] == (one if a > b else two)


@pytest.mark.req("H2")
@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=20))
def test_the_last_written_is_the_newest_whatever_the_clock_says(clock: list[int]) -> None:
    written: list[str] = []
    for now in clock:
        written.append(file_name(next_number(written, now=now), session="s", key=KEY))
        assert newest_first(written)[0] == written[-1]
    assert newest_first(written) == written[::-1]


@pytest.mark.req("H4")
def test_only_this_installation_gives_names_that_it_takes_for_its_own() -> None:
    name = file_name(5, session="s", key=KEY)
    assert is_own(name, session="s", key=KEY)
    assert not is_own(name, session="s", key=OTHER)
    assert not is_own(name, session="t", key=KEY)
    assert not is_own(name, session="s", key=None)
    assert not is_own(name.replace("5", "6", 1), session="s", key=KEY)
    assert not is_own("9" * 16 + name[16:], session="s", key=KEY)
    assert not is_own("notes.json", session="s", key=KEY)
    assert not is_own("٥" * 16 + name[16:], session="s", key=KEY)


def test_names_of_another_form_come_last() -> None:
    name = file_name(0, session="s", key=KEY)
    assert newest_first(["zzz.json", name, "9.json"]) == [name, "zzz.json", "9.json"]
