from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from turnstate import strict_json
from turnstate.cli import source as lines_module
from turnstate.cli.source import InputSource, SourceDocument, opened, source
from turnstate.errors import ForbiddenJSON, InputError, MalformedJSON, TooLarge


def read(text: str | bytes, name: str = "input") -> InputSource:
    data = text.encode() if isinstance(text, str) else text
    return source(io.BytesIO(data), name)


def values(text: str | bytes, name: str = "input") -> list[Any]:
    return [document.value() for document in read(text, name).documents]


ONE_DOCUMENT = {
    "a list on one line": '[{"role": "user"}]',
    "an object on one line": '{"messages": []}',
    "one line of JSONL": '{"id": "a", "messages": []}\n',
    "one line between blank lines": '\n \n{"messages": []}\n\n\r\n\t\n',
    "indented": '[\n  {\n    "role": "user"\n  }\n]',
    "indented object": '{\n  "messages": [\n    {}\n  ]\n}\n',
    "a message on each line of a list": '[\n{"role": "user"},\n{"role": "assistant"}\n]',
    "one message on its own line": '[\n{"role": "user"}\n]',
    "opened in the middle of a line": '{"messages": [{"role": "user",\n"content": "hi"}]}',
    "opened after a colon": '{"messages":\n[]}',
    "opened after a comma": "[1,\n2]",
    "opened after a value": '{"a": 1\n, "b": 2}',
    "opened after a key": '{"a"\n: 1}',
    "blank line after the opening": "[\n\n\n{}\n]",
    "with a byte order mark": "\ufeff[\n{}\n]",
}


@pytest.mark.parametrize("text", ONE_DOCUMENT.values(), ids=ONE_DOCUMENT.keys())
def test_a_document_is_one_conversation_however_it_is_laid_out(text: str) -> None:
    found = read(text)
    (document,) = found.documents
    assert not found.many
    assert document.line is None
    assert document.value() == strict_json.read(text)


@pytest.mark.parametrize("text", ONE_DOCUMENT.values(), ids=ONE_DOCUMENT.keys())
def test_a_document_in_a_file_named_like_jsonl_is_still_one_conversation(text: str) -> None:
    assert not read(text, "input.jsonl").many


MANY = {
    "objects": ('{"id": 1}\n{"id": 2}\n', [1, 2]),
    "no final newline": ('{"id": 1}\n{"id": 2}', [1, 2]),
    "blank lines between": ('\n{"id": 1}\n\n \n{"id": 3}\n\n', [2, 5]),
    "Windows line ends": ('{"id": 1}\r\n\r\n{"id": 2}\r\n', [1, 3]),
    "lists": ('[{"role": "user"}]\n[]\n', [1, 2]),
    "lists and objects": ('[]\n{"messages": []}\n[]', [1, 2, 3]),
    "with a byte order mark": ('\ufeff{"id": 1}\n{"id": 2}\n', [1, 2]),
    "line separators inside a string": ('{"id": "\u2028\u0085"}\n{"id": 2}\n', [1, 2]),
}


@pytest.mark.parametrize(("text", "numbers"), MANY.values(), ids=MANY.keys())
def test_a_value_on_each_line_is_many_conversations(text: str, numbers: list[int]) -> None:
    found = read(text)
    documents = list(found.documents)
    assert found.many
    assert [document.line for document in documents] == numbers
    assert [document.value() for document in documents] == [
        strict_json.read(line) for line in text.split("\n") if line.strip()
    ]


DAMAGED_FIRST_LINE = {
    "not JSON": "not json",
    "broken inside": '{"id": 1, "messages": [}',
    "ended inside a string": '{"id": "a',
    "two values": "{} {}",
    "not UTF-8": b'{"id": "\xff"}',
    "UTF-16": '{"id": 1}'.encode("utf-16"),
}


@pytest.mark.parametrize("first", DAMAGED_FIRST_LINE.values(), ids=DAMAGED_FIRST_LINE.keys())
def test_a_damaged_first_line_costs_one_conversation(first: str | bytes) -> None:
    data = (first.encode() if isinstance(first, str) else first) + b'\n{"id": 2}\n{"id": 3}\n'
    bad, *good = read(data).documents
    assert [document.value() for document in good] == [{"id": 2}, {"id": 3}]
    with pytest.raises(MalformedJSON):
        bad.value()


