"""Minted ids are unique and sorted; derived ids follow from position and content; times are UTC."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from uuid import RFC_4122, UUID

import pytest

from turnstate import ids
from turnstate.message import is_timestamp

EVERY_PROVIDER = re.compile(r"[a-zA-Z0-9_-]{1,40}")
"""The alphabet and length that no provider refuses for the id of a call."""


def uuid_of(id: str) -> UUID:
    return UUID(id.removeprefix("call_"))


@pytest.mark.req("A4")
@pytest.mark.parametrize("mint", [ids.message_id, ids.call_id])
def test_a_minted_id_is_a_uuid_of_version_7_with_the_present_moment(mint: Callable[[], str]) -> None:
    id = uuid_of(mint())
    assert (id.version, id.variant) == (7, RFC_4122)
    later = uuid_of(mint())
    assert 0 <= (later.int >> 80) - (id.int >> 80) < 60_000


@pytest.mark.req("A4")
def test_a_hundred_thousand_ids_are_unique_and_sorted_as_they_were_minted() -> None:
    minted = [ids.message_id() for _ in range(100_000)]
    assert len(set(minted)) == len(minted)
    assert minted == sorted(minted)
    milliseconds = {uuid_of(id).int >> 80 for id in minted}
    assert len(milliseconds) < len(minted)  # many were minted within one millisecond


@pytest.mark.req("A4")
def test_messages_and_calls_share_one_order() -> None:
    mints = [ids.message_id, ids.call_id] * 500
    minted = [uuid_of(mint()) for mint in mints]
    assert minted == sorted(minted)


@pytest.mark.req("A4")
def test_ids_stay_sorted_when_the_clock_runs_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ids.message_id()
    for nanoseconds in (0, 5_000_000, 1_000_000):
        monkeypatch.setattr("time.time_ns", lambda moment=nanoseconds: moment)
        later = ids.message_id()
        assert later > before
        before = later


@pytest.mark.req("A4")
def test_threads_never_mint_the_same_id_and_each_sees_its_own_in_order() -> None:
    minted: list[list[str]] = [[] for _ in range(8)]

    def work(mine: list[str]) -> None:
        mine.extend(ids.call_id() for _ in range(5_000))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in minted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id for mine in minted for id in mine}) == 40_000
    assert all(mine == sorted(mine) for mine in minted)


@pytest.mark.req("A4")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_child_of_a_fork_mints_even_if_a_thread_was_minting() -> None:
    with ids._ticks._lock:  # as a thread may hold it at the moment of the fork
        child = os.fork()
        if child == 0:
            signal.alarm(10)  # a child that waits for the lock dies of this
            ids.message_id()
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.req("A4")
def test_derived_ids_are_the_same_for_the_same_position_and_content() -> None:
    assert ids.derived_id(3, b"a", b"b") == ids.derived_id(3, b"a", b"b")
    assert ids.derived_id(0, b"hello") == "00000000-0000-826f-8c51-2af09ca87e1b"  # on every machine, for ever
    assert ids.derived_call_id(0, b"hello") == "call_000000000000826f8c512af09ca87e1b"


@pytest.mark.req("A4")
def test_derived_ids_differ_by_position_by_content_and_by_where_the_content_is_split() -> None:
    variants = [(0, b"ab"), (1, b"ab"), (0, b"a", b"b"), (0, b"", b"ab"), (0, b"ab", b""), (0,), (0, b"")]
    assert len({ids.derived_id(*variant) for variant in variants}) == len(variants)


@pytest.mark.req("A4")
def test_derived_ids_sort_by_position() -> None:
    positions = [0, 1, 9, 10, 99, 255, 256, 65_535, 65_536, 10**6, 2**40, 2**48 - 1]
    for derive in (ids.derived_id, ids.derived_call_id):
        derived = [derive(position, str(position).encode()) for position in positions]
        assert derived == sorted(derived)


@pytest.mark.req("A4")
def test_derived_ids_are_uuids_of_version_8_so_none_was_ever_minted() -> None:
    for position in range(200):
        id = UUID(ids.derived_id(position, os.urandom(8)))
        assert (id.version, id.variant) == (8, RFC_4122)


@pytest.mark.req("A4")
def test_every_provider_takes_the_id_of_a_call_as_it_stands() -> None:
    for position in range(200):
        assert EVERY_PROVIDER.fullmatch(ids.call_id())
        assert EVERY_PROVIDER.fullmatch(ids.derived_call_id(position, os.urandom(8)))


@pytest.mark.req("A7")
def test_now_is_a_timestamp_in_utc_with_milliseconds() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", ids.now())
    assert is_timestamp(ids.now())
    assert is_timestamp(ids.UNKNOWN_TIME)


@pytest.mark.req("A7")
@pytest.mark.parametrize(
    "text",
    [
        "2024-02-29T23:59:59Z",
        "2024-01-01T00:00:00.1Z",
        "2024-01-01T00:00:00.123456789Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999Z",
    ],
)
def test_a_moment_in_utc_is_a_timestamp(text: str) -> None:
    assert is_timestamp(text)


@pytest.mark.req("A7")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "Z",
        "2024-01-01",
        "2024-01-01T00:00:00",
        "2024-01-01T00:00Z",
        "2024-01-01 00:00:00Z",
        "2024-01-01t00:00:00z",
        "2024-01-01T00:00:00+00:00",
        "2024-01-01T01:00:00+01:00",
        "2024-01-01T00:00:00.Z",
        "2024-01-01T00:00:00,5Z",
        "2024-01-01T00:00:00.1234567890Z",
        "2024-01-01T00:00:00.12345678xZ",
        "2024-01-01T00:00:00.12345678٣Z",
        "2024-01-01T00:00:00ZZ",
        "2024-01-01T00:00:00Z\n",
        " 2024-01-01T00:00:00Z",
        "2023-02-29T00:00:00Z",
        "2024-13-01T00:00:00Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:60:00Z",
        "2024-01-01T00:00:61Z",
        "0000-01-01T00:00:00Z",
        "2024-W01-1T00:00:00Z",
        "20240101T000000Z",
        "٢٠٢٤-٠١-٠١T00:00:00Z",
        "1704067200000",
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert not is_timestamp(text)
