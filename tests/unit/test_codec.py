"""What is written reads back equal, whoever added to it; what is not understood is refused, not guessed."""

from __future__ import annotations

import json
from typing import Any

import pytest

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
)
from turnstate.errors import (
    ForbiddenJSON,
    InputError,
    InvalidMessage,
    InvalidPayload,
    MalformedJSON,
    NewerFormat,
    TooLarge,
)
from turnstate.ids import CallId
from turnstate.part import Edit, Native
from turnstate.testing import conversations

STAMP = '"id":"m1","timestamp":"2024-05-06T07:08:09Z"'

GOLDEN = (
    '{"version":1,"messages":['
    '{"id":"00000000-0000-8000-8000-000000000000","timestamp":"1970-01-01T00:00:00Z","role":"system",'
    '"content":"You keep a lighthouse.","kind":"prompt"},'
    '{"id":"m1","timestamp":"2024-05-06T07:08:09Z","role":"user","content":['
    '{"type":"text","text":"Was ist das? 灯台"},'
    '{"type":"image","data":"iVBORw==","media_type":"image/png","detail":"low"},'
    '{"type":"image","url":"https://a.example/b.png"},'
    '{"type":"file","file_id":"file-1","name":"log.txt","by":"us"},'
    '{"type":"opaque","format":"anthropic","body":{"type":"x","extra":{"a":1}},"text":"[x]"}],'
    '"native":{"format":"openai-chat","edits":[{"at":["content",0,"cache"],"to":null},{"at":["name"]}],'
    '"starts":false,"envelope":{"model":"m","extra":true},"newer":1},"extra":{"extra":"kept"}},'
    '{"id":"m2","timestamp":"2024-05-06T07:08:09.5Z","role":"assistant","content":[{"type":"reasoning",'
    '"text":"hm","signature":"EqQB"}],"tool_calls":[{"id":"call_1","name":"look","args":{"extra":1,"deep":[{"extra":2}]},'
    '"provider_id":"toolu_01"},{"id":"call_2","name":"read","args":{},"type":"function","extra":null}],"type":"message"},'
    '{"id":"m3","timestamp":"2024-05-06T07:08:09.123456789Z","role":"tool","tool_results":['
    '{"tool_call_id":"call_2","result":null,"is_error":false},'
    '{"tool_call_id":"call_1","result":[0,-0.0,1e22,0.1,18446744073709551615,-9223372036854775808,true,"\\u0000\\n\\"\\\\/😀"],'
    '"is_error":true,"took":1.5}]},'
    '{"id":"m4","timestamp":"2024-05-06T07:08:10Z","role":"assistant","content":"","unit":{"a":[]}}'
    "]}"
).encode()


def a_message(**fields: Any) -> dict[str, Any]:
    return {"id": "m1", "timestamp": "2024-05-06T07:08:09Z", "role": "user", "content": "x", **fields}


@pytest.mark.req("A2", "A6", "A7")
def test_this_document_reads_and_writes_back_to_the_same_bytes_for_ever() -> None:
    messages = codec.load(GOLDEN)
    assert codec.dump(messages) == GOLDEN
    assert [codec.decode(codec.encode(message)) for message in messages] == messages


@pytest.mark.req("A2", "A7")
def test_the_golden_document_says_what_it_says() -> None:
    prompt, user, asked, answered, last = codec.load(GOLDEN)
    assert (prompt.role, prompt.kind) == ("system", "prompt")
    assert user.parts == (
        TextPart("Was ist das? 灯台"),
        ImagePart(data=b"\x89PNG", media_type="image/png", detail="low"),
        ImagePart(url="https://a.example/b.png"),
        FilePart(file_id="file-1", name="log.txt", extra={"by": "us"}),  # type: ignore[arg-type]
        OpaquePart(format="anthropic", body={"type": "x", "extra": {"a": 1}}, text="[x]"),
    )
    assert user.extra == {"extra": {"extra": "kept"}}
    assert user.native == Native(
        format="openai-chat",
        edits=(Edit(("content", 0, "cache"), None), Edit(("name",))),
        starts=False,
        envelope={"model": "m", "extra": True},
        extra={"newer": 1},  # type: ignore[arg-type]
    )
    assert asked.content == (ReasoningPart("hm", signature="EqQB"),)
    assert asked.tool_calls[0].args == {"extra": 1, "deep": [{"extra": 2}]}
    assert asked.tool_calls[1].extra == {"type": "function", "extra": None}
    assert asked.extra == {"type": "message"}
    assert answered.tool_results[1].result[7] == '\0\n"\\/😀'
    assert last.content == ""


