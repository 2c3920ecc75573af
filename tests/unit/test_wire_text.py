"""What a model reads of a value, and that counting and rendering can rely on it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnstate import FilePart, ImagePart, OpaquePart, ReasoningPart, TextPart, ToolCallRequest, wire_text
from turnstate.part import Part

PNG = "iVBORw=="


@pytest.mark.req("A6")
@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("as it stands\n", "as it stands\n"),
        ("", ""),
        (0, "0"),
        (False, "false"),
        (None, "null"),
        ([], "[]"),
        ({}, "{}"),
        (1.5, "1.5"),
        (10**30, "1" + "0" * 30),
        ({"b": 1, "a": [True, "語\0"]}, '{"b":1,"a":[true,"語\\u0000"]}'),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one\ntwo"),
        ([{"type": "text"}], '[{"type":"text"}]'),
        ([{"type": "text", "text": "x", "id": 5}], '[{"type":"text","text":"x","id":5}]'),
        ([{"type": "file", "name": "a.txt"}], '[{"type":"file","name":"a.txt"}]'),
        ([{"type": ["text"], "text": "x"}], '[{"type":["text"],"text":"x"}]'),
        ([{"type": "text", "text": "x"}, "y"], '[{"type":"text","text":"x"},"y"]'),
        ([{"type": "image", "data": "not base64!"}], '[{"type":"image","data":"not base64!"}]'),
    ],
)
def test_every_result_has_a_text(result: Any, text: str) -> None:
    assert wire_text.result_text(result) == text


def test_arguments_are_compact_json_in_the_order_in_which_they_came() -> None:
    call = ToolCallRequest(name="c", args={"z": 1, "a": {"y": None, "b": "é"}})
    assert wire_text.args_text(call) == '{"z":1,"a":{"y":null,"b":"é"}}'
    assert json.loads(wire_text.args_text(call)) == call.args


def test_a_result_of_content_parts_is_given_as_parts() -> None:
    parts = (
        TextPart("see"),
        ImagePart(data=b"\x89PNG", media_type="image/png"),
        FilePart(url="https://a.example/b.pdf"),
    )
    assert wire_text.result_parts(wire_text.result_of_parts(parts)) == parts


def test_what_an_mcp_server_answers_with_is_understood_as_parts() -> None:
    result = [
        {"type": "text", "text": "see", "annotations": {"audience": ["user"]}},
        {"type": "image", "data": PNG, "mimeType": "image/png", "_meta": {"a": 1}},
        {"type": "audio", "data": PNG, "mimeType": "audio/wav"},
    ]
    assert wire_text.result_parts(result) == (
        TextPart("see"),
        ImagePart(data=b"\x89PNG", media_type="image/png"),
        FilePart(data=b"\x89PNG", media_type="audio/wav"),
    )
    assert PNG not in wire_text.result_text(result)


@pytest.mark.parametrize(
    "result", [None, "text", 5, {}, [], {"type": "text", "text": "x"}, [1], [[]], [None]]
)
def test_any_other_result_is_no_list_of_parts(result: Any) -> None:
    assert wire_text.result_parts(result) is None


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (TextPart("words"), "words"),
        (ReasoningPart("thought"), "thought"),
        (OpaquePart(format="x", body={}, text="[search]"), "[search]"),
        (OpaquePart(format="x", body={}), ""),
        (ImagePart(url="https://a.example/b.png"), "[image https://a.example/b.png]"),
        (ImagePart(url=""), "[image ]"),
        (ImagePart(url=f"data:image/png;base64,{PNG * 1000}"), "[image data:image/png;base64]"),
        (FilePart(file_id="file-1"), "[file id file-1]"),
        (FilePart(data=b"", media_type="text/csv"), "[file text/csv, 0 bytes, sha256 e3b0c44298fc1c14]"),
        (ImagePart(data=b"x"), "[image application/octet-stream, 1 bytes, sha256 2d711642b726b044]"),
    ],
)
def test_a_part_that_cannot_be_sent_is_described_in_a_line(part: Part, text: str) -> None:
    assert wire_text.described(part) == text


def test_a_system_message_between_turns_says_what_it_is() -> None:
    assert wire_text.notice("The shift ends.") == "[System message] The shift ends."
