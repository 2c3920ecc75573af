"""Messages: who may say what, what is refused and how, and that a message stays as it was made."""

from __future__ import annotations

import copy
import enum
import pickle
from typing import Any, get_args

import msgspec
import pytest

from turnstate import (
    ImagePart,
    Message,
    OpaquePart,
    ReasoningPart,
    TextPart,
    ToolCallRequest,
    ToolCallResult,
    codec,
    ids,
)
from turnstate.errors import ForbiddenJSON, InputError, InvalidMessage, TooLarge
from turnstate.message import Role, SystemKind, is_timestamp
from turnstate.part import Edit, Native

WHEN = "2024-05-06T07:08:09.123Z"
CALL = ToolCallRequest(id=ids.CallId("call_1"), name="ls", args={"path": "."})
RESULT = ToolCallResult(tool_call_id=CALL.id, result=["a.txt"])


def make(role: Any, **fields: Any) -> Message:
    return Message(**{"id": "m1", "timestamp": WHEN, "role": role, **fields})


def type_name(value: object) -> str:
    return type(value).__name__


def wire(value: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return plain


# Roles and kinds


@pytest.mark.req("A1")
def test_there_are_four_roles_and_four_kinds_of_system_message() -> None:
    assert get_args(Role) == ("system", "user", "assistant", "tool")
    assert get_args(SystemKind) == ("prompt", "bootstrap", "summary", "foreign")


@pytest.mark.req("A1")
@pytest.mark.parametrize("kind", get_args(SystemKind))
def test_a_system_message_is_of_any_of_the_kinds(kind: SystemKind) -> None:
    assert Message.system("You keep a lighthouse.", kind=kind).kind == kind


@pytest.mark.req("A1")
def test_a_system_message_from_a_list_from_outside_is_foreign() -> None:
    assert Message.system("You keep a lighthouse.").kind == "foreign"


@pytest.mark.req("A1")
def test_a_system_message_without_a_kind_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="has content and a kind"):
        make("system", content="x")


@pytest.mark.req("A1")
@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_only_a_system_message_has_a_kind(role: str) -> None:
    fields: dict[str, Any] = {"tool_results": [RESULT]} if role == "tool" else {"content": "x"}
    with pytest.raises(InvalidMessage, match=r"and kind$"):
        make(role, kind="prompt", **fields)


@pytest.mark.req("A1")
@pytest.mark.parametrize(
    "role", ["developer", "function", "model", "User", "user ", "", None, 5, ["user"], b"user"]
)
def test_no_other_role_exists(role: Any) -> None:
    with pytest.raises(InputError):
        make(role, content="x")


@pytest.mark.req("A1")
@pytest.mark.parametrize("kind", ["Prompt", "", 5, ["prompt"], {}])
def test_no_other_kind_exists(kind: Any) -> None:
    with pytest.raises(InputError):
        make("system", content="x", kind=kind)


# Which fields go with which role

CONTENT: list[Any] = ["x", "", [TextPart("x")]]
NO_CONTENT: list[Any] = [None, [], ()]


@pytest.mark.req("A3")
@pytest.mark.parametrize("role", ["user", "system"])
@pytest.mark.parametrize("content", CONTENT)
def test_user_and_system_say_something_and_nothing_else(role: str, content: Any) -> None:
    kind = "prompt" if role == "system" else None
    assert make(role, content=content, kind=kind).content in ("x", "", (TextPart("x"),))
    for also in ({"tool_calls": [CALL]}, {"tool_results": [RESULT]}):
        with pytest.raises(InvalidMessage, match="nothing else; this one has content and tool_"):
            make(role, content=content, kind=kind, **also)


@pytest.mark.req("A3")
@pytest.mark.parametrize("role", ["user", "system"])
@pytest.mark.parametrize("content", NO_CONTENT)
def test_user_and_system_cannot_say_nothing(role: str, content: Any) -> None:
    with pytest.raises(InvalidMessage):
        make(role, content=content, kind="prompt" if role == "system" else None)


