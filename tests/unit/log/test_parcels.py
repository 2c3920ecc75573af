from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from turnstate.errors import InvalidPayload, NewerFormat, UnknownName
from turnstate.log.records import Ending, Eviction, contents
from turnstate.stores.values import Address, Parcel, Position

HERE = Address("default", "s1")
ENDING = Ending(epoch=3, branch=2, seq=40, last="m40", user="u1", reason="reset", started=1_000, ended=9_000)
EVICTION = Eviction(epoch=3, branch=2, seq=41, cut="cut1", first="m1", last="m20", summary="Weather.")

pytestmark = pytest.mark.req("F3")


@pytest.mark.parametrize("inside", [ENDING, structs.replace(ENDING, user=None), EVICTION])
def test_what_was_wrapped_is_unwrapped(inside: Ending | Eviction) -> None:
    parcel = inside.parcel(HERE, due=5)
    assert contents(parcel) == inside
    assert (parcel.tenant, parcel.session, parcel.due, parcel.tries) == ("default", "s1", 5, 0)
    assert parcel.kind == ("ingest" if isinstance(inside, Ending) else "archive")


def test_the_id_names_the_event_so_that_it_is_one_parcel_however_often_it_is_put_in() -> None:
    again = structs.replace(ENDING, reason="idle", ended=10_000)
    assert ENDING.parcel(HERE, due=5).id == again.parcel(HERE, due=6).id == "ingest:default:s1:3:m40"
    assert EVICTION.parcel(HERE, due=5).id == "archive:default:s1:3:cut1"


names = st.text(st.sampled_from("a:%/\n\0é日 "), max_size=6)
events = st.tuples(names, names, st.integers(1, 12), names)


@given(events, events)
def test_hostile_names_do_not_make_two_events_one(first: tuple, second: tuple) -> None:  # type: ignore[type-arg]
    ids = [
        structs.replace(ENDING, epoch=epoch, last=last).parcel(Address(tenant, session), due=0).id
        for tenant, session, epoch, last in (first, second)
    ]
    assert (ids[0] == ids[1]) == (first == second)
    assert all(id.isascii() and id.isprintable() and " " not in id for id in ids)


def test_places_in_the_log_are_positions() -> None:
    assert (ENDING.head, EVICTION.head) == (Position(2, 40), Position(2, 41))


def parcel(kind: str, body: bytes) -> Parcel:
    return Parcel(id="p1", tenant="default", session="s1", kind=kind, body=body, due=0)


def test_a_newer_parcel_is_refused() -> None:
    body = msgspec.json.encode({"version": 2, "whatever": "is new"})
    with pytest.raises(NewerFormat, match="p1 has version 2"):
        contents(parcel("ingest", body))


def test_a_parcel_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UnknownName, match="p1 is of an unknown kind 'parrot'"):
        contents(parcel("parrot", b"{}"))


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"epoch":"one"}', b"\xff"])
def test_a_damaged_parcel_is_a_typed_error(body: bytes) -> None:
    with pytest.raises(InvalidPayload, match="p1 cannot be read"):
        contents(parcel("ingest", body))
