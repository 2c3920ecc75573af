"""Parts: what each may hold, and that what exists can be written and read back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from turnstate import FilePart, ImagePart, Message, OpaquePart, ReasoningPart, TextPart, codec
from turnstate.errors import ForbiddenJSON, InputError, InvalidMessage
from turnstate.part import Part

PARTS: list[Part] = [
    TextPart("words"),
    TextPart(""),
    ImagePart(url="https://example.com/a.png", detail="low"),
    ImagePart(data=b"\x89PNG\x00\xff", media_type="image/png"),
    ImagePart(data=b""),
    FilePart(file_id="file-1", name="名前.pdf"),
    FilePart(data=b"%PDF", media_type="application/pdf", name="a.pdf"),
    ReasoningPart("because", signature="EqQB"),
    ReasoningPart(signature="only a signature"),
    OpaquePart(
        format="anthropic", body={"type": "server_tool_use", "input": {"q": [1, None]}}, text="[search]"
    ),
    OpaquePart(format="gemini", body={}),
]


@pytest.mark.req("A2")
@pytest.mark.parametrize("part", PARTS)
def test_every_part_survives_a_round_trip(part: Part) -> None:
    message = Message.user([part])
    assert codec.decode(codec.encode(message)) == message
    assert codec.load(codec.dump([message])) == [message]


@pytest.mark.req("A2")
def test_parts_look_like_this_on_the_wire() -> None:
    assert msgspec.to_builtins(PARTS) == [
        {"type": "text", "text": "words"},
        {"type": "text", "text": ""},
        {"type": "image", "url": "https://example.com/a.png", "detail": "low"},
        {"type": "image", "data": "iVBORwD/", "media_type": "image/png"},
        {"type": "image", "data": ""},
        {"type": "file", "file_id": "file-1", "name": "名前.pdf"},
        {"type": "file", "data": "JVBERg==", "media_type": "application/pdf", "name": "a.pdf"},
        {"type": "reasoning", "text": "because", "signature": "EqQB"},
        {"type": "reasoning", "signature": "only a signature"},
        {
            "type": "opaque",
            "format": "anthropic",
            "body": {"type": "server_tool_use", "input": {"q": [1, None]}},
            "text": "[search]",
        },
        {"type": "opaque", "format": "gemini", "body": {}},
    ]


@pytest.mark.req("A2")
@pytest.mark.parametrize("kind", [ImagePart, FilePart])
@pytest.mark.parametrize(
    "sources",
    [
        {},
        {"media_type": "image/png"},
        {"data": b"x", "url": "https://example.com"},
        {"url": "u", "file_id": "f"},
        {"data": b"", "url": "", "file_id": ""},
    ],
)
def test_media_have_exactly_one_source(kind: type[Any], sources: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage, match="exactly one of data, url and file_id"):
        kind(**sources)


@pytest.mark.req("A2", "A6")
@pytest.mark.parametrize(
    ("kind", "fields", "path"),
    [
        (TextPart, {"text": "\ud800"}, "text"),
        (TextPart, {"text": None}, "text"),
        (TextPart, {"text": 5}, "text"),
        (TextPart, {"text": b"x"}, "text"),
        (ImagePart, {"url": 0}, "url"),
        (ImagePart, {"url": "\ud800"}, "url"),
        (ImagePart, {"file_id": False}, "file_id"),
        (ImagePart, {"url": "u", "media_type": 0}, "media_type"),
        (ImagePart, {"url": "u", "detail": "\udfff"}, "detail"),
        (ImagePart, {"url": "u", "detail": 1}, "detail"),
        (ImagePart, {"data": "aGk="}, "data"),
        (FilePart, {"data": bytearray(b"x")}, "data"),
        (FilePart, {"url": "u", "name": "\ud800"}, "name"),
        (FilePart, {"url": "u", "name": []}, "name"),
        (ReasoningPart, {"text": 5}, "text"),
        (ReasoningPart, {"signature": "\ud800"}, "signature"),
        (ReasoningPart, {"signature": b"x"}, "signature"),
        (OpaquePart, {"format": None, "body": {}}, "format"),
        (OpaquePart, {"format": "x", "body": []}, "body"),
        (OpaquePart, {"format": "x", "body": None}, "body"),
        (OpaquePart, {"format": "x", "body": {"a": [float("nan")]}}, "body.a[0]"),
        (OpaquePart, {"format": "x", "body": {"a": b"x"}}, "body.a"),
        (OpaquePart, {"format": "x", "body": {}, "text": None}, "text"),
    ],
)
def test_a_wrong_field_is_refused_by_its_name(kind: type[Any], fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as caught:
        kind(**fields)
    assert isinstance(caught.value, ForbiddenJSON | InvalidMessage)
    assert caught.value.path == path


@pytest.mark.req("A7")
@pytest.mark.parametrize("part", PARTS)
def test_parts_cannot_be_changed(part: Part) -> None:
    for field in part.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(part, field, "other")


@pytest.mark.req("A7")
def test_a_part_does_not_change_with_what_it_was_made_from() -> None:
    body: dict[str, Any] = {"a": [1]}
    part = OpaquePart(format="x", body=body)
    body["a"].append(2)
    assert part.body == {"a": [1]}


@pytest.mark.req("A7")
@pytest.mark.parametrize("part", PARTS)
def test_unknown_fields_stay_with_the_part(part: Part) -> None:
    known = msgspec.to_builtins(part)
    extended = {**known, "extra": {"extra": 1}, "cache_control": None, "": "odd"}
    message = codec.from_builtins({**codec.to_builtins(Message.user("x")), "content": [extended]})
    assert message.parts[0].extra == {"extra": {"extra": 1}, "cache_control": None, "": "odd"}
    assert codec.to_builtins(message)["content"] == [extended]


@pytest.mark.req("A7")
@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        (5, "expected a JSON object"),
        ({"text": "other"}, "text is a field of TextPart and cannot be in extra"),
        ({"type": "image"}, "type is a field of TextPart and cannot be in extra"),
        ({"a": float("nan")}, "nan is not JSON"),
        ({1: 2}, "a key of type int"),
    ],
)
def test_extra_fields_are_json_and_cannot_pass_for_known_ones(extra: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        TextPart("x", extra=extra)


@pytest.mark.req("A7")
def test_no_extra_fields_are_the_same_as_none() -> None:
    assert TextPart("x", extra={}) == TextPart("x")  # type: ignore[arg-type]