@pytest.mark.req("A3")
@pytest.mark.parametrize("content", CONTENT + NO_CONTENT)
@pytest.mark.parametrize("calls", [[CALL], [], (), None])
def test_the_assistant_says_something_or_calls_tools_or_both_never_neither(content: Any, calls: Any) -> None:
    if content in NO_CONTENT and not calls:
        with pytest.raises(InvalidMessage, match="this one has nothing"):
            make("assistant", content=content, tool_calls=calls)
    else:
        message = make("assistant", content=content, tool_calls=calls)
        assert message.content == (None if content in NO_CONTENT else make("user", content=content).content)
        assert message.tool_calls == ((CALL,) if calls else ())


@pytest.mark.req("A3")
def test_empty_text_is_content() -> None:
    assert Message.assistant("").content == ""
    assert codec.decode(codec.encode(Message.assistant(""))).content == ""


@pytest.mark.req("A3")
def test_the_assistant_holds_no_results() -> None:
    with pytest.raises(InvalidMessage):
        make("assistant", content="x", tool_results=[RESULT])


@pytest.mark.req("A3")
def test_a_tool_message_holds_results_and_nothing_else() -> None:
    assert make("tool", tool_results=[RESULT]).tool_results == (RESULT,)
    for also in ({"content": "x"}, {"content": ""}, {"tool_calls": [CALL]}):
        with pytest.raises(InvalidMessage, match="a tool message has tool_results, nothing else"):
            make("tool", tool_results=[RESULT], **also)


@pytest.mark.req("A3")
@pytest.mark.parametrize("results", [None, [], ()])
def test_a_tool_message_is_never_empty(results: Any) -> None:
    with pytest.raises(InvalidMessage):
        make("tool", tool_results=results)


@pytest.mark.req("A3")
def test_an_empty_list_is_the_same_as_an_absent_one() -> None:
    bare = make("assistant", content="x")
    for empty in ([], (), None):
        assert make("assistant", content="x", tool_calls=empty, tool_results=empty) == bare
        assert make("assistant", content=empty, tool_calls=[CALL]) == make("assistant", tool_calls=[CALL])
    for text in ("[]", "null"):
        document = codec.encode(bare)[:-1] + f',"tool_calls":{text},"tool_results":{text}}}'.encode()
        assert codec.decode(document) == bare
        assert codec.encode(codec.decode(document)) == codec.encode(bare)


@pytest.mark.req("A3")
def test_a_refusal_names_the_message_the_rule_and_what_it_has() -> None:
    with pytest.raises(InvalidMessage) as caught:
        make("tool", content="x")
    assert (
        str(caught.value) == "message m1: a tool message has tool_results, nothing else; this one has content"
    )


# Content


@pytest.mark.req("A2")
def test_a_plain_string_stays_a_plain_string() -> None:
    message = Message.user("hi")
    assert message.content == "hi"
    assert wire(message)["content"] == "hi"
    assert codec.decode(codec.encode(message)).content == "hi"


@pytest.mark.req("A2")
def test_one_text_part_stays_a_list_of_one_part() -> None:
    message = Message.user([TextPart("hi")])
    assert message.content == (TextPart("hi"),)
    assert wire(message)["content"] == [{"type": "text", "text": "hi"}]
    assert message != message.replace(content="hi")


@pytest.mark.req("A2")
def test_content_may_mix_words_media_and_reasoning() -> None:
    parts = [ReasoningPart("hm", signature="s"), TextPart("a"), ImagePart(url="u"), TextPart("b")]
    message = Message.assistant(parts)
    assert message.parts == tuple(parts)
    assert message.text == "a\nb"


@pytest.mark.req("A2")
def test_parts_and_text_of_a_string_and_of_nothing() -> None:
    assert Message.user("hi").parts == (TextPart("hi"),)
    assert Message.user("hi").text == "hi"
    silent = Message.assistant(tool_calls=[CALL])
    assert (silent.parts, silent.text) == ((), "")
    assert Message.assistant([OpaquePart(format="x", body={}, text="[x]")]).text == ""


@pytest.mark.req("A6")
@pytest.mark.parametrize(
    "text", ["\0", "a\0b", "語😀\u2028\ufffe\uffff", "\x1b[31m", "\r\n", "<|endoftext|>", "\\u0000"]
)
def test_every_text_that_has_a_utf8_form_is_kept_as_it_is(text: str) -> None:
    message = Message.user(text)
    assert message.content == text
    assert codec.decode(codec.encode(message)) == message
    assert codec.load(codec.dump([message])) == [message]