def test_a_first_line_that_was_cut_short_is_known_by_the_name_of_the_file() -> None:
    text = '{"id": 1, "messages": [\n{"id": 2}\n'
    assert read(text, "log.jsonl").many
    assert not read(text, "log.json").many


REFUSED_FIRST_LINE = ['{"a": 1, "a": 2}', '{"a": NaN}', '"\\ud800"', "[" * 300 + "]" * 300]


@pytest.mark.parametrize("first", REFUSED_FIRST_LINE, ids=["twice", "nan", "surrogate", "deep"])
def test_a_first_line_that_is_refused_is_still_a_line(first: str) -> None:
    found = read(first + '\n{"id": 2}\n')
    assert found.many
    with pytest.raises((ForbiddenJSON, TooLarge)):
        next(found.documents).value()


@pytest.mark.parametrize("text", ["", " ", "\n\n\r\n", "\ufeff", "\ufeff\n"])
def test_an_input_that_says_nothing_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(InputError, match=r"^empty\.json: empty"):
        read(text, "empty.json")


def test_a_place_names_the_file_and_the_line() -> None:
    assert SourceDocument("a.json", None, b"").where == "a.json"
    assert SourceDocument("a.jsonl", 3, b"").where == "a.jsonl line 3"


class Endless(io.RawIOBase):
    """Lines without end, one at a time, as a pipe would give them."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._lines, b"")
        taken = self._rest[: len(buffer)]
        buffer[: len(taken)] = taken
        self._rest = self._rest[len(taken) :]
        return len(taken)


def endless_lines() -> Iterator[bytes]:
    while True:
        yield b'{"id": "%s"}\n' % (b"x" * 10_000)


def test_jsonl_is_never_held_all_at_once() -> None:
    stream = io.BufferedReader(Endless(endless_lines()))
    tracemalloc.start()
    try:
        seen = sum(1 for _ in islice(source(stream, "endless").documents, 3_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen == 3_000
    assert peak < 1_000_000


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(strict_json, "MAX_BYTES", 100)
    monkeypatch.setattr(lines_module, "MAX_BYTES", 100)
    return 100


@pytest.mark.usefixtures("small_limit")
@pytest.mark.parametrize("size", [90, 92, 93, 95, 120, 201, 202, 350])
def test_an_overlong_line_is_refused_and_passed_over(size: int) -> None:
    line = b'{"id": "%s"}' % (b"x" * size)
    first, long, last = read(b'{"id": 1}\n' + line + b'\n{"id": 3}\n').documents
    assert (first.value(), last.value(), last.line) == ({"id": 1}, {"id": 3}, 3)
    if len(line) < 100:
        assert long.value() == {"id": "x" * size}
    else:
        with pytest.raises(TooLarge, match="more than 100 bytes"):
            long.value()


@pytest.mark.usefixtures("small_limit")
def test_an_overlong_document_is_refused_without_being_read_whole() -> None:
    stream = io.BytesIO(b"[\n" + b"1,\n" * 1_000 + b"1]")
    (document,) = source(stream, "long.json").documents
    with pytest.raises(TooLarge, match="more than 100 bytes; write one conversation per line"):
        document.value()
    assert stream.tell() <= 110


@pytest.mark.usefixtures("small_limit")
def test_blank_lines_without_end_are_not_collected() -> None:
    stream = io.BufferedReader(Endless(iter(lambda: b"\n", None)))
    with pytest.raises(InputError, match="empty; expected"):
        source(stream, "blank")


@pytest.mark.parametrize(
    ("path", "reason"),
    [("missing.json", "no such file"), (".", "Is a directory"), ("a\0b", "null"), ("x" * 5_000, "too long")],
)
def test_what_cannot_be_opened_is_an_input_error(path: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason), opened(path):
        pass


def test_a_failure_in_the_middle_is_an_input_error() -> None:
    def failing() -> Iterator[bytes]:
        yield b'{"id": 1}\n{"id": 2}\n'
        raise OSError(5, "Input/output error")

    found = source(io.BufferedReader(Endless(failing())), "disk.jsonl")
    assert next(found.documents).value() == {"id": 1}
    assert next(found.documents).value() == {"id": 2}
    with pytest.raises(InputError, match=r"^disk\.jsonl: cannot be read: Input/output error$"):
        next(found.documents)


def test_the_size_is_known_for_a_file_only(tmp_path: Any) -> None:
    path = tmp_path / "a.json"
    path.write_text("[]")
    with opened(str(path)) as found:
        assert found.size == 2
    assert read("[]").size is None
