from __future__ import annotations

import json

import pytest

from tests.acceptance.cli_program import broken, conversation, jsonl, turnstate
from turnstate import formats

pytestmark = pytest.mark.req("P3")


def test_a_valid_conversation_exits_with_0() -> None:
    assert turnstate("validate", stdin=conversation()) == (0, "valid for openai-chat: 5 messages\n", "")


def test_an_invalid_one_exits_with_1_and_says_why() -> None:
    (violation,) = formats.get("openai-chat").validate(broken())
    code, out, err = turnstate("validate", stdin=broken())
    assert (code, err) == (1, "")
    assert out.splitlines() == [
        f"message 1: {violation.rule} (call_1): {violation.text}",
        "not valid for openai-chat: 1 violation in 2 messages",
    ]


def test_among_many_each_violation_names_its_conversation() -> None:
    lines = jsonl(conversation(id="a"), broken(id="b"), broken())
    code, out, _ = turnstate("validate", stdin=lines)
    second, third, total = out.splitlines()
    assert code == 1
    assert second.startswith("line 2 (b): message 1: ")
    assert third.startswith("line 3: message 1: ")
    assert total == "1 of 3 conversations valid for openai-chat, 2 violations"


def test_json_of_one_conversation_is_one_object() -> None:
    (violation,) = formats.get("openai-chat").validate(broken())
    code, out, _ = turnstate("validate", "--json", stdin=broken(id="b"))
    assert code == 1
    assert turnstate("validate", "--json", stdin=broken(id="b")).objects == [
        {
            "id": "b",
            "line": None,
            "messages": 2,
            "valid": False,
            "violations": [{"rule": violation.rule, "index": 1, "id": "call_1", "text": violation.text}],
            "warnings": [],
        }
    ]
    assert out.count("\n") == 1


def answered(**fields: object) -> list[object]:
    return [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello", **fields}]


@pytest.mark.req("A8")
def test_a_field_that_the_provider_does_not_declare_is_a_warning_and_exits_with_0() -> None:
    document = answered(reasoning_content="Hm.")
    code, out, _ = turnstate("validate", stdin=document)
    assert code == 0
    assert out.splitlines() == [
        "warning: message 1: unknown-field: no request declares the field messages[1].reasoning_content",
        "valid for openai-chat: 2 messages",
    ]
    (told,) = turnstate("validate", "--json", stdin=document).objects
    assert (told["valid"], told["violations"]) == (True, [])
    assert [one["rule"] for one in told["warnings"]] == ["unknown-field"]


@pytest.mark.req("A8")
def test_with_strict_a_field_that_the_provider_does_not_declare_exits_with_1() -> None:
    code, out, _ = turnstate("validate", "--strict", stdin=answered(reasoning_content="Hm."))
    assert code == 1
    assert out.splitlines()[-1] == "not valid for openai-chat: 1 violation in 2 messages"
    assert turnstate("validate", "--strict", stdin=conversation(id="a")).code == 0


@pytest.mark.req("A8")
def test_what_only_a_response_holds_exits_with_1_and_is_left_out_by_fit_and_convert() -> None:
    document = answered(annotations=[], refusal=None)
    code, out, _ = turnstate("validate", stdin=document)
    assert code == 1
    assert [line.split(":")[1] for line in out.splitlines()[:-1]] == [" response-field"] * 2
    for command in (["fit", "--budget", "1000"], ["convert", "--from", "openai-chat", "--to", "openai-chat"]):
        code, out, err = turnstate(*command, stdin=document)
        assert code == 0
        assert json.loads(out) == answered()
        assert "annotations" in err


def test_json_of_many_is_one_object_a_line_valid_or_not() -> None:
    code, out, _ = outcome = turnstate(
        "validate", "--json", stdin=jsonl(conversation(id="a"), broken(id="b"))
    )
    assert code == 1
    assert [(one["id"], one["line"], one["valid"]) for one in outcome.objects] == [
        ("a", 1, True),
        ("b", 2, False),
    ]
    assert outcome.objects[0]["violations"] == []
    assert out.count("\n") == 2


def test_the_rules_of_a_request_apply_when_asked_for() -> None:
    document = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
    assert turnstate("validate", "--format", "anthropic", stdin=document).code == 0
    code, out, _ = turnstate("validate", "--format", "anthropic", "--request", stdin=document)
    assert code == 1
    assert out.startswith("message 1: last-user: ")


def test_what_a_document_says_cannot_act_on_the_terminal() -> None:
    hostile = [{"role": "tool", "tool_call_id": "\x1b]0;owned\x07\n\u202e", "content": "x"}]
    code, out, _ = turnstate("validate", stdin=hostile)
    assert code == 1
    assert all(line.isprintable() for line in out.splitlines())
    assert len(out.splitlines()) == 2


def test_an_id_of_megabytes_does_not_flood_the_terminal() -> None:
    hostile = [{"role": "tool", "tool_call_id": "x" * 1_000_000, "content": "x"}]
    _, out, _ = turnstate("validate", stdin=hostile)
    assert len(out) < 3_000


def test_a_bad_line_outweighs_an_invalid_conversation() -> None:
    assert turnstate("validate", "--keep-going", stdin=jsonl(broken(), "x", conversation())).code == 2