@pytest.mark.req("A6")
@pytest.mark.parametrize(
    ("role", "fields", "path"),
    [
        ("user", {"content": "\ud800"}, "content"),
        ("user", {"content": "ok \udfff"}, "content"),
        ("user", {"content": "x", "id": "\ud800"}, "id"),
        ("user", {"content": "x", "timestamp": b"2024"}, "timestamp"),
        ("user", {"content": "x", "extra": {"a": "\ud800"}}, "extra.a"),
        ("user", {"content": "x", "extra": {"a": [float("nan")]}}, "extra.a[0]"),
    ],
)
def test_text_without_a_utf8_form_is_refused_by_the_name_of_its_field(
    role: str, fields: Any, path: str
) -> None:
    with pytest.raises(ForbiddenJSON) as caught:
        make(role, **fields)
    assert caught.value.path == path


# Calls and results


@pytest.mark.req("A2")
def test_the_names_on_the_wire_are_exactly_these() -> None:
    asked = make("assistant", content="on it", tool_calls=[CALL])
    answered = make("tool", tool_results=[RESULT])
    assert codec.encode(asked) == (
        b'{"id":"m1","timestamp":"2024-05-06T07:08:09.123Z","role":"assistant","content":"on it",'
        b'"tool_calls":[{"id":"call_1","name":"ls","args":{"path":"."}}]}'
    )
    assert codec.encode(answered) == (
        b'{"id":"m1","timestamp":"2024-05-06T07:08:09.123Z","role":"tool",'
        b'"tool_results":[{"tool_call_id":"call_1","result":["a.txt"],"is_error":false}]}'
    )


@pytest.mark.req("A2")
def test_what_must_be_there_is_always_written_and_what_is_absent_never() -> None:
    assert wire(make("user", content="")) == {"id": "m1", "timestamp": WHEN, "role": "user", "content": ""}
    assert wire(ToolCallRequest(id=ids.CallId("c"), name="ls", args={})) == {
        "id": "c",
        "name": "ls",
        "args": {},
    }
    assert wire(ToolCallResult(tool_call_id=ids.CallId("c"), result=None)) == {
        "tool_call_id": "c",
        "result": None,
        "is_error": False,
    }
    assert wire(make("system", content="x", kind="prompt"))["kind"] == "prompt"


@pytest.mark.req("A6")
@pytest.mark.parametrize(
    "result", [0, False, "", None, [], {}, 0.0, -1, "text", [0], {"a": None}, 2**64, 10**40]
)
def test_any_json_value_is_a_result(result: Any) -> None:
    message = Message.tool([ToolCallResult(tool_call_id=CALL.id, result=result)])
    for again in (codec.decode(codec.encode(message)), *codec.load(codec.dump([message]))):
        assert again == message
        assert type(again.tool_results[0].result) is type(result)


@pytest.mark.req("A6")
@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), ""),
        (float("-inf"), ""),
        ({"a": [0, float("inf")]}, ".a[1]"),
        ({"a": "\ud800"}, ".a"),
        ({"a": {"\ud800": 1}}, ".a"),
        ({"a": {1: 2}}, ".a"),
        ({"a": b"x"}, ".a"),
        ({"a": {1, 2}}, ".a"),
        ({"a": object()}, ".a"),
        ({"a": 10**4300}, ".a"),
    ],
)
def test_what_is_no_faithful_json_is_refused_in_args_and_results_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(ForbiddenJSON) as caught:
        ToolCallResult(tool_call_id=CALL.id, result=value)
    assert caught.value.path == f"result{path}"
    with pytest.raises(ForbiddenJSON) as caught:
        ToolCallRequest(name="ls", args={"value": value})
    assert caught.value.path == f"args.value{path}"


@pytest.mark.req("A6")
def test_what_is_nested_too_deeply_or_endlessly_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    with pytest.raises(TooLarge):
        ToolCallRequest(name="ls", args=loop)
    with pytest.raises(TooLarge):
        ToolCallResult(tool_call_id=CALL.id, result=loop)


