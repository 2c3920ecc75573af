"""Several files, one message per line, and the advice for a document of another format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.cli_program import broken, conversation, jsonl, turnstate
from tests.acceptance.kept_sessions import opened, there
from turnstate import formats
from turnstate.formats.exports import read_jsonl

pytestmark = pytest.mark.req("P3")

CHAT = formats.get("openai-chat")


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.json").write_text(json.dumps(conversation(id="a")))
    Path("two.jsonl").write_text(jsonl(conversation(id="b"), broken(id="c")))
    Path("lines.jsonl").write_text("\n" + jsonl(*conversation()["messages"]) + "\n")


def test_several_files_are_read_one_after_the_other() -> None:
    code, out, _ = turnstate("count", "one.json", "two.jsonl", "lines.jsonl")
    places = [line.split("exact")[1].strip() for line in out.splitlines()]
    expected = ["one.json (a)", "two.jsonl line 1 (b)", "two.jsonl line 2 (c)", "lines.jsonl", "total of 4"]
    assert (code, places) == (0, expected)
    found = turnstate("validate", "--json", "one.json", "two.jsonl").objects
    assert [(one["file"], one["line"], one["id"], one["valid"]) for one in found] == [
        ("one.json", None, "a", True),
        ("two.jsonl", 1, "b", True),
        ("two.jsonl", 2, "c", False),
    ]
    written = turnstate("convert", "--from", "openai-chat", "--to", "anthropic", "one.json", "lines.jsonl")
    assert [len(one["messages"]) for one in written.objects] == [4, 4]
    fitted = turnstate("fit", "--quiet", "--budget", 4_000, "one.json", "two.jsonl")
    assert [one["id"] for one in fitted.objects] == ["a", "b", "c"]


def test_a_bad_file_ends_the_command_or_is_reported_and_passed_over() -> None:
    code, out, err = turnstate("count", "one.json", "missing.json", "lines.jsonl")
    assert (code, len(out.splitlines()), err.count("\n")) == (2, 1, 1)
    assert "missing.json" in err
    Path("bad.json").write_text("nonsense")
    code, out, err = turnstate("count", "--keep-going", "one.json", "bad.json", "lines.jsonl")
    assert (code, len(out.splitlines()), "bad.json: not JSON" in err) == (2, 3, True)


def test_a_message_on_each_line_is_one_conversation() -> None:
    alone = turnstate("count", "--json", stdin=conversation()["messages"]).objects
    assert turnstate("count", "--json", "lines.jsonl").objects == alone
    assert turnstate("validate", "lines.jsonl").out == "valid for openai-chat: 5 messages\n"
    gemini = {"role": "user", "parts": [{"text": "hi"}]}
    assert (
        turnstate("validate", "--format", "gemini", stdin=jsonl(gemini, {**gemini, "role": "model"})).code
        == 0
    )
    bad = Path("lines.jsonl").read_text().replace('"user"', '"user", "role": "user"')
    code, _, err = turnstate("count", stdin=bad)
    assert (code, "stdin: line 3: the key 'role' occurs twice" in err) == (2, True)


def test_what_convert_wrote_as_jsonl_is_read_again(url: str) -> None:
    assert (
        turnstate("convert", "--from", "openai-chat", "--to", "jsonl", "one.json", "-o", "own.jsonl").code
        == 0
    )
    messages = list(read_jsonl(Path("own.jsonl").read_text().splitlines()))
    assert messages == CHAT.parse(conversation(id="a"))
    for name in formats.names():
        (found,) = turnstate("validate", "--format", name, "--json", "own.jsonl").objects
        assert found["valid"], name
        assert turnstate("count", "--format", name, "own.jsonl").code == 0
    back = turnstate("convert", "--from", "openai-chat", "--to", "openai-chat", "own.jsonl")
    assert json.loads(back.out) == conversation(id="a")
    assert turnstate("import", "--from", "openai-chat", "own.jsonl", "one.json").code == 0
    assert len(there(url)) == 2
    with opened(url) as sessions:
        imported = [sessions.open(id).messages() for id in there(url)]
    assert messages[1:] in imported


def test_a_wrong_format_names_the_likely_one() -> None:
    for name in ("anthropic", "gemini", "bedrock", "openai-responses"):
        document = CHAT.render(CHAT.parse(conversation()))
        other = formats.convert(document, CHAT, formats.get(name)).payload
        for command in (["count"], ["validate"]):
            _, _, err = turnstate(*command, stdin=other)
            assert f"it looks like {name}: pass --format {name}" in err, (command, name)
            assert turnstate(*command, "--format", name, stdin=other).err == ""
        _, _, err = turnstate("convert", "--from", name, "--to", "anthropic", stdin=document)
        assert "it looks like openai-chat: pass --from openai-chat" in err, name
    plain = [{"role": "user", "content": "hi"}]
    for name in ("openai-chat", "anthropic"):
        assert turnstate("count", "--format", name, stdin=plain).err == ""
    assert "did you mean openai-chat?" in turnstate("count", "--format", "openai", stdin=plain).err
    assert "did you mean markdown?" in turnstate("export", "x", "--format", "markdwon").err
    assert "there are openai-chat" in turnstate("count", "--format", "zzz", stdin=plain).err
