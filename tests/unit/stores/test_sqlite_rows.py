"""Rows: what is stored of an entry is shorter than the entry, and always gives it back."""

from __future__ import annotations

from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from turnstate import Message
from turnstate.codec import encode
from turnstate.stores.sqlite.rows import entry_row, entry_values
from turnstate.stores.values import Record

UUIDS = st.uuids().map(str)
IDS = st.one_of(
    UUIDS,
    UUIDS.map(str.upper),
    UUIDS.map(lambda id: id.replace("-", " ")),
    UUIDS.map(lambda id: id.replace("-", "")),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40),
)


@st.composite
def records(draw: st.DrawFn) -> Record:
    id = draw(IDS)
    beginning = draw(st.sampled_from(["", "{", "\0", '"', '{"id":"', f'{{"id":"{id}",', f'{{"id":"{id}"']))
    body = beginning.encode() + draw(st.one_of(st.just(b'"role":"user"}'), st.binary(max_size=9)))
    kind = draw(st.sampled_from(["message", "note", "0", "1"]))
    return Record(id=id, kind=kind, body=body, tokens=draw(st.integers(0, 9)))


@given(records())
def test_every_entry_is_read_as_it_was_written(record: Record) -> None:
    row = entry_row(entry_values(7, 1, 3, 40, record))
    assert (row.id, row.kind, row.body, row.tokens) == (record.id, record.kind, record.body, record.tokens)
    assert (row.branch, row.seq, row.total, row.damaged) == (1, 3, 40, False)


def test_a_message_is_stored_without_its_id_and_the_id_as_sixteen_bytes() -> None:
    message = Message.user("hello", id=str(uuid4()))
    body = encode(message)
    record = Record(id=message.id, kind="message", body=body)
    id, kind, stored = entry_values(7, 1, 3, 40, record)[3:6]
    assert (len(id), kind, len(stored)) == (16, 0, len(body) - len(f'{{"id":"{message.id}",'))
