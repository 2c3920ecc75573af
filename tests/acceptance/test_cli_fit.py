from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_program import (
    broken,
    conversation,
    into_a_closing_pipe,
    jsonl,
    on_a_terminal,
    real_turnstate,
    turnstate,
)
from turnstate import formats

pytestmark = pytest.mark.req("P4")

CHAT = formats.get("openai-chat")
OUTPUT = "\n".join(f"{n:03} nothing of note" for n in range(20))
TOOLS = [{"type": "function", "function": {"name": "scan", "strict": True, "parameters": {"type": "object"}}}]


def turn(number: int) -> list[dict[str, Any]]:
    function = {"name": "scan", "arguments": json.dumps({"sector": number})}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return [
        {"role": "user", "content": f"Look into question number {number}, please."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": OUTPUT},
        {"role": "assistant", "content": f"Answer number {number}: all is well."},
    ]


def long_talk(turns: int = 20, **fields: Any) -> dict[str, Any]:
    return {**fields, "messages": [message for number in range(turns) for message in turn(number)]}


def in_format(name: str, **fields: Any) -> Any:
    return fields | formats.convert(long_talk()["messages"], CHAT, formats.get(name)).payload


def counted(payload: Any, name: str = "openai-chat") -> int:
    (told,) = turnstate("count", "--json", "--format", name, stdin=payload).objects
    tokens: int = told["tokens"]
    return tokens


@pytest.mark.parametrize("name", formats.names())
def test_a_document_of_any_provider_comes_back_within_the_budget_and_valid(name: str) -> None:
    document = in_format(name, id="a", model="m")
    code, out, err = turnstate("fit", "--format", name, "--budget", 1_000, stdin=document)
    result = json.loads(out)
    assert code == 0
    assert counted(document, name) > 1_000 >= counted(result, name) > 500
    assert turnstate("validate", "--format", name, stdin=result).code == 0
    assert (result["id"], result["model"]) == ("a", "m")
    assert "[Memory Summary] Previous conversation context: " in out
    assert err.startswith(f"turnstate: stdin: {counted(document, name):,} tokens are now ")


@pytest.mark.parametrize("name", formats.names())
def test_what_fits_comes_back_as_it_is(name: str) -> None:
    document = in_format(name, id="a", temperature=1.0, seed=2**60, note=[None, "é\u2028🌍"])
    code, out, err = turnstate("fit", "--format", name, "--budget", 100_000, stdin=document)
    assert (code, err) == (0, "")
    assert out == json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def test_exactly_the_budget_is_within_it() -> None:
    document = conversation()
    budget = counted(document)
    assert json.loads(turnstate("fit", "--budget", budget, stdin=document).out) == document
    assert json.loads(turnstate("fit", "--budget", budget - 1, stdin=document).out) != document


def test_a_list_stays_a_list_and_an_object_keeps_its_fields_and_their_order() -> None:
    listed = json.loads(turnstate("fit", "--budget", 1_000, stdin=long_talk()["messages"]).out)
    assert isinstance(listed, list)
    document = {"id": "a", **long_talk(), "tools": TOOLS, "model": "m"}
    result = json.loads(turnstate("fit", "--budget", 1_000, stdin=document).out)
    assert list(result) == ["id", "messages", "tools", "model"]
    assert result["tools"] == TOOLS
    assert result["messages"][-4:] == document["messages"][-4:]


def test_tool_definitions_take_their_part_of_the_budget() -> None:
    tools = [{"type": "function", "function": {"name": f"tool_{n}", "parameters": {}}} for n in range(30)]
    result = json.loads(turnstate("fit", "--budget", 1_000, stdin={**long_talk(), "tools": tools}).out)
    assert result["tools"] == tools
    assert counted(result) <= 1_000


def test_every_line_of_a_jsonl_is_fitted_and_keeps_its_id() -> None:
    lines = jsonl(conversation(id="small"), long_talk(id="large"), long_talk()["messages"])
    outcome = turnstate("fit", "--budget", 1_000, stdin=lines)
    assert outcome.code == 0
    small, large, bare = outcome.objects
    assert small == conversation(id="small")
    assert large["id"] == "large"
    assert isinstance(bare, list)
    assert all(counted(one) <= 1_000 for one in outcome.objects)
    assert [line.split(":")[1] for line in outcome.err.splitlines()] == [" stdin line 2", " stdin line 3"]


def test_a_broken_document_is_repaired_and_each_repair_told() -> None:
    document = broken(id="a")
    document["messages"] += turn(1)[:2]
    code, out, err = turnstate("fit", "--budget", 1_000, stdin=document)
    assert code == 0
    assert turnstate("validate", stdin=json.loads(out)).code == 0
    assert "notes.txt" in out
    _, *told = err.splitlines()
    assert told[0].startswith("turnstate: stdin: was invalid: message 1: result-orphan (call_1): ")
    assert told[1].startswith("turnstate: stdin: was invalid: message 3: call-unanswered (call_1): ")
    assert told[2].startswith(
        "turnstate: stdin: repaired: a result that no open call awaits is sent as text ("
    )
    assert told[3] == (
        "turnstate: stdin: repaired: a call that is still open is answered as still running (call_1)"
    )
    assert turnstate("fit", "--budget", 1_000, "--quiet", stdin=document) == (0, out, "")


def test_a_hopelessly_broken_document_is_told_in_a_few_lines(tmp_path: Path) -> None:
    document = [{"role": "tool", "tool_call_id": f"call_{n}", "content": "whose?"} for n in range(500)]
    report = tmp_path / "report.json"
    code, _, err = turnstate("fit", "--budget", 100_000, "--report", report, stdin=document)
    assert code == 0
    assert len(err.splitlines()) == 43
    assert "and 480 more like this; --report lists all of them" in err
    assert len(json.loads(report.read_text())["violations"]) == 500


def test_what_cannot_fit_is_one_line_with_the_numbers_and_exit_code_1(tmp_path: Path) -> None:
    place = tmp_path / "out.json"
    code, out, err = turnstate("fit", "--budget", 20, "--output", place, stdin=long_talk())
    assert (code, out) == (1, "")
    assert err.startswith("turnstate: stdin: ")
    assert err.count("\n") == 1
    assert "20" in err
    assert os.listdir(tmp_path) == []


def test_what_the_provider_would_still_reject_is_not_written() -> None:
    code, out, err = turnstate("fit", "--budget", 1_000, stdin={"messages": []})
    assert (code, out) == (1, "")
    refusal = "openai-chat would reject the result: message 0: no-messages: messages is empty"
    assert err == f"turnstate: stdin: {refusal}\n"


LARGE = {"messages": [{"role": "user", "content": "too long " * 500}]}


def test_a_line_that_cannot_fit_ends_the_walk() -> None:
    lines = jsonl(conversation(id="a"), LARGE, conversation(id="c"))
    outcome = turnstate("fit", "--budget", 500, stdin=lines)
    assert outcome.code == 1
    assert [one["id"] for one in outcome.objects] == ["a"]
    assert outcome.err.startswith("turnstate: stdin line 2: ")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(("bad", "code"), [([], 1), (["broken"], 2)], ids=["too large", "not JSON, too"])
def test_with_keep_going_the_other_lines_are_fitted(bad: list[str], code: int, tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    lines = jsonl(conversation(id="a"), LARGE, *bad, conversation(id="c"))
    outcome = turnstate("fit", "--budget", 500, "--keep-going", "--report", report, stdin=lines)
    assert outcome.code == code
    assert [one["id"] for one in outcome.objects] == ["a", "c"]
    assert len(outcome.err.splitlines()) == 1 + len(bad)
    told = [json.loads(line) for line in report.read_text().splitlines()]
    assert [("error" in one, one["line"]) for one in told] == [(False, 1), (True, 2), (False, 3 + len(bad))]


def test_the_report_of_one_document_is_one_object(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    document = long_talk(id="a")
    code, out, _ = turnstate("fit", "--budget", 1_000, "--report", report, stdin=document)
    told = json.loads(report.read_text())
    assert code == 0
    assert report.read_text().startswith("{\n")
    assert (told["id"], told["line"], told["format"], told["counter"]) == (
        "a",
        None,
        "openai-chat",
        "o200k_base",
    )
    assert (told["budget"], told["changed"], told["quality"]) == (1_000, True, "exact")
    assert (told["tokens_before"], told["tokens_after"]) == (counted(document), counted(json.loads(out)))
    assert told["messages_before"] == 80
    assert told["messages_after"] == len(json.loads(out)["messages"]) == 80 - told["evicted_messages"] + 1
    assert told["summary"] in out
    assert told["events"]
    assert sum(told["usage"].values()) == 1_000
    assert told["violations"] == told["repairs"] == []


def test_the_report_of_many_has_a_line_each(tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    lines = jsonl(conversation(id="a"), broken(id="b"), long_talk(id="c"))
    turnstate("fit", "--budget", 1_000, "--report", report, stdin=lines)
    told = [json.loads(line) for line in report.read_text().splitlines()]
    assert [(one["id"], one["line"], one["changed"]) for one in told] == [
        ("a", 1, False),
        ("b", 2, True),
        ("c", 3, True),
    ]
    assert [one["rule"] for one in told[1]["violations"]] == ["result-orphan"]
    assert [one["text"] for one in told[1]["repairs"]] == [
        "a result that no open call awaits is sent as text"
    ]
    assert len({tuple(one) for one in told}) == 1


def test_the_help_describes_every_field_of_the_report(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    turnstate("fit", "--budget", 1_000, "--report", report, stdin=conversation())
    described = turnstate("fit", "--help").out.replace(",", " ").split()
    assert [field for field in json.loads(report.read_text()) if field not in described] == []


def test_long_output_is_shortened_and_named_in_the_report(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    document = conversation()
    document["messages"][3]["content"] = "\n".join(f"line {n}: nothing of note" for n in range(1_000))
    code, out, err = turnstate("fit", "--budget", 2_000, "--report", report, stdin=document)
    assert code == 0
    assert "[Data Truncated]" in out
    assert json.loads(report.read_text())["reduced"] == ["call_1"]
    assert "1 output shortened" in err


def test_a_result_and_its_report_go_to_files(tmp_path: Path) -> None:
    place, report = tmp_path / "out.json", tmp_path / "report.json"
    arguments = ["fit", "--budget", 1_000, "--quiet", "--output", place, "--report", report]
    assert turnstate(*arguments, stdin=long_talk()) == (0, "", "")
    first = place.read_text()
    for existing, other in ((place, report), (report, place)):
        existing.write_text("precious")
        other.unlink()
        code, _, err = turnstate(*arguments, stdin=long_talk())
        assert (code, err) == (2, f"turnstate: {existing}: already exists; pass --force to replace it\n")
        assert existing.read_text() == "precious"
        assert os.listdir(tmp_path) == [existing.name]
        assert turnstate(*arguments, "--force", stdin=long_talk()) == (0, "", "")
        assert place.read_text() == first


def test_a_file_may_be_fitted_in_place(tmp_path: Path) -> None:
    place = tmp_path / "talks.jsonl"
    place.write_text(jsonl(*(long_talk(id=number) for number in range(20))))
    assert turnstate("fit", "--budget", 1_000, "--quiet", place, "--output", place, "--force").code == 0
    fitted = [json.loads(line) for line in place.read_text().splitlines()]
    assert [one["id"] for one in fitted] == list(range(20))
    assert turnstate("fit", "--budget", 1_000, place) == (0, place.read_text(), "")


def test_a_model_gives_the_budget_and_the_counter(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    arguments = ["fit", "--report", report, "--force"]
    turnstate(*arguments, "--model", "claude-sonnet-4-5", stdin=conversation())
    whole = json.loads(report.read_text())
    assert (whole["counter"], whole["quality"]) == ("estimate:claude", "estimated")
    assert 100_000 < whole["budget"] < 200_000
    turnstate(*arguments, "--model", "claude-sonnet-4-5", "--output-reserve", 1_000, stdin=conversation())
    assert json.loads(report.read_text())["budget"] == 199_000
    turnstate(*arguments, "--model", "claude-sonnet-4-5", "--budget", 900, stdin=long_talk())
    small = json.loads(report.read_text())
    assert (small["budget"], small["counter"]) == (900, "estimate:claude")
    assert small["tokens_after"] <= 900
    turnstate(*arguments, "--budget", 900, "--counter", "cl100k_base", stdin=long_talk())
    assert json.loads(report.read_text())["counter"] == "cl100k_base"


def test_a_reserve_is_taken_off_the_budget() -> None:
    result = json.loads(turnstate("fit", "--budget", 1_000, "--output-reserve", 400, stdin=long_talk()).out)
    assert counted(result) <= 600


def test_newest_turns_are_kept_whole_as_asked() -> None:
    document = long_talk()
    few = turnstate("fit", "--budget", 2_200, "--keep-turns", 1, stdin=document)
    assert few.code == 0
    strict = ["fit", "--budget", 1_000, "--strict", "--keep-turns"]
    code, out, _ = turnstate(*strict, 3, stdin=document)
    assert code == 0
    assert json.loads(out)["messages"][-12:] == document["messages"][-12:]
    code, out, err = turnstate(*strict, 12, stdin=document)
    assert (code, out) == (1, "")
    assert "strict" in err
    assert turnstate("fit", "--budget", 1_000, "--keep-turns", 12, stdin=document).code == 0


def test_the_summary_stands_in_the_template_that_was_given() -> None:
    _, out, _ = turnstate(
        "fit", "--budget", 1_000, "--summary-template", "要約：{summary}（以上）", stdin=long_talk()
    )
    summary = json.loads(out)["messages"][0]["content"]
    assert summary.startswith("要約：")
    assert summary.endswith("（以上）")


@pytest.mark.parametrize(("language", "label"), [("ja", "前文の要約："), ("zh", "前文摘要：")])
def test_the_digest_is_written_in_the_language_that_was_asked_for(language: str, label: str) -> None:
    _, out, _ = turnstate("fit", "--budget", 1_000, "--language", language, stdin=long_talk())
    assert json.loads(out)["messages"][0]["content"].startswith(f"[Memory Summary] {label}")


def test_fitting_what_was_fitted_and_went_on_leaves_one_summary() -> None:
    document = json.loads(turnstate("fit", "--budget", 1_000, stdin=long_talk()).out)
    document["messages"] += long_talk()["messages"]
    _, out, _ = turnstate("fit", "--budget", 1_000, stdin=document)
    assert out.count("[Memory Summary]") == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "pass --budget, or --model to fit its context window"),
        (["--budget", "0"], "--budget"),
        (["--budget", "-5"], "--budget"),
        (["--budget", "many"], "--budget"),
        (["--budget", "100", "--output-reserve", "-1"], "--output-reserve"),
        (["--budget", "100", "--output-reserve", "100"], "leaves nothing"),
        (["--budget", "100", "--keep-turns", "0"], "--keep-turns"),
        (["--budget", "100", "--summary-template", "nothing in it"], "{summary} once"),
        (["--budget", "100", "--counter", "nope"], "nope"),
        (["--budget", "100", "--format", "nope"], "nope"),
        (["--budget", "100", "--report", "-"], "the same place"),
        (["--budget", "100", "--report", "x", "--output", "./x"], "the same place"),
        (["--budget", "100", "--report", "no/such/folder/x"], "no/such/folder/x: cannot be written"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    arguments: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = turnstate("fit", *arguments, stdin=conversation())
    assert (code, out) == (2, "")
    assert err.startswith("turnstate: ")
    assert err.count("\n") == 1
    assert reason in err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "data",
    [
        b"hello",
        b"[NaN]",
        b"[" * 100_000,
        b'[{"role": "user", "role": "tool"}]',
        b"\xff",
        b"",
        b"42",
        b'["\\ud800"]',
        b'{"foo": 1}',
        b'[{"role": "king", "content": "\\u001b[31m"}]',
        b'[{"role": "user", "content": 7}]',
    ],
)
def test_hostile_input_is_one_line_and_exit_code_2(data: bytes) -> None:
    code, out, err = turnstate("fit", "--budget", 100, stdin=data)
    assert (code, out) == (2, "")
    assert err.startswith("turnstate: stdin: ")
    assert err.count("\n") == 1
    assert err[:-1].isprintable()


def test_hostile_ids_and_names_do_not_reach_the_terminal() -> None:
    document = [{"role": "tool", "tool_call_id": "\x1b[31m" * 10_000, "content": "\x1b[2J"}]
    code, out, err = turnstate("fit", "--budget", 100_000, stdin=document)
    assert code == 0
    assert "\x1b" not in out + err
    assert all(len(line) < 1_200 for line in err.splitlines())


def test_a_conversation_of_ten_thousand_messages_is_fitted() -> None:
    document = long_talk(2_500, id="endless")
    code, out, err = turnstate("fit", "--budget", 8_000, stdin=document)
    result = json.loads(out)
    assert code == 0
    assert result["messages"][-20:] == document["messages"][-20:]
    assert 7_000 < counted(result) <= 8_000
    assert turnstate("validate", stdin=result).code == 0
    assert err.count("\n") == 1


def test_the_real_program_works_in_a_pipe() -> None:
    done = real_turnstate("fit", "--budget", 1_000, stdin=json.dumps(long_talk()).encode())
    assert done.code == 0
    assert counted(json.loads(done.out)) <= 1_000


@pytest.mark.parametrize("to_file", ["--report", "--output"])
def test_a_reader_that_closes_the_pipe_is_no_error_and_leaves_no_file(to_file: str, tmp_path: Path) -> None:
    path, place = tmp_path / "many.jsonl", tmp_path / "place"
    path.write_text(jsonl(*(conversation(id=number) for number in range(3_000))))
    to_stdout = ["--report", "-"] if to_file == "--output" else []
    command = ("fit", "--budget", 1_000, path, to_file, place, *to_stdout)
    assert into_a_closing_pipe(*command) == (141, "")
    assert os.listdir(tmp_path) == ["many.jsonl"]


def test_a_terminal_sees_progress_when_there_are_many(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text(jsonl(*(conversation(id=number) for number in range(50))))
    with open(tmp_path / "out", "w+b") as out:
        seen = on_a_terminal("fit", "--budget", 1_000, path, stdout=out).err
        out.seek(0)
        assert len(out.read().splitlines()) == 50
    assert "50 conversations" in seen


@pytest.mark.parametrize("name", formats.names())
def test_real_conversations_fit_three_thousand_tokens_and_stay_valid(name: str, tmp_path: Path) -> None:
    folder = os.environ.get("TURNSTATE_DATA")
    if not folder:
        pytest.skip("TURNSTATE_DATA does not say where the conversations are")
    source, fitted = tmp_path / "source.jsonl", tmp_path / "fitted.jsonl"
    real = Path(folder) / "tau-airline-dev.jsonl"
    turnstate("convert", "--quiet", "--from", "openai-chat", "--to", name, real, "--output", source)
    code, _, _ = turnstate("fit", "--format", name, "--budget", 3_000, source, "--output", fitted, "--quiet")
    assert code == 0
    assert turnstate("validate", "--format", name, fitted).code == 0
    told = turnstate("count", "--json", "--format", name, fitted).objects
    assert len(told) == len(real.read_text().splitlines())
    assert max(one["tokens"] for one in told) <= 3_000
