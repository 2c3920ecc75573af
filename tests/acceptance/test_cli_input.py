from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.acceptance.cli_program import conversation, into_a_pipe, jsonl, real_turnstate, turnstate

COMMANDS = {
    "count": ["count"],
    "validate": ["validate"],
    "convert": ["convert", "--from", "openai-chat", "--to", "anthropic"],
}

HOSTILE = {
    "not JSON": (b"hello", "not JSON"),
    "cut short": (b'[{"role": "user", "content": "hi"', "not JSON"),
    "trailing words": (b"[] []", "not JSON"),
    "single quotes": (b"[{'role': 'user'}]", "not JSON"),
    "NaN": (b'[{"role": "user", "content": NaN}]', "NaN is not JSON (at $[0].content)"),
    "infinity": (b'{"messages": [], "temperature": -Infinity}', "-Infinity is not JSON (at $.temperature)"),
    "a number out of range": (b"[1e999]", "1e999 is out of range (at $[0])"),
    "a huge integer": (b"[" + b"9" * 5_000 + b"]", "an integer of 5000 digits is out of range"),
    "a key twice": (
        b'[{"role": "user", "role": "tool"}]',
        "the key 'role' occurs twice in one object (at $[0])",
    ),
    "a lone surrogate": (b'[{"role": "user", "content": "\\ud800"}]', "a lone surrogate"),
    "a lone surrogate in a key": (b'[{"\\udfff": 1}]', "a key holds a lone surrogate"),
    "deep": (b"[" * 10_000 + b"]" * 10_000, "nested deeper"),
    "deep and never closed": (b"[" * 100_000, "nested deeper"),
    "deep objects": (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "nested deeper"),
    "a long string, never closed": (b'["' + b"x" * 10_000_000, "not JSON"),
    "binary garbage": (bytes(range(256)) * 100, "not UTF-8"),
    "a picture": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(500), "not UTF-8: byte 0 is 0x89"),
    "UTF-16": ("[]".encode("utf-16"), "not UTF-8: byte 0 is 0xff"),
    "Latin-1": ('["é"]'.encode("latin-1"), "not UTF-8: byte 2 is 0xe9"),
    "nothing": (b"", "empty; expected"),
    "white space": (b" \n\t\r\n", "empty; expected"),
}


@pytest.mark.req("P3")
@pytest.mark.parametrize("command", COMMANDS)
def test_hostile_input_is_one_line_and_exit_code_2(command: str) -> None:
    for name, (data, reason) in HOSTILE.items():
        code, out, err = turnstate(*COMMANDS[command], stdin=data)
        assert (code, out) == (2, ""), name
        assert err.startswith("turnstate: stdin: "), name
        assert reason in err, name
        assert err.count("\n") == 1, name
        assert len(err) < 300, name
        assert "Traceback" not in err, name


NO_CONVERSATION = {
    "a number": "42",
    "a string": '"hello"',
    "null": "null",
    "an object without messages": '{"foo": 1}',
    "messages that are no list": '{"messages": {"role": "user"}}',
    "numbers for messages": "[1, 2]",
    "lists for messages": "[[], []]",
    "a role that is none": '[{"role": "king", "content": "hi"}]',
    "content that is none": '[{"role": "user", "content": 7}]',
    "calls that are none": '[{"role": "assistant", "tool_calls": 7}]',
    "calls of nothing": '[{"role": "assistant", "tool_calls": [null, 1, "x", [], {}]}]',
}


@pytest.mark.parametrize("command", ["count", "convert"])
def test_json_that_is_not_a_conversation_is_one_line_and_exit_code_2(command: str) -> None:
    for name, text in NO_CONVERSATION.items():
        code, out, err = turnstate(*COMMANDS[command], stdin=text)
        assert (code, out) == (2, ""), name
        assert err.startswith("turnstate: stdin: "), name
        assert err.count("\n") == 1, name


def test_json_that_is_not_a_conversation_is_not_valid() -> None:
    for name, text in NO_CONVERSATION.items():
        code, out, err = turnstate("validate", stdin=text)
        assert (code, err) == (1, ""), name
        assert "not valid for openai-chat" in out, name


def test_a_string_of_ten_megabytes_is_taken() -> None:
    code, out, _ = turnstate("validate", stdin=[{"role": "user", "content": "x" * 10_000_000}])
    assert (code, out) == (0, "valid for openai-chat: 1 message\n")


