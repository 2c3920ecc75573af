"""What is written and read in steps is what one call writes and reads, whatever the values hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate import Message, ToolCallRequest, ToolCallResult, codec, long_json, strict_json
from turnstate.entry import Note, Prompt
from turnstate.errors import TurnstateError

STEP = 32  # characters, so that ordinary examples are long
TEXTS = (
    "a",
    " ",
    "\n",
    '"',
    "\\",
    "\0",
    "\x7f",
    "é",
    "数",
    "\u2028",
    "👩‍👧🎉",
    '"\\',
    "\\u",
    "\\ud83d",
    "ok 1\n",
    ":,[]{}",
)
SORTED = msgspec.json.Encoder(order="sorted")

texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    st.lists(st.sampled_from(TEXTS), max_size=80).map("".join),
    st.builds(
        lambda unit, times, end: unit * times + end,
        st.sampled_from(TEXTS),
        st.integers(0, 100),
        st.text("a\\"),
    ),
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars,
    lambda some: st.lists(some, max_size=12) | st.dictionaries(texts, some, max_size=6),
    max_leaves=25,
)


@pytest.fixture(autouse=True, scope="module")
def short_steps() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_json, "LONG", STEP)
        yield


def escaped(data: bytes) -> bytes:
    """Write a document with escapes for all that is not ASCII, as other writers do."""
    return "".join(
        c if c.isascii() else "".join(f"\\u{int.from_bytes(u, 'big'):04X}" for u in _units(c))
        for c in data.decode()
    ).encode()


def _units(character: str) -> list[bytes]:
    data = character.encode("utf-16-be")
    return [data[start : start + 2] for start in range(0, len(data), 2)]


def outcome(read: Any, data: bytes) -> Any:
    try:
        return read(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, TurnstateError) as error:
        return type(error), str(error)


@given(values)
def test_bytes_and_values_are_those_of_one_call(value: Any) -> None:
    data = msgspec.json.encode(value)
    assert long_json.encode(value) == data
    assert long_json.encode(value, SORTED) == SORTED.encode(value)
    for written in (data, escaped(data), msgspec.json.format(data), b" \n" + data + b" "):
        plain = msgspec.json.decode(written)
        assert msgspec.json.encode(long_json.decode(written)) == msgspec.json.encode(plain)
        assert msgspec.json.encode(long_json.decode(written, strict_json.read)) == msgspec.json.encode(plain)
    assert long_json.indented(data, 2) == msgspec.json.format(data, indent=2)


@given(values, texts, st.dictionaries(texts.filter(bool), values, max_size=3))
def test_messages_and_entries_are_those_of_one_call(value: Any, text: str, args: dict[str, Any]) -> None:
    call = ToolCallRequest(name="run", args=args)
    for message in (
        Message.user(text),
        Message.assistant(text, tool_calls=[call]),
        Message.tool([ToolCallResult(tool_call_id=call.id, result=one) for one in (value, text)]),
    ):
        data = codec.encode(message)
        assert data == msgspec.json.encode(message)
        assert codec.decode(data) == message
        newer = data[:-1] + b',"newer":' + msgspec.json.encode({"said": text}) + b"}"
        assert codec.encode(codec.decode(newer)) == newer
    for said in (Prompt(text), Note(text, lines=(text, ""))):
        assert codec.encode(said) == msgspec.json.encode(said)
        assert codec.decode_entry(codec.kind_of(said), codec.encode(said)) == said


@given(values, st.data())
def test_damaged_bytes_get_the_error_of_one_call(value: Any, data: st.DataObject) -> None:
    whole = bytearray(msgspec.json.encode([value, "x" * STEP, "\n数" * STEP]))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    damaged = bytes(whole)
    for read in (msgspec.json.Decoder().decode, strict_json.read):
        found = outcome(lambda given, read=read: long_json.decode(given, read), damaged)
        assert repr(found) == repr(outcome(read, damaged))
    assert repr(outcome(long_json.decode, damaged)) == repr(outcome(msgspec.json.decode, damaged))


@pytest.mark.parametrize("read", [msgspec.json.Decoder().decode, strict_json.read])
def test_a_long_key_that_stands_twice_is_read_as_by_one_call(read: Any) -> None:
    key = b'"' + b"k" * STEP * 2 + b'"'
    data = b"{%b:1,%b:2}" % (key, key)
    assert outcome(lambda given: long_json.decode(given, read), data) == outcome(read, data)
    assert outcome(long_json.decode, data) == msgspec.json.decode(data)


@pytest.mark.parametrize(
    "unit",
    [
        "\\ud83d\\ude00",
        "\\uD83D\\uDE00",
        "\\\\",
        '\\"',
        '\\\\\\"',
        "\\u0000",
        "a\\n",
        "👩",
        "é",
        "\\ud83d\\ude00\\\\",
    ],
)
@pytest.mark.parametrize("before", range(14))
def test_a_text_is_never_cut_within_a_character(unit: str, before: int) -> None:
    data = f'["{"x" * before}{unit * 60}",1]'.encode()
    seen = list[bytes]()

    def read(document: bytes) -> Any:
        seen.append(document)
        return msgspec.json.decode(document)

    assert long_json.decode(data, read) == msgspec.json.decode(data)
    assert len(seen) == 1, "a piece could not be read"
    assert len(seen[0]) < 50


def test_what_contains_itself_is_refused_as_by_one_call() -> None:
    inside: list[Any] = ["x"]
    inside.append({"again": inside, "more": inside})
    for write in (msgspec.json.encode, long_json.encode):
        with pytest.raises(RecursionError):
            write(inside)