@pytest.mark.req("A5")
def test_results_name_their_call_and_may_stand_in_any_order() -> None:
    calls = [ToolCallRequest(name="ls", args={}) for _ in range(3)]
    results = [ToolCallResult(tool_call_id=call.id, result=number) for number, call in enumerate(calls)]
    asked, answered = Message.assistant(tool_calls=calls), Message.tool(reversed(results))
    answers = {result.tool_call_id: result.result for result in answered.tool_results}
    assert [answers[call.id] for call in asked.tool_calls] == [0, 1, 2]


@pytest.mark.req("A5")
def test_two_calls_of_one_message_cannot_share_an_id() -> None:
    with pytest.raises(InvalidMessage, match="two of its tool calls have the same id"):
        Message.assistant(tool_calls=[CALL, ToolCallRequest(id=CALL.id, name="rm", args={})])


@pytest.mark.req("A4")
def test_the_providers_own_id_of_a_call_is_kept_beside_ours() -> None:
    call = ToolCallRequest(name="ls", args={}, provider_id="toolu_01")
    assert call.id != call.provider_id
    assert wire(call)["provider_id"] == "toolu_01"
    two = Message.assistant(tool_calls=[call, ToolCallRequest(name="ls", args={}, provider_id="toolu_01")])
    assert codec.decode(codec.encode(two)) == two  # providers repeat ids


# Ids and times


@pytest.mark.req("A4")
def test_constructors_mint_what_is_not_given() -> None:
    made = [Message.user("a"), Message.assistant("b"), Message.tool([RESULT]), Message.system("c")]
    assert [message.id for message in made] == sorted({message.id for message in made})
    assert all(is_timestamp(message.timestamp) for message in made)
    assert ToolCallRequest(name="a", args={}).id < ToolCallRequest(name="a", args={}).id


@pytest.mark.req("A4")
def test_constructors_take_what_is_given() -> None:
    stamp: Any = {"id": "mine", "timestamp": WHEN}
    made = [
        Message.user("a", **stamp),
        Message.assistant("b", **stamp),
        Message.tool([RESULT], **stamp),
        Message.system("c", **stamp),
    ]
    assert {(message.id, message.timestamp) for message in made} == {("mine", WHEN)}


@pytest.mark.req("A7")
@pytest.mark.parametrize(
    "timestamp", ["2024-05-06T07:08:09Z", "1970-01-01T00:00:00Z", "2024-05-06T07:08:09.123456789Z"]
)
def test_a_timestamp_is_kept_to_the_letter(timestamp: str) -> None:
    assert codec.decode(codec.encode(Message.user("x", timestamp=timestamp))).timestamp == timestamp


@pytest.mark.req("A7")
@pytest.mark.parametrize(
    "timestamp", ["", "2024-05-06", "2024-05-06T07:08:09+00:00", "2024-02-30T00:00:00Z", "yesterday"]
)
def test_a_timestamp_that_is_no_moment_in_utc_is_refused(timestamp: str) -> None:
    with pytest.raises(InvalidMessage, match="is not ISO-8601 in UTC with a final Z"):
        Message.user("x", timestamp=timestamp)


@pytest.mark.req("A7")
def test_messages_are_not_ordered_by_their_time() -> None:
    with pytest.raises(TypeError):
        _ = Message.user("a") < Message.user("b")  # type: ignore[operator]


# Wrong types


class Anything:
    """Compares and looks like nothing in particular."""


SOUND: dict[str, dict[str, Any]] = {
    "user": {"content": "x"},
    "assistant": {"content": "x", "tool_calls": [CALL]},
    "tool": {"tool_results": [RESULT]},
    "system": {"content": "x", "kind": "prompt"},
}
FIELDS = ("id", "timestamp", "role", "content", "tool_calls", "tool_results", "kind", "native", "extra")
ODD: list[Any] = [
    5,
    0,
    1.5,
    True,
    False,
    b"x",
    {1: 2},
    {1},
    object(),
    Anything,
    [5],
    [None],
    ["x"],
    [[]],
    (5,),
]


