"""The border refuses by one rule, says where, and lets everything else pass as it is."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import math
import sys
from collections import OrderedDict
from typing import Any, NamedTuple

import pytest

from turnstate import strict_json
from turnstate.errors import ForbiddenJSON, InputError, MalformedJSON, TooLarge

pytestmark = pytest.mark.req("A6")


def table(*rows: tuple[Any, ...]) -> list[Any]:
    """Return rows as cases of a test."""
    return list(rows)


def nested(levels: int, inner: Any = None) -> Any:
    """Wrap a value in so many lists."""
    for _ in range(levels):
        inner = [inner]
    return inner


def refusal(data: bytes | str, **limits: int) -> InputError:
    with pytest.raises(InputError) as caught:
        strict_json.read(data, **limits)
    return caught.value


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    table(
        ('{"a":1,"a":2}', "$", "the key 'a' occurs twice"),
        ('{"a":1,"a":1}', "$", "the key 'a' occurs twice"),
        ('{"a":1,"\\u0061":2}', "$", "the key 'a' occurs twice"),
        ('[{"x":[0,{"a":1,"b":2,"b":3}]}]', "$[0].x[1]", "the key 'b' occurs twice"),
        ('{"a":{"":1,"":2}}', "$.a", "the key '' occurs twice"),
        ("NaN", "$", "NaN is not JSON"),
        ('{"a":[1,NaN]}', "$.a[1]", "NaN is not JSON"),
        ('{"a":Infinity}', "$.a", "Infinity is not JSON"),
        ('{"a":-Infinity}', "$.a", "-Infinity is not JSON"),
        ("[1e999]", "$[0]", "the number 1e999 is out of range"),
        ("[-1e999]", "$[0]", "the number -1e999 is out of range"),
        ('["\\ud800"]', "$[0]", "a lone surrogate"),
        ('["\\uDFFF"]', "$[0]", "a lone surrogate"),
        ('["\\ud83d \\ude00"]', "$[0]", "a lone surrogate"),
        ('["\\ude00\\ud83d"]', "$[0]", "a lone surrogate"),
        ('{"a":"\ud800"}', "$.a", "a lone surrogate"),
        ('{"a":"\\ud83d\ude00"}', "$.a", "a lone surrogate"),
        ('{"a":{"\\ud800":1}}', "$.a", "a key holds a lone surrogate"),
        ('{"a b":NaN}', "$['a b']", "NaN"),
        ('{"":NaN}', "$['']", "NaN"),
        ('{"0":NaN}', "$['0']", "NaN"),
        ('{"a.b[0]":NaN}', "$['a.b[0]']", "NaN"),
        ('{"it\'s":NaN}', '$["it\'s"]', "NaN"),
        ('{"\\u0000\\n\\u001b[31m":NaN}', "$['\\x00\\n\\x1b[31m']", "NaN"),
        ('{"\\u202etxt":NaN}', "$['\\u202etxt']", "NaN"),
        ('{"名前":NaN}', "$['名前']", "NaN"),
        (f'{{"{"k" * 1000}":NaN}}', f"$['{'k' * 40}…']", "NaN"),
        (f'{{"{"k" * 1000}":1,"{"k" * 1000}":2}}', "$", "the key 'kkkk"),
        (f"[{'9' * 4301}]", "$[0]", "an integer of 4301 digits"),
        (f"[-{'9' * 4301}]", "$[0]", "an integer of 4301 digits"),
        (f"[{'9' * 1_000_000}]", "$[0]", "an integer of 1000000 digits"),
    ),
)
def test_a_fault_is_refused_with_the_path_to_it(text: str, path: str, reason: str) -> None:
    error = refusal(text)
    assert (type(error), error.path) == (ForbiddenJSON, path)
    assert error.text.startswith(reason)
    assert len(str(error)) < 200
    str(error).encode()  # printable, whatever the document held


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "[1,]",
        "{'a':1}",
        '{"a":1,}',
        "[1] [2]",
        "nul",
        "01",
        "+1",
        ".5",
        "1.",
        "0x10",
        '"\t"',
        '"\x00"',
        '"\\x41"',
        '"\\ud83',
        '["a',
        "// comment\n1",
        "\ufeff\ufeff1",
        "[-NaN]",
    ],
)
def test_what_is_not_json_is_malformed_and_says_where(text: str) -> None:
    error = refusal(text)
    assert type(error) is MalformedJSON
    assert "line" in error.text
    assert "column" in error.text


@pytest.mark.parametrize(
    ("data", "byte"),
    [(b"\xff", "byte 0 is 0xff"), (b'"\xed\xa0\x80"', "byte 1 is 0xed"), (b'{"a":"\xc3"}', "byte 6 is 0xc3")],
)
def test_bytes_that_are_not_utf8_are_malformed_and_the_byte_is_named(data: bytes, byte: str) -> None:
    for given in (data, bytearray(data), memoryview(data)):
        error = refusal(given)
        assert type(error) is MalformedJSON
        assert byte in error.text


def test_utf16_is_not_guessed() -> None:
    assert type(refusal('{"a":1}'.encode("utf-16"))) is MalformedJSON
    assert type(refusal('{"a":1}'.encode("utf-16-le"))) is MalformedJSON


@pytest.mark.parametrize("given", [None, 5, [1], {"a": 1}, object()])
def test_what_is_neither_bytes_nor_text_is_refused_by_a_typed_error(given: Any) -> None:
    with pytest.raises(ForbiddenJSON, match="expected bytes or text"):
        strict_json.read(given)


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "0",
        '""',
        "[]",
        "{}",
        "-0",
        "-0.0",
        "1e-999",
        "1.0",
        '"\\u0000"',
        '"\\ud83d\\ude00"',
        '"😀"',
        '"\\\\ud800"',
        '"\u2028\u2029\u0085\ufeff\ufffd\uffff"',
        ' \t\r\n{"a" : [1 , 2]} \n',
        '{"__proto__":1,"constructor":2}',
        '{"a":1,"A":2,"á":3,"a\u0301":4}',
        '[{"a":1},{"a":1}]',
        "18446744073709551616",
        "9" * 4300,
        "-" + "9" * 4300,
    ],
)
def test_sound_json_reads_as_everybody_reads_it(text: str) -> None:
    value = strict_json.read(text)
    assert repr(value) == repr(json.loads(text))
    assert strict_json.read(text.encode()) == value
    strict_json.check(value)


def test_minus_zero_keeps_its_sign_where_json_has_one() -> None:
    assert math.copysign(1, strict_json.read("-0.0")) == -1.0
    assert strict_json.read("-0") == 0


def test_nul_is_a_character_like_any_other() -> None:
    assert strict_json.read('{"a\\u0000b":"\\u0000"}') == {"a\0b": "\0"}
    strict_json.check({"a\0b": "\0"})
    assert strict_json.clean("\0") == "\0"


def test_one_byte_order_mark_at_the_start_is_passed_over() -> None:
    assert strict_json.read(b'\xef\xbb\xbf{"a":1}') == {"a": 1}
    assert strict_json.read('\ufeff{"a":1}') == {"a": 1}
    assert strict_json.read('"\ufeff"') == "\ufeff"


def test_nesting_is_read_up_to_the_limit_and_refused_one_above() -> None:
    at_limit = "[" * strict_json.MAX_DEPTH + "]" * strict_json.MAX_DEPTH
    assert strict_json.read(at_limit) == nested(strict_json.MAX_DEPTH - 1, [])
    error = refusal(f"[{at_limit}]")
    assert type(error) is TooLarge
    assert error.path == "$" + "[0]" * 12 + "…" + "[0]" * 4


def test_objects_and_arrays_count_alike_towards_the_depth() -> None:
    assert strict_json.read('{"a":[{"b":[]}]}', max_depth=4) == {"a": [{"b": []}]}
    error = refusal('[0,{"a":[{"b":[]}]}]', max_depth=4)
    assert (type(error), error.path) == (TooLarge, "$[1].a[0].b")
    assert strict_json.read("1", max_depth=0) == 1
    assert refusal("[]", max_depth=0).path == "$"


def test_brackets_inside_strings_are_no_nesting() -> None:
    text = json.dumps(["[" * 5000, '"\\[' * 5000])
    assert strict_json.read(text) == json.loads(text)
    assert type(refusal('["' + "[" * 5000)) is MalformedJSON  # cut off in a string, not too deep


@pytest.mark.parametrize("depth", [500, 10_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_hostile_nesting_is_too_large_and_never_a_crash(depth: int, opening: str, closing: str) -> None:
    assert type(refusal(opening * depth + "1" + closing * depth)) is TooLarge
    assert isinstance(refusal(opening * depth), MalformedJSON | TooLarge)


def test_ten_megabytes_of_text_are_nothing_special() -> None:
    for text in ("x" * 10_000_000, "語" * 3_400_000, '\\"' * 5_000_000):
        assert strict_json.read(json.dumps([text], ensure_ascii=False).encode()) == [text]
        assert strict_json.plain([text]) == [text]


def test_size_is_measured_in_bytes_whether_bytes_or_text_is_given() -> None:
    text = '"語"'
    assert strict_json.read(text, max_bytes=5) == "語"
    assert strict_json.read(text.encode(), max_bytes=5) == "語"
    for given in (text, text.encode(), '"abcde"', b'"abcde"'):
        error = refusal(given, max_bytes=4)
        assert type(error) is TooLarge
        assert "at most 4 are read" in error.text


def test_a_size_beyond_the_default_limit_is_refused_before_it_is_parsed() -> None:
    assert type(refusal(b" " * (strict_json.MAX_BYTES + 1))) is TooLarge


def test_the_first_fault_in_the_document_is_the_one_that_is_named() -> None:
    assert refusal('{"a":[0,"\\ud800"],"b":NaN,"c":{"d":1,"d":2}}').path == "$.a[1]"


def test_read_works_from_deep_inside_a_program() -> None:
    def deeper(frames: int) -> Any:
        return strict_json.read('[{"a":["\\ud83d\\ude00"]}]') if frames == 0 else deeper(frames - 1)

    assert deeper(sys.getrecursionlimit() // 2) == [{"a": ["😀"]}]


class Color(enum.StrEnum):
    RED = "red"


class OldColor(str, enum.Enum):  # noqa: UP042 - what older code still does
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


class Name(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class Ratio(float):
    pass


class Pair(NamedTuple):
    a: int
    b: int


@dataclasses.dataclass
class Record:
    count: int
    tags: Any


class Rude:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    table(
        (math.nan, "$", "nan is not JSON"),
        ({"a": [math.inf]}, "$.a[0]", "inf is not JSON"),
        ((1, -math.inf), "$[1]", "-inf is not JSON"),
        ([Ratio("nan")], "$[0]", "nan is not JSON"),
        ({"a": "\ud800"}, "$.a", "a lone surrogate"),
        ({"a": {"\udfff": 1}}, "$.a", "a key holds a lone surrogate"),
        ([{1: 2}], "$[0]", "a key of type int"),
        ({None: 1}, "$", "a key of type NoneType"),
        ({(1, 2): 1}, "$", "a key of type tuple"),
        ([b"bytes"], "$[0]", "a value of type bytes"),
        ({"a": {1, 2}}, "$.a", "a value of type set"),
        ([object()], "$[0]", "a value of type object"),
        ([Record(1, [])], "$[0]", "a value of type Record"),
        ([datetime.date(2024, 1, 1)], "$[0]", "a value of type date"),
        ([1j], "$[0]", "a value of type complex"),
        ([Rude()], "$[0]", "a value of type Rude"),
        ([10**4300], "$[0]", "an integer of more than 4300 digits"),
        ([-(10**5000)], "$[0]", "an integer of more than 4300 digits"),
    ),
)
def test_what_is_in_memory_is_refused_by_the_same_rule(value: Any, path: str, reason: str) -> None:
    for refuse in (strict_json.check, strict_json.plain):
        with pytest.raises(ForbiddenJSON) as caught:
            refuse(value)
        assert caught.value.path == path
        assert caught.value.text.startswith(reason)


def test_paths_begin_where_the_caller_says() -> None:
    with pytest.raises(ForbiddenJSON) as caught:
        strict_json.check({"a": [math.nan]}, at="args")
    assert caught.value.path == "args.a[0]"


def test_what_contains_itself_is_too_large_and_not_endless() -> None:
    loop: list[Any] = []
    loop += [loop, loop]
    ring: dict[str, Any] = {}
    ring["ring"] = {"a": (ring, ring)}
    for value in (loop, ring):
        for use in (strict_json.check, strict_json.plain, strict_json.clean):
            with pytest.raises(TooLarge):
                use(value)


def test_depth_is_checked_exactly_in_memory_too_at_any_limit() -> None:
    strict_json.check(nested(strict_json.MAX_DEPTH))
    with pytest.raises(TooLarge):
        strict_json.check(nested(strict_json.MAX_DEPTH + 1))
    strict_json.check(nested(5000), max_depth=5000)  # beyond what the interpreter recurses
    with pytest.raises(TooLarge):
        strict_json.check(nested(5001), max_depth=5000)


def test_a_value_of_a_message_may_nest_a_little_less_than_a_document() -> None:
    assert strict_json.plain(nested(strict_json.MAX_VALUE_DEPTH)) == nested(strict_json.MAX_VALUE_DEPTH)
    with pytest.raises(TooLarge):
        strict_json.plain(nested(strict_json.MAX_VALUE_DEPTH + 1))
    many = [[[]]] * 1000
    assert strict_json.plain(many) == many


def test_plain_gives_a_copy_that_nobody_else_holds() -> None:
    given: dict[str, Any] = {"a": [1, {"b": 2}]}
    copy = strict_json.plain(given)
    given["a"][1]["b"] = 3
    given["a"].append(4)
    assert copy == {"a": [1, {"b": 2}]}


@pytest.mark.parametrize(
    ("value", "plain"),
    table(
        ((1, (2,)), [1, [2]]),
        (Pair(1, 2), [1, 2]),
        (Color.RED, "red"),
        (OldColor.RED, "red"),
        (Size.SMALL, 1),
        (Name("n"), "n"),
        (Ratio(0.5), 0.5),
        (True, True),
        (OrderedDict(a=Color.RED), {"a": "red"}),
        ({Color.RED: Name("n"), Name("k"): [Ratio(2)]}, {"red": "n", "k": [2.0]}),
        (2**70, 2**70),
    ),
)
def test_plain_gives_exactly_the_types_that_json_reads(value: Any, plain: Any) -> None:
    def types(value: Any) -> Any:
        if type(value) is dict:
            return [(type(key), types(item)) for key, item in value.items()]
        return [types(item) for item in value] if type(value) is list else type(value)

    strict_json.check(value)
    copy = strict_json.plain(value)
    assert copy == plain
    assert types(copy) == types(plain)


def test_check_text_refuses_what_has_no_utf8_form() -> None:
    strict_json.check_text("語\0", at="content")
    for given in ("\ud800", 5, None, b"x"):
        with pytest.raises(ForbiddenJSON) as caught:
            strict_json.check_text(given, at="content")
        assert caught.value.path == "content"


@pytest.mark.parametrize(
    ("value", "cleaned"),
    table(
        ("as it was\0", "as it was\0"),
        ("a\ud800b", "a\ufffdb"),
        ("\udc00\ud800", "\ufffd\ufffd"),
        ("\ud83d" + "\ude00", "😀"),
        (math.nan, "nan"),
        ([math.inf, -math.inf], ["inf", "-inf"]),
        ({"a": ("\ud800", [None, True, 0, 1.5])}, {"a": ["\ufffd", [None, True, 0, 1.5]]}),
        (b"\xffok", "\ufffdok"),
        (bytearray(b"ok"), "ok"),
        (memoryview(b"ok"), "ok"),
        ({1: "a", None: "b", 2.5: "c", False: "d"}, {"1": "a", "null": "b", "2.5": "c", "false": "d"}),
        ({chr(0xD800): 1, chr(0xD801): 2}, {"\ufffd": 1, "\ufffd (1)": 2}),
        ({1: "a", "1": "b"}, {"1": "a", "1 (1)": "b"}),
        ({"b", "a", 1}, ["a", "b", 1]),
        pytest.param(10**4300, hex(10**4300), id="4301 digits"),  # which str() refuses
        (2**70, 2**70),
        (Record(1, {math.nan}), {"count": 1, "tags": ["nan"]}),
        (datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC), "2024-01-02T00:00:00Z"),
        (ValueError("it broke"), "it broke"),
        (Color.RED, "red"),
        (OldColor.RED, "red"),
        (Name("n"), "n"),
        (Size.SMALL, 1),
        (Rude(), "<Rude>"),
        ([Rude()], ["<Rude>"]),
    ),
)
def test_tool_output_is_made_storable_and_says_as_much_as_it_can(value: Any, cleaned: Any) -> None:
    result = strict_json.clean(value)
    assert result == cleaned
    strict_json.check(result)
    assert strict_json.clean(result) == result


def test_clean_refuses_only_what_is_nested_too_deeply() -> None:
    strict_json.plain(strict_json.clean(nested(strict_json.MAX_VALUE_DEPTH, math.nan)))
    with pytest.raises(TooLarge, match="tool output is nested deeper"):
        strict_json.clean(nested(strict_json.MAX_VALUE_DEPTH + 1))


def test_cleaning_leaves_the_tools_own_object_alone() -> None:
    given = {"a": ["\ud800"]}
    strict_json.clean(given)
    assert given == {"a": ["\ud800"]}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"a": 1, "b": True, "c": None, "d": "text"},
        {"a": 2**60},
        {"ü": 0.5},
        {str(n): n for n in range(99)},
    ],
)
def test_a_plain_object_is_copied_with_the_types_of_its_values(given: dict[str, Any]) -> None:
    copy = strict_json.plain(given)
    assert copy == given
    assert copy is not given
    assert [type(one) for one in copy.values()] == [type(one) for one in given.values()]


@pytest.mark.parametrize("given", [{1: "a"}, {"a": "\ud800"}, {"\ud800": 1}, {"a": {1}}, {"a": b"b"}])
def test_an_object_that_json_has_no_form_for_is_refused(given: Any) -> None:
    with pytest.raises(ForbiddenJSON):
        strict_json.plain(given)
