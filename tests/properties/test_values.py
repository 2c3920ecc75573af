"""Values survive encoding and decoding; input is read as the standard library reads it, or refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.harness.thoroughness import examples
from turnstate import (
    FilePart,
    ImagePart,
    Message,
    OpaquePart,
    ReasoningPart,
    TextPart,
    ToolCallRequest,
    ToolCallResult,
    codec,
    strict_json,
    wire_text,
)
from turnstate.errors import ForbiddenJSON, InputError, MalformedJSON, TooLarge, TurnstateError
from turnstate.part import Edit, Native
from turnstate.value import Value, wire_names

often = examples(40, long=1_500)
seldom = examples(12, long=400)  # whole messages take long to draw

texts = st.text(max_size=30)  # every code point but surrogates, NUL included
some_text = st.text(min_size=1, max_size=12)
surrogates = st.text(st.characters(categories=["Cs", "Ll"]), max_size=6)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(min_value=2**63)
scalars = st.none() | st.booleans() | numbers | texts
keys = texts | st.sampled_from(["extra", "type", "id", "content", "__class__", ""])


def nested(leaves: st.SearchStrategy[Any], names: st.SearchStrategy[Any] = keys) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
        max_leaves=6,
    )


values = nested(scalars)
objects = st.dictionaries(keys, values, max_size=3)


def extra_of(kind: type[Value]) -> st.SearchStrategy[Any]:
    """Draw fields that are unknown to a kind of value; mostly none."""
    unknown = st.dictionaries(keys.filter(lambda name: name not in wire_names(kind)), values, max_size=3)
    return st.just({}) | unknown


def drawn(kind: type[Value], /, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(kind, extra=extra_of(kind), **fields)


def media(kind: type[Value], /, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    sources = (
        st.fixed_dictionaries({"data": st.binary(max_size=20)})
        | st.fixed_dictionaries({"url": texts})
        | st.fixed_dictionaries({"file_id": texts})
    )
    rest = st.fixed_dictionaries({"media_type": st.none() | texts, "extra": extra_of(kind), **fields})
    return st.builds(lambda source, rest: kind(**source, **rest), sources, rest)


parts = st.one_of(
    drawn(TextPart, text=texts),
    media(ImagePart, detail=st.none() | texts),
    media(FilePart, name=st.none() | texts),
    drawn(ReasoningPart, text=texts, signature=st.none() | texts),
    drawn(OpaquePart, format=texts, body=objects, text=texts),
)
contents = texts | st.lists(parts, min_size=1, max_size=3)
calls = drawn(ToolCallRequest, id=some_text, name=some_text, args=objects, provider_id=st.none() | texts)
results = drawn(ToolCallResult, tool_call_id=some_text, result=values, is_error=st.booleans())
edits = drawn(Edit, at=st.lists(texts | st.integers(0, 9), max_size=3).map(tuple), to=values)
natives = drawn(
    Native,
    format=texts,
    edits=st.lists(edits, max_size=2).map(tuple),
    starts=st.none() | st.booleans(),
    envelope=st.none() | objects,
)
stamps = st.datetimes().map(lambda moment: moment.isoformat(timespec="milliseconds") + "Z")


def messages_of(role: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Message]:
    return drawn(
        Message, id=some_text, timestamp=stamps, role=st.just(role), native=st.none() | natives, **fields
    )


batches = st.lists(calls, min_size=1, max_size=3, unique_by=lambda call: call.id)
messages = st.one_of(
    messages_of("user", content=contents),
    messages_of(
        "system", content=contents, kind=st.sampled_from(["prompt", "bootstrap", "summary", "foreign"])
    ),
    messages_of("assistant", content=contents),
    messages_of("assistant", content=st.none() | contents, tool_calls=batches),
    messages_of("tool", tool_results=st.lists(results, min_size=1, max_size=3)),
)


def same(one: Any, other: Any) -> bool:
    """Compare values so that 1, 1.0 and true differ, and 0.0 and -0.0."""
    return repr(one) == repr(other)


@pytest.mark.req("A2", "A6", "A7")
@seldom
@given(messages)
def test_every_message_survives_encoding_and_decoding(message: Message) -> None:
    data = codec.encode(message)
    again = codec.decode(data)
    assert again == message
    assert same(again, message)
    assert codec.encode(again) == data
    assert same(codec.from_builtins(codec.to_builtins(message)), message)
    assert same(strict_json.read(data), codec.to_builtins(message))


@pytest.mark.req("A2", "A6", "A7")
@seldom
@given(st.lists(messages, max_size=2))
def test_every_conversation_survives_dumping_and_loading(conversation: list[Message]) -> None:
    document = codec.dump(conversation)
    assert same(codec.load(document), conversation)
    assert codec.dump(codec.load(document.decode())) == document


@pytest.mark.req("A7")
@seldom
@given(messages, st.data())
def test_unknown_fields_survive_wherever_they_are_put(message: Message, data: st.DataObject) -> None:
    plain = codec.to_builtins(message)
    places = [plain, *plain.get("tool_calls", []), *plain.get("tool_results", [])]
    if isinstance(plain.get("content"), list):
        places += plain["content"]
    for place in places:
        place.update({f"x-{name}": value for name, value in data.draw(objects).items()})
    assert json.loads(codec.encode(codec.from_builtins(plain))) == plain


def literal(text: str, *, escaped: bool) -> str:
    return json.dumps(text, ensure_ascii=escaped)


strings = st.builds(literal, texts | surrogates | st.just("\ud83d\ude00"), escaped=st.booleans())
literals = strings | st.one_of(
    numbers.map(json.dumps),
    st.sampled_from(["null", "true", "false", "-0", "-0.0", "1E+2", "NaN", "Infinity", "-Infinity", "1e999"]),
    st.sampled_from(["1" * 4300, "1" * 4301, "01", "+1", "1.", "nul", "'a'", ""]),
)
names = st.sampled_from(['"a"', '"b"', '"\\u0061"', '""']) | strings
space = st.sampled_from(["", "", "", " ", "\n\t", "\u00a0"])


def listed(items: list[str], gap: str) -> str:
    return f"[{gap}{f',{gap}'.join(items)}{gap}]"


def keyed(items: list[tuple[str, str]], gap: str) -> str:
    return f"{{{f',{gap}'.join(f'{name}{gap}:{item}' for name, item in items)}{gap}}}"


documents = st.recursive(
    literals,
    lambda inner: (
        st.builds(listed, st.lists(inner, max_size=3), space)
        | st.builds(keyed, st.lists(st.tuples(names, inner), max_size=3), space)
    ),
    max_leaves=8,
)
"""JSON as careless programs write it: often sound, often nearly."""


def as_everybody_reads_it(text: str) -> tuple[Any, bool]:
    """Read with the standard library; return the value, and whether it can be kept without loss."""
    twice = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(items)) < len(items):
            twice.append(items)
        return dict(items)

    value = json.loads(text, object_pairs_hook=pairs)
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8")
    except ValueError:
        return value, False
    return value, not twice


@pytest.mark.req("A6")
@examples(80, long=3_000)
@given(documents)
@example('{"a":1,"\\u0061":2}')
@example('"\\ud83d\ude00"')
@example("[1e400, NaN]")
def test_json_reads_as_everybody_reads_it_or_is_refused_for_what_would_be_lost(text: str) -> None:
    try:
        value, faithful = as_everybody_reads_it(text)
    except ValueError as error:  # an integer of too many digits has a position in ours
        with pytest.raises(MalformedJSON if isinstance(error, json.JSONDecodeError) else InputError):
            strict_json.read(text)
        return
    if faithful:
        assert same(strict_json.read(text), value)
        assert same(strict_json.read(text.encode()), value)
    else:
        with pytest.raises(ForbiddenJSON) as caught:
            strict_json.read(text)
        assert caught.value.path.startswith("$")
        str(caught.value).encode()


odd_scalars = scalars | surrogates | st.floats() | st.just(math.nan) | st.just(10**4299)
odd_values = nested(odd_scalars, keys | surrogates) | st.tuples(odd_scalars, odd_scalars)


def outcome(act: Callable[[], Any]) -> tuple[type[Exception], str] | None:
    try:
        act()
    except TurnstateError as error:
        return type(error), getattr(error, "path", "")
    return None


@pytest.mark.req("A6")
@often
@given(odd_values)
def test_what_is_in_memory_is_judged_as_what_is_written(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)  # NaN, infinities, lone surrogates: without a word
    assert outcome(lambda: strict_json.check(value)) == outcome(lambda: strict_json.read(text))
    assert outcome(lambda: strict_json.plain(value)) == outcome(lambda: strict_json.check(value))


@pytest.mark.req("A7")
@often
@given(values)
def test_a_plain_copy_is_the_same_value_and_another_object(value: Any) -> None:
    copy = strict_json.plain(value)
    assert same(copy, value)
    assert copy is not value or not isinstance(value, dict | list)


@pytest.mark.req("A6")
@often
@given(st.binary(max_size=60) | documents.map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(b"\xef\xbb\xbf")
@example(b"[" * 100_000)
def test_no_bytes_raise_anything_but_our_own_errors(data: bytes) -> None:
    for act in (strict_json.read, codec.load, codec.decode):
        outcome(lambda act=act: act(data))


@pytest.mark.req("A6")
@seldom
@given(messages, st.data())
def test_no_damage_to_a_message_raises_anything_but_our_own_errors(
    message: Message, data: st.DataObject
) -> None:
    kept = codec.encode(message)
    start = data.draw(st.integers(0, len(kept)))
    end = data.draw(st.integers(start, min(start + 8, len(kept))))
    damaged = kept[:start] + data.draw(st.binary(max_size=4) | some_text.map(str.encode)) + kept[end:]
    outcome(lambda: codec.decode(damaged))
    outcome(lambda: codec.load(b"[" + damaged + b"]"))


anything = nested(
    odd_scalars
    | st.binary(max_size=8)
    | st.sampled_from(
        [object, 1j, {1, "a"}, frozenset({"b"}), ValueError("no"), bytearray(b"\xff"), range(3)]
    )
    | st.dates()
    | st.decimals()
    | st.uuids(),
    keys | surrogates | st.integers() | st.booleans() | st.none() | st.tuples(st.integers()) | st.floats(),
)


@pytest.mark.req("A6")
@often
@given(anything)
def test_any_tool_output_is_storable_once_it_is_clean(output: Any) -> None:
    cleaned = strict_json.clean(output)
    strict_json.check(cleaned)
    assert same(strict_json.clean(cleaned), cleaned)
    result = ToolCallResult(tool_call_id="c", result=cleaned)  # type: ignore[arg-type]
    message = Message.tool([result])
    assert same(codec.decode(codec.encode(message)), message)
    wire_text.result_text(cleaned).encode()


@pytest.mark.req("A6")
@often
@given(odd_values)
def test_cleaning_changes_nothing_that_could_be_kept(value: Any) -> None:
    assume(outcome(lambda: strict_json.plain(value)) is None)
    assert same(strict_json.clean(value), strict_json.plain(value))


@pytest.mark.req("A3", "A6")
@seldom
@given(
    st.fixed_dictionaries(
        {},
        optional={
            name: anything
            | contents
            | st.lists(calls | results, max_size=2)
            | st.sampled_from(["user", "tool"])
            for name in (
                "id",
                "timestamp",
                "role",
                "content",
                "tool_calls",
                "tool_results",
                "kind",
                "native",
                "extra",
            )
        },
    )
)
def test_whatever_a_message_is_made_from_it_is_sound_or_refused_by_a_typed_error(
    fields: dict[str, Any],
) -> None:
    sound = {"id": "m", "timestamp": "2024-01-01T00:00:00Z", "role": "assistant", "content": "x"}
    try:
        message = Message(**{**sound, **fields})
    except InputError:
        return
    assert codec.decode(codec.encode(message)) == message


@pytest.mark.req("A6")
@often
@given(st.integers(0, 260), st.sampled_from([("[", "]"), ('{"a":', "}"), ('[0,{"a":', "}]")]))
def test_depth_is_judged_alike_in_text_and_in_memory(depth: int, brackets: tuple[str, str]) -> None:
    opening, closing = brackets
    text = opening * depth + "null" + closing * depth
    levels = depth * (opening.count("[") + opening.count("{"))
    expected = TooLarge if levels > strict_json.MAX_DEPTH else None
    read = outcome(lambda: strict_json.read(text))
    assert (read and read[0]) == expected
    assert outcome(lambda: strict_json.check(json.loads(text))) == read