@pytest.mark.req("A2")
def test_generated_conversations_survive_both_ways() -> None:
    for messages in conversations.many(50):
        assert [codec.decode(codec.encode(message)) for message in messages] == messages
        assert codec.load(codec.dump(messages)) == messages
        assert [codec.from_builtins(codec.to_builtins(message)) for message in messages] == messages


@pytest.mark.req("A2")
def test_what_is_written_is_compact_json_in_utf8_that_everybody_reads() -> None:
    for message in codec.load(GOLDEN):
        data = codec.encode(message)
        assert b'", ' not in data
        assert json.loads(data.decode("utf-8")) == codec.to_builtins(message)


@pytest.mark.req("A7")
def test_the_plain_form_is_made_of_dicts_and_lists_that_are_the_callers_own() -> None:
    message = codec.load(GOLDEN)[2]
    plain = codec.to_builtins(message)
    assert type(plain["content"]) is type(plain["tool_calls"]) is list
    plain["tool_calls"][0]["args"]["deep"].clear()
    assert codec.to_builtins(message)["tool_calls"][0]["args"]["deep"] == [{"extra": 2}]


@pytest.mark.req("A7")
def test_a_message_taken_from_plain_values_does_not_change_with_them() -> None:
    plain = a_message(
        role="assistant", content=None, note=[1], tool_calls=[{"id": "c", "name": "n", "args": {"a": [1]}}]
    )
    message = codec.from_builtins(plain)
    plain["tool_calls"][0]["args"]["a"].append(2)
    plain["note"].append(2)
    assert message.tool_calls[0].args == {"a": [1]}
    assert message.extra == {"note": [1]}


@pytest.mark.req("A7")
@pytest.mark.parametrize("name", ["extra", "x", "", "a b", "Content", "__class__", "self", "名", "\0", "id "])
@pytest.mark.parametrize("value", [None, 0, "", {"extra": {"extra": []}}, [float(1)]])
def test_an_unknown_field_is_kept_at_every_level_whatever_it_is_called(name: str, value: Any) -> None:
    more = {name: value}
    native = {"format": "f", "edits": [{"at": [1], "to": {"extra": 1}, **more}], **more}
    messages = [
        a_message(**more, content=[{"type": "text", "text": "x", **more}], native=native),
        a_message(
            **more,
            role="assistant",
            content=None,
            tool_calls=[{"id": "c", "name": "n", "args": dict(more), **more}],
        ),
        {
            **a_message(
                role="tool", tool_results=[{"tool_call_id": "c", "result": more, "is_error": True, **more}]
            ),
            **more,
        },
    ]
    del messages[2]["content"]
    loaded = codec.load(json.dumps({"version": 1, "messages": messages}))
    assert [dict(message.extra) for message in loaded] == [more] * 3  # type: ignore[arg-type]
    written = json.loads(codec.dump(loaded))["messages"]
    del messages[1]["content"]  # null is absent
    assert written == messages
    assert [codec.decode(codec.encode(message)) for message in loaded] == loaded


@pytest.mark.req("A7")
@pytest.mark.parametrize(
    "message",
    [
        Message.user("x"),
        Message.assistant(tool_calls=[ToolCallRequest(name="n", args={})]),
        Message.tool([ToolCallResult(tool_call_id=CallId("c"), result=1)]),
    ],
)
@pytest.mark.parametrize("name", ["type", "tag", "args", "text"])
def test_a_field_that_another_value_knows_is_still_unknown_here(message: Message, name: str) -> None:
    data = codec.encode(message)[:-1] + f',"{name}":"x"}}'.encode()
    assert codec.decode(data).extra == {name: "x"}
    assert codec.encode(codec.decode(data)) == data