@pytest.mark.req("A3")
@pytest.mark.parametrize("role", get_args(Role))
@pytest.mark.parametrize("field", FIELDS)
def test_a_wrong_type_anywhere_is_a_typed_error(role: str, field: str) -> None:
    for value in ODD:
        with pytest.raises(InputError):
            make(**{"role": role, **SOUND[role], field: value})


@pytest.mark.req("A3")
@pytest.mark.parametrize(
    "value", [None, 5, CALL, {"a": CALL}, "abc", b"abc", Anything, [None], [RESULT], [CALL, "x"]]
)
def test_constructors_refuse_wrong_types_by_typed_errors(value: Any) -> None:
    with pytest.raises(InvalidMessage):
        Message.assistant("x", tool_calls=value)
    with pytest.raises(InvalidMessage):
        Message.tool([CALL] if value == [RESULT] else value)
    if not isinstance(value, str):
        with pytest.raises(InvalidMessage):
            Message.user(value)


@pytest.mark.req("A3")
@pytest.mark.parametrize(
    ("kind", "fields", "path"),
    [
        (ToolCallRequest, {"name": "", "args": {}}, ""),
        (ToolCallRequest, {"name": "x", "args": {}, "id": ""}, ""),
        (ToolCallRequest, {"name": None, "args": {}}, "name"),
        (ToolCallRequest, {"name": "\ud800", "args": {}}, "name"),
        (ToolCallRequest, {"name": "x", "args": {}, "id": 5}, "id"),
        (ToolCallRequest, {"name": "x", "args": {}, "provider_id": 0}, "provider_id"),
        (ToolCallRequest, {"name": "x", "args": None}, "args"),
        (ToolCallRequest, {"name": "x", "args": []}, "args"),
        (ToolCallRequest, {"name": "x", "args": '{"a":1}'}, "args"),
        (ToolCallResult, {"tool_call_id": "", "result": 1}, ""),
        (ToolCallResult, {"tool_call_id": None, "result": 1}, "tool_call_id"),
        (ToolCallResult, {"tool_call_id": "c", "result": 1, "is_error": 1}, "is_error"),
        (ToolCallResult, {"tool_call_id": "c", "result": 1, "is_error": None}, "is_error"),
        (ToolCallResult, {"tool_call_id": "c", "result": 1, "is_error": "false"}, "is_error"),
    ],
)
def test_a_wrong_call_or_result_is_refused_by_a_typed_error(kind: type[Any], fields: Any, path: str) -> None:
    with pytest.raises(InputError) as caught:
        kind(**fields)
    assert caught.value.path == path


class Speaker(enum.StrEnum):
    USER = "user"


class Fancy(str):
    __slots__ = ()


@pytest.mark.req("A2")
def test_text_of_a_special_kind_becomes_plain_text() -> None:
    message = Message(id=Fancy("m1"), timestamp=Fancy(WHEN), role=Speaker.USER, content=Fancy("hi"))  # type: ignore[arg-type]
    assert message == make("user", content="hi")
    for value in (message.id, message.timestamp, message.role, message.content):
        assert type(value) is str
    assert codec.decode(codec.encode(message)) == message


# Immutability


@pytest.mark.req("A7")
@pytest.mark.parametrize("value", [make("assistant", content="x", tool_calls=[CALL]), CALL, RESULT])
def test_no_field_can_be_set_or_deleted(value: Any) -> None:
    for field in value.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(value, field, "other")
        with pytest.raises(AttributeError):
            delattr(value, field)
    with pytest.raises(AttributeError):
        value.surprise = 1


@pytest.mark.req("A7")
def test_a_message_does_not_change_with_what_it_was_made_from() -> None:
    args, result = {"paths": ["."]}, {"files": ["a"]}
    call = ToolCallRequest(name="ls", args=args)
    calls, parts = [call], [TextPart("x")]
    answer = ToolCallResult(tool_call_id=call.id, result=result)
    extra: dict[str, Any] = {"tags": []}
    asked = make("assistant", content=parts, tool_calls=calls, extra=extra)
    before = codec.encode(asked), answer.result
    args["paths"].append("..")
    result["files"].clear()
    extra["tags"].append("x")
    calls.append(call)
    parts.clear()
    assert (codec.encode(asked), answer.result) == (before[0], {"files": ["a"]})