UNREADABLE = {
    "missing": ("missing.json", "there is no such file"),
    "a directory": (".", "Is a directory"),
    "inside a file": ("plain.json/inside", "Not a directory"),
    "a name that is too long": ("x" * 5_000, "File name too long"),
    "a name with control characters": (
        "a\nb\x1b[31m\u202e.json",
        r"a\nb\x1b[31m\u202e.json: there is no such file",
    ),
    "a name that is not UTF-8": (os.fsdecode(b"caf\xe9.json"), r"caf\xe9.json: there is no such file"),
}


def test_a_file_that_cannot_be_read_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain.json").write_text("[]")
    monkeypatch.chdir(tmp_path)
    for case, (name, reason) in UNREADABLE.items():
        code, out, err = turnstate("count", name)
        assert (code, out) == (2, ""), case
        assert reason in err, case
        assert err.count("\n") == 1, case
        assert err[:-1].isprintable(), case


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_forbidden_file_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "secret.json"
    path.write_text("[]")
    path.chmod(0)
    assert turnstate("count", path) == (2, "", f"turnstate: {path}: cannot be read: Permission denied\n")


def test_a_file_with_a_hostile_name_is_read(tmp_path: Path) -> None:
    name = os.path.join(os.fsencode(tmp_path), b"caf\xe9 \x1b[31m.jsonl")
    with open(name, "wb") as file:
        file.write(jsonl(conversation(), "broken").encode())
    done = into_a_pipe("count", os.fsdecode(name))
    assert done.code == 2
    assert done.err.endswith("caf\\xe9 \\x1b[31m.jsonl line 2: not JSON: Expecting value, line 1 column 1\n")


@pytest.mark.parametrize("arguments", [["-"], []])
def test_standard_input_is_the_default_and_has_a_name(arguments: list[str]) -> None:
    assert turnstate("validate", *arguments, stdin=conversation()).code == 0


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS.keys())
def test_a_bad_line_ends_the_walk_after_what_came_before(arguments: list[str], tmp_path: Path) -> None:
    twice = '{"id": "c", "messages": [{}, {}, {"a": 1, "a": 2}]}'
    path = tmp_path / "conversations.jsonl"
    path.write_text(jsonl(conversation(id="a"), conversation(id="b"), twice, conversation(id="d")))
    code, out, err = turnstate(*arguments, path)
    assert code == 2
    assert err == (f"turnstate: {path} line 3: the key 'a' occurs twice in one object (at $.messages[2])\n")
    assert "total" not in out
    if arguments[0] != "validate":
        assert len(out.splitlines()) == 2


@pytest.mark.req("P3")
@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS.keys())
def test_keep_going_reports_every_bad_line_and_takes_the_others(arguments: list[str]) -> None:
    lines = jsonl("broken", conversation(id="a"), "", '{"id": NaN}', conversation(id="b"), '["\\ud800"]')
    code, out, err = turnstate(*arguments, "--keep-going", stdin=lines)
    assert code == 2
    assert [line.partition(": not")[0].partition(": NaN")[0][:23] for line in err.splitlines()] == [
        "turnstate: stdin line 1",
        "turnstate: stdin line 4",
        "turnstate: stdin line 6",
    ]
    if arguments[0] == "convert":
        assert [json.loads(line)["id"] for line in out.splitlines()] == ["a", "b"]
    elif arguments[0] == "count":
        assert out.splitlines()[-1].endswith("total of 2")
    else:
        assert out == "2 of 2 conversations valid for openai-chat, 0 violations\n"


def test_keep_going_changes_nothing_for_one_document() -> None:
    code, out, err = turnstate("count", "--keep-going", stdin="[NaN]")
    assert (code, out, err) == (2, "", "turnstate: stdin: NaN is not JSON (at $[0])\n")


def test_a_line_that_is_no_conversation_is_bad_input_too() -> None:
    lines = jsonl(conversation(id="a"), {"role": "user", "content": "a message, not a conversation"})
    code, _, err = turnstate("count", stdin=lines)
    assert code == 2
    assert err.startswith(
        "turnstate: stdin line 2: expected a list of messages, or an object with `messages`"
    )


def test_the_real_program_is_as_strict() -> None:
    done = real_turnstate("validate", stdin=b"[" * 100_000)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("turnstate: stdin: nested deeper")
    assert done.err.count("\n") == 1
