from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_program import broken, conversation, jsonl, turnstate
from turnstate import formats
from turnstate.formats.exports import read_jsonl

pytestmark = pytest.mark.req("P3")

OTHERS = [name for name in formats.names() if name != "openai-chat"]


def converted(payload: Any, source: str, target: str) -> Any:
    code, out, _ = turnstate("convert", "--from", source, "--to", target, stdin=payload)
    assert code == 0
    return json.loads(out)


@pytest.mark.parametrize("name", OTHERS)
def test_a_document_becomes_what_the_other_provider_takes(name: str) -> None:
    result = converted(conversation()["messages"], "openai-chat", name)
    assert (
        result
        == formats.convert(conversation()["messages"], formats.get("openai-chat"), formats.get(name)).document
    )
    assert formats.get(name).validate(result) == []


@pytest.mark.parametrize("name", formats.names())
def test_within_one_format_nothing_changes(name: str) -> None:
    document = converted(conversation(id="a", note={"kept": [1.0, None]}), "openai-chat", name)
    assert converted(document, name, name) == document


def test_one_document_is_indented() -> None:
    document = [{"role": "user", "content": "héllo"}]
    _, out, err = turnstate("convert", "--from", "openai-chat", "--to", "openai-chat", stdin=document)
    assert out == json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    assert err == ""


def test_jsonl_stays_jsonl_and_compact() -> None:
    lines = jsonl(conversation(id="a"), conversation()["messages"], conversation(id="c"))
    code, out, _ = outcome = turnstate("convert", "--from", "openai-chat", "--to", "anthropic", stdin=lines)
    assert code == 0
    assert [one.get("id") for one in outcome.objects] == ["a", None, "c"]
    assert out.startswith('{"id":"a",')
    assert all(one["system"] == "You help." for one in outcome.objects)


@pytest.mark.parametrize("name", OTHERS)
def test_annotations_travel_there_and_back(name: str) -> None:
    document = conversation(id="a", split="train", score={"value": 0.5})
    there = converted(document, "openai-chat", name)
    back = converted(there, name, "openai-chat")
    for result in (there, back):
        assert {key: result[key] for key in ("id", "split", "score")} == {
            "id": "a",
            "split": "train",
            "score": {"value": 0.5},
        }
    assert list(there)[:3] == ["id", "split", "score"]
    assert [message["role"] for message in back["messages"]] == [
        message["role"] for message in document["messages"]
    ]


def test_an_annotation_never_replaces_a_field_of_the_provider() -> None:
    code, out, err = turnstate(
        "convert", "--from", "openai-chat", "--to", "anthropic", stdin=conversation(system="Another one.")
    )
    assert code == 0
    assert json.loads(out)["system"] == "You help."
    assert err == "turnstate: stdin: note: the field `system` is replaced by the provider's own\n"


def test_what_is_left_out_is_told_on_stderr() -> None:
    document = conversation(model="gpt-4o", id="a")
    arguments = ["convert", "--from", "openai-chat", "--to", "anthropic"]
    code, out, err = turnstate(*arguments, stdin=document)
    assert code == 0
    assert err == "turnstate: stdin: note: message 0: the request's field `model`\n"
    assert turnstate(*arguments, "--quiet", stdin=document) == (0, out, "")


def test_a_result_that_would_be_rejected_is_written_and_exits_with_1() -> None:
    document = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]}]  # fmt: skip
    code, out, err = turnstate("convert", "--from", "openai-chat", "--to", "anthropic", stdin=document)
    assert code == 1
    assert json.loads(out)["messages"]
    assert err.startswith("turnstate: stdin: anthropic would reject the result: message 1: ")


def test_a_file_is_written_and_nothing_shown(tmp_path: Path) -> None:
    place = tmp_path / "out.json"
    arguments = ["convert", "--from", "openai-chat", "--to", "gemini", "--output", place]
    assert turnstate(*arguments, stdin=conversation()) == (0, "", "")
    assert json.loads(place.read_text()) == converted(conversation(), "openai-chat", "gemini")
    assert os.listdir(tmp_path) == ["out.json"]


def test_an_existing_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    place = tmp_path / "out.json"
    place.write_text("precious")
    place.chmod(0o640)
    arguments = ["convert", "--from", "openai-chat", "--to", "gemini", "--output", place]
    code, out, err = turnstate(*arguments, stdin=conversation())
    assert (code, out) == (2, "")
    assert err == f"turnstate: {place}: already exists; pass --force to replace it\n"
    assert place.read_text() == "precious"
    assert turnstate(*arguments, "--force", stdin=conversation()).code == 0
    assert "contents" in json.loads(place.read_text())
    assert stat.S_IMODE(place.stat().st_mode) == 0o640


def test_a_file_may_be_converted_in_place(tmp_path: Path) -> None:
    place = tmp_path / "conversations.jsonl"
    place.write_text(jsonl(*(conversation(id=number) for number in range(500))))
    arguments = ["convert", "--from", "openai-chat", "--to", "gemini", place, "--output", place, "--force"]
    assert turnstate(*arguments).code == 0
    assert [json.loads(line)["id"] for line in place.read_text().splitlines()] == list(range(500))