@pytest.mark.req("A7")
def test_messages_are_equal_by_value_and_can_be_copied_and_sent_to_other_processes() -> None:
    message = make("assistant", content=[TextPart("x")], tool_calls=[CALL], extra={"a": 1})
    assert message == make("assistant", content=(TextPart("x"),), tool_calls=(CALL,), extra={"a": 1})
    assert message != make("assistant", content=[TextPart("x")], tool_calls=[CALL])
    for again in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert again == message
        assert codec.encode(again) == codec.encode(message)


# Replacing

NATIVE = Native(format="openai-chat", edits=(Edit(("a",), 1),), starts=True, envelope={"model": "m"})


@pytest.mark.req("A7")
def test_replace_gives_a_changed_copy_and_leaves_the_message_alone() -> None:
    message = make("user", content="x")
    changed = message.replace(content="y")
    assert (message.content, changed.content) == ("x", "y")
    assert changed.id == message.id


@pytest.mark.req("A3", "A7")
def test_replace_holds_to_the_same_rules() -> None:
    message = make("assistant", content="x", tool_calls=[CALL])
    assert message.replace(tool_calls=[]).tool_calls == ()
    assert message.replace(content=[]).content is None
    for changes in ({"role": "user"}, {"content": None, "tool_calls": []}, {"content": 5}, {"id": ""}):
        with pytest.raises(InputError):
            message.replace(**changes)


@pytest.mark.parametrize("changes", [{"content": "y"}, {"tool_calls": [CALL]}, {"role": "user"}])
def test_a_message_that_says_something_else_drops_the_edits_of_its_document(changes: Any) -> None:
    changed = make("assistant", content="x", native=NATIVE).replace(**changes)
    assert changed.native == Native(format="openai-chat", envelope={"model": "m"})


@pytest.mark.parametrize(
    "changes", [{"id": "m2"}, {"timestamp": "2024-01-01T00:00:00Z"}, {"extra": {"a": 1}}, {}]
)
def test_a_message_that_says_the_same_keeps_them(changes: Any) -> None:
    assert make("assistant", content="x", native=NATIVE).replace(**changes).native == NATIVE


def test_replace_takes_the_edits_that_it_is_given() -> None:
    assert make("assistant", content="x", native=NATIVE).replace(content="y", native=None).native is None


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"format": None}, "format"),
        ({"format": "x", "edits": [Edit(("a",))]}, "edits"),
        ({"format": "x", "edits": (1,)}, "edits"),
        ({"format": "x", "starts": 1}, "starts"),
        ({"format": "x", "envelope": []}, "envelope"),
        ({"format": "x", "envelope": {"a": float("nan")}}, "envelope.a"),
    ],
)
def test_what_a_document_said_is_checked_like_everything_else(fields: Any, path: str) -> None:
    with pytest.raises(InputError) as caught:
        Native(**fields)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("at", "to", "path"),
    [
        ("a", 1, "at"),
        (["a"], 1, "at"),
        ((1.5,), 1, "at"),
        ((True,), 1, "at"),
        (("\ud800",), 1, "at[0]"),
        ((), {1: 2}, "to"),
    ],
)
def test_an_edit_is_a_path_of_keys_and_positions_and_a_json_value(at: Any, to: Any, path: str) -> None:
    with pytest.raises(InputError) as caught:
        Edit(at, to)
    assert caught.value.path == path


@pytest.mark.req("A6")
@pytest.mark.parametrize(
    ("output", "kept"),
    [
        ("caf\udce9", "caf\ufffd"),
        (float("nan"), "nan"),
        (b"bytes", "bytes"),
        ({"n": {1, 2}}, {"n": [1, 2]}),
        ("a\0b", "a\0b"),
        (None, None),
        (False, False),
    ],
)
def test_whatever_a_tool_gave_becomes_a_result(output: object, kept: object) -> None:
    result = ToolCallResult.of("call_1", output, is_error=True)
    assert (result.tool_call_id, result.result, result.is_error) == ("call_1", kept, True)