@pytest.mark.req("A7")
@pytest.mark.parametrize("name", ["id", "role", "content", "native"])
def test_an_extra_field_cannot_take_the_place_of_a_known_one(name: str) -> None:
    with pytest.raises(InvalidMessage, match=f"{name} is a field of Message and cannot be in extra"):
        codec.from_builtins(a_message()).replace(extra={name: "other"})


@pytest.mark.req("A7")
def test_the_order_is_the_order_in_which_messages_were_written_whatever_their_times_say() -> None:
    times = ["2024-01-02T00:00:00Z", "2024-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "2024-01-01T00:00:00Z"]
    messages = [Message.user(str(number), timestamp=time) for number, time in enumerate(times)]
    assert [message.text for message in codec.load(codec.dump(reversed(messages)))] == ["3", "2", "1", "0"]


# Versions


@pytest.mark.req("A1", "A7")
def test_a_system_message_of_the_first_version_becomes_a_foreign_one() -> None:
    system, bare = f'{STAMP},"role":"system","content":"p"', f'{STAMP},"role":"user","content":"u"'
    old = f'[{{{system}}},{{{system},"kind":null}},{{{bare}}}]'
    versioned = f'{{"version":0,"messages":{old}}}'
    unversioned = f'{{"messages":{old}}}'
    for document in (old, versioned, unversioned):
        assert [message.kind for message in codec.load(document)] == ["foreign", "foreign", None]


@pytest.mark.req("A1", "A7")
def test_old_bytes_are_upcast_and_a_kind_that_is_there_stays() -> None:
    old = f'{{{STAMP},"role":"system","content":"p","note":1}}'.encode()
    assert codec.decode(old, version=0).kind == "foreign"
    assert codec.decode(old, version=0).extra == {"note": 1}
    assert codec.decode(old[:-1] + b',"kind":"prompt"}', version=0).kind == "prompt"
    assert codec.from_builtins(json.loads(old), version=0).kind == "foreign"


@pytest.mark.req("A1", "A7")
def test_the_present_version_does_not_guess_a_kind() -> None:
    with pytest.raises(InvalidMessage, match="has content and a kind"):
        codec.decode(f'{{{STAMP},"role":"system","content":"p"}}'.encode())


def test_every_older_version_has_a_way_up() -> None:
    assert sorted(codec.UPCASTERS) == list(range(codec.VERSION))


@pytest.mark.req("A7")
@pytest.mark.parametrize(
    "document",
    [
        '{"version":2,"messages":[]}',
        '{"version":2,"messages":{"m1":{}}}',
        '{"version":2,"log":[]}',
        '{"version":99,"messages":[{"id":5}]}',
        f'{{"messages":[{{{STAMP},"role":"user","content":"x"}}],"version":2}}',
    ],
)
def test_a_newer_document_is_refused_before_anything_in_it_is_understood(document: str) -> None:
    with pytest.raises(NewerFormat, match="update Turnstate") as caught:
        codec.load(document)
    assert caught.value.path == "$.version"


@pytest.mark.req("A7")
def test_newer_bytes_are_refused_too() -> None:
    data = codec.encode(Message.user("x"))
    for call in (lambda: codec.decode(data, version=2), lambda: codec.from_builtins(5, version=2)):
        with pytest.raises(NewerFormat):
            call()


@pytest.mark.parametrize("version", ["-1", "true", '"1"', "1.0", "null", "[]"])
def test_a_version_is_a_whole_number(version: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        codec.load(f'{{"version":{version},"messages":[]}}')
    assert caught.value.path == "$.version"
    with pytest.raises(InvalidPayload):
        codec.decode(b"{}", version=json.loads(version))


# What is refused


@pytest.mark.parametrize(
    "document", ["{}", "5", "null", '"x"', '{"version":1}', '{"version":1,"messages":{}}']
)
def test_a_document_of_another_shape_is_refused(document: str) -> None:
    with pytest.raises(InvalidPayload):
        codec.load(document)


@pytest.mark.req("A3", "A6")
@pytest.mark.parametrize(
    ("message", "kind", "path"),
    [
        ('{%s,"role":"user","role":"user","content":"x"}', ForbiddenJSON, ""),
        ('{%s,"role":"user","content":"x","a":{"b":1,"b":1}}', ForbiddenJSON, ".a"),
        ('{%s,"role":"user","content":"\\ud800"}', ForbiddenJSON, ".content"),
        ('{%s,"role":"user","content":"x","a":[NaN]}', ForbiddenJSON, ".a[0]"),
        (
            '{%s,"role":"tool","tool_results":[{"tool_call_id":"c","result":{"x":1e999}}]}',
            ForbiddenJSON,
            ".tool_results[0].result.x",
        ),
        ('{%s,"role":"user"}', InvalidMessage, ""),
        ('{%s,"role":"robot","content":"x"}', InvalidMessage, ".role"),
        ('{%s,"role":"system","content":"x","kind":"other"}', InvalidMessage, ".kind"),
        ('{%s,"role":"user","content":5}', InvalidMessage, ".content"),
        ('{%s,"role":"user","content":[]}', InvalidMessage, ""),
        ('{%s,"role":"user","content":["x"]}', InvalidMessage, ".content[0]"),
        ('{%s,"role":"user","content":[[]]}', InvalidMessage, ".content[0]"),
        ('{%s,"role":"user","content":[{}]}', InvalidMessage, ".content[0]"),
        ('{%s,"role":"user","content":[{"type":"video"}]}', InvalidMessage, ".content[0].type"),
        ('{%s,"role":"user","content":[{"type":[]}]}', InvalidMessage, ".content[0].type"),
        ('{%s,"role":"user","content":[{"type":"image"}]}', InvalidMessage, ".content[0]"),
        ('{%s,"role":"user","content":[{"type":"image","data":"!"}]}', InvalidMessage, ".content[0].data"),
        ('{%s,"role":"user","content":[{"type":"text","text":null}]}', InvalidMessage, ".content[0].text"),
        ('{%s,"role":"assistant","tool_calls":{}}', InvalidMessage, ".tool_calls"),
        ('{%s,"role":"assistant","tool_calls":[{"id":"c","name":"n"}]}', InvalidMessage, ".tool_calls[0]"),
        (
            '{%s,"role":"assistant","tool_calls":[{"id":"c","name":"n","args":"{}"}]}',
            InvalidMessage,
            ".tool_calls[0].args",
        ),
        (
            '{%s,"role":"assistant","tool_calls":[{"id":"c","name":"","args":{}}]}',
            InvalidMessage,
            ".tool_calls[0]",
        ),
        ('{%s,"role":"tool","tool_results":[{"tool_call_id":"c"}]}', InvalidMessage, ".tool_results[0]"),
        (
            '{%s,"role":"tool","tool_results":[{"tool_call_id":"c","result":1,"is_error":1}]}',
            InvalidMessage,
            ".tool_results[0].is_error",
        ),
        ('{%s,"role":"user","content":"x","native":{}}', InvalidMessage, ".native"),
        (
            '{%s,"role":"user","content":"x","native":{"format":"f","edits":[{"at":[true]}]}}',
            InvalidMessage,
            ".native.edits[0].at[0]",
        ),
        ('{"id":"m1","timestamp":"now","role":"user","content":"x"}', InvalidMessage, ""),
        ('{"id":"","timestamp":"2024-05-06T07:08:09Z","role":"user","content":"x"}', InvalidMessage, ""),
        ('{"id":7,"timestamp":"2024-05-06T07:08:09Z","role":"user","content":"x"}', InvalidMessage, ".id"),
        ('{"timestamp":"2024-05-06T07:08:09Z","role":"user","content":"x"}', InvalidMessage, ""),
        ("[]", InvalidMessage, ""),
        ("null", InvalidMessage, ""),
    ],
)
def test_a_fault_is_told_with_the_path_in_the_document(
    message: str, kind: type[InputError], path: str
) -> None:
    message = message.replace("%s", STAMP)
    sound = f'{{{STAMP},"role":"user","content":"x"}}'
    with pytest.raises(InputError) as caught:
        codec.load(f'{{"version":1,"messages":[{sound},{message}]}}')
    assert (type(caught.value), caught.value.path) == (kind, f"$.messages[1]{path}")


@pytest.mark.req("A6")
def test_a_value_in_the_document_cannot_forge_the_path_or_flood_the_error() -> None:
    for hostile in ("x - at `$.evil`", "x - at `$.evil", "y" * 100_000):
        for fields in ({"role": hostile}, {"kind": hostile}, {"id": hostile, "timestamp": hostile}):
            with pytest.raises(InvalidMessage) as caught:
                codec.from_builtins(a_message(**fields))
            assert "evil" not in caught.value.path
            assert len(str(caught.value)) < 400


@pytest.mark.req("A6")
def test_damaged_bytes_are_a_typed_error_wherever_they_are_damaged() -> None:
    data = codec.encode(codec.load(GOLDEN)[1])
    for position in range(len(data)):
        for damaged in (data[:position], data[:position] + b"\xff" + data[position + 1 :]):
            with pytest.raises(MalformedJSON):
                codec.decode(damaged)


def test_nothing_but_a_message_comes_from_one_message() -> None:
    for data in (b"[]", b"5", b"null", b'"x"', b"{}", b""):
        with pytest.raises(InputError):
            codec.decode(data)


# Limits


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.req("A6")
def test_whatever_a_message_may_hold_can_be_read_back_from_any_document_around_it() -> None:
    value = deep(strict_json.MAX_VALUE_DEPTH)
    box = {"a": deep(strict_json.MAX_VALUE_DEPTH - 1)}
    native = Native(format="f", edits=(Edit(("a",), value),), envelope=box, extra=box)  # type: ignore[arg-type]
    call = ToolCallRequest(name="n", args=box, extra=box)  # type: ignore[arg-type]
    part = OpaquePart(format="f", body=box, extra=box)  # type: ignore[arg-type]
    messages = [
        Message.assistant([part], tool_calls=[call]).replace(native=native, extra=box),
        Message.tool([ToolCallResult(tool_call_id=call.id, result=value)]),
    ]
    assert codec.load(codec.dump(messages)) == messages
    assert [codec.decode(codec.encode(message)) for message in messages] == messages
    assert [codec.from_builtins(codec.to_builtins(message)) for message in messages] == messages


@pytest.mark.req("A6")
def test_a_value_too_deep_for_a_message_is_told_as_such_with_its_path() -> None:
    plain = a_message(
        role="tool", tool_results=[{"tool_call_id": "c", "result": deep(strict_json.MAX_VALUE_DEPTH + 1)}]
    )
    del plain["content"]
    with pytest.raises(TooLarge) as caught:
        codec.load(json.dumps([plain]))
    assert caught.value.path.startswith("$.messages[0].tool_results[0].result[0][0]")


@pytest.mark.req("A6")
def test_documents_have_a_limit_that_the_caller_may_move_and_kept_bytes_have_none() -> None:
    document = codec.dump([Message.user("x" * 1000)])
    with pytest.raises(TooLarge):
        codec.load(document, max_bytes=len(document) - 1)
    assert codec.load(document, max_bytes=len(document))
    big = Message.user("x" * strict_json.MAX_BYTES).replace(extra={"unknown": 1})
    assert codec.decode(codec.encode(big)) == big


@pytest.mark.req("A6")
def test_hostile_nesting_in_kept_bytes_is_a_typed_error() -> None:
    head = f'{{{STAMP},"role":"user","content":"x","a":'.encode()
    for depth in (500, 100_000):
        with pytest.raises(TooLarge):
            codec.decode(head + b"[" * depth + b"]" * depth + b"}")


def test_a_document_may_be_text_or_bytes_and_begin_with_a_byte_order_mark() -> None:
    document = codec.dump(codec.load(GOLDEN))
    assert codec.load(document.decode()) == codec.load(b"\xef\xbb\xbf" + document) == codec.load(GOLDEN)


def test_no_messages_are_a_document_too() -> None:
    assert codec.dump([]) == b'{"version":1,"messages":[]}'
    assert codec.load(codec.dump([])) == codec.load("[]") == []