def test_a_link_is_followed_not_replaced(tmp_path: Path) -> None:
    link, place = tmp_path / "link", tmp_path / "out.json"
    link.symlink_to(place)
    assert (
        turnstate(
            "convert", "--from", "openai-chat", "--to", "gemini", "--output", link, stdin=conversation()
        ).code
        == 0
    )
    assert link.is_symlink()
    assert place.is_file()


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_failure_leaves_what_was_there(force: list[str], tmp_path: Path) -> None:
    place = tmp_path / "out.jsonl"
    if force:
        place.write_text("precious")
    arguments = ["convert", "--from", "openai-chat", "--to", "gemini", "--output", place, *force]
    code, _, err = turnstate(*arguments, stdin=jsonl(conversation(), "broken"))
    assert code == 2
    assert err.startswith("turnstate: stdin line 2: ")
    assert os.listdir(tmp_path) == (["out.jsonl"] if force else [])
    assert not force or place.read_text() == "precious"


def test_keep_going_writes_the_good_ones(tmp_path: Path) -> None:
    place = tmp_path / "out.jsonl"
    lines = jsonl(conversation(id="a"), "bad", conversation(id="b"))
    code, _, _ = turnstate(
        "convert", "--from", "openai-chat", "--to", "gemini", "--output", place, "--keep-going", stdin=lines
    )
    assert code == 2
    assert [json.loads(line)["id"] for line in place.read_text().splitlines()] == ["a", "b"]


@pytest.mark.parametrize(("name", "reason"), [("no/such/out.json", "No such file"), (".", "Is a directory")])
def test_a_place_that_cannot_be_written_is_one_line(name: str, reason: str, tmp_path: Path) -> None:
    place = os.path.join(tmp_path, name)
    code, out, err = turnstate(
        "convert",
        "--from",
        "openai-chat",
        "--to",
        "gemini",
        "--output",
        place,
        "--force",
        stdin=conversation(),
    )
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert f"{place}: cannot be written: {reason}" in err


def test_a_device_is_written_to_not_replaced() -> None:
    code, _, _ = turnstate(
        "convert", "--from", "openai-chat", "--to", "gemini", "--output", os.devnull, stdin=conversation()
    )
    assert code == 0
    assert not os.path.isfile(os.devnull)


@pytest.mark.parametrize("name", OTHERS)
def test_a_broken_conversation_never_ends_in_a_traceback(name: str) -> None:
    code, _, err = turnstate("convert", "--from", "openai-chat", "--to", name, stdin=broken(id="b"))
    assert code in (0, 1)
    assert all(line.startswith("turnstate: stdin: ") for line in err.splitlines())


def test_markdown_is_for_people() -> None:
    code, out, err = turnstate("convert", "--from", "openai-chat", "--to", "markdown", stdin=conversation())
    assert (code, err) == (0, "")
    assert out.startswith("## system (foreign)\n\nYou help.\n\n## user\n\nWhat is here?\n")
    assert "**result of** `ls`\n\n```\nnotes.txt\n```\n" in out
    assert out.endswith("A file: notes.txt.\n")


def test_many_conversations_in_markdown_have_a_title_each() -> None:
    lines = jsonl(conversation(id="a"), conversation(id="b"))
    _, out, _ = turnstate("convert", "--from", "openai-chat", "--to", "markdown", stdin=lines)
    assert [line for line in out.splitlines() if line.startswith("# ")] == ["# line 1 (a)", "# line 2 (b)"]


def test_markdown_spells_out_what_a_terminal_would_act_on() -> None:
    document = [{"role": "user", "content": "\x1b[31mred\x1b[0m\ta\rb \u202e"}]
    _, out, _ = turnstate("convert", "--from", "openai-chat", "--to", "markdown", stdin=document)
    assert out == "## user\n\n\\x1b[31mred\\x1b[0m\ta\\rb \\u202e\n"


def test_jsonl_holds_the_messages_of_one_conversation() -> None:
    code, out, _ = turnstate("convert", "--from", "openai-chat", "--to", "jsonl", stdin=conversation(id="a"))
    assert code == 0
    chat = formats.get("openai-chat")
    assert chat.render(list(read_jsonl(out.splitlines()))) == conversation(id="a")
    lines = jsonl(conversation(), conversation())
    code, out, err = turnstate("convert", "--from", "openai-chat", "--to", "jsonl", stdin=lines)
    assert (code, out) == (2, "")
    assert err.startswith("turnstate: stdin line 1: jsonl holds one conversation")


@pytest.mark.parametrize("name", ["markdown", "jsonl"])
def test_a_transcript_is_nothing_to_convert_from(name: str) -> None:
    code, _, err = turnstate("convert", "--from", name, "--to", "gemini", stdin=conversation())
    assert code == 2
    assert name in err
