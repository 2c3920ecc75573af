"""What a call did, to what, and how it ended is read from its name, its arguments and its result."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnstate.context import deeds
from turnstate.ids import CallId
from turnstate.message import ToolCallRequest, ToolCallResult


def called(name: str, /, **args: Any) -> ToolCallRequest:
    return ToolCallRequest(name=name, args=args)


def ended(result: Any, *, is_error: bool = False) -> ToolCallResult:
    return ToolCallResult(tool_call_id=CallId("c"), result=result, is_error=is_error)


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ("permission denied\nat line 7", "permission denied"),
        ("\n\n  disk full  \n", "disk full"),
        (
            'Traceback (most recent call last):\n  File "job.py", line 7\nTimeoutError: 30 s',
            "TimeoutError: 30 s",
        ),
        ({"error": {"code": 404, "message": "not found"}}, "not found"),
        ({"error": {"code": 404}}, ""),
        ([{"type": "text", "text": "no such file"}], "no such file"),
        ({"detail": [{"message": "field required"}]}, "field required"),
        (17, "17"),
        (None, ""),
        ("", ""),
        ([], ""),
        ({}, ""),
    ],
)
def test_the_reason_of_a_failure_is_one_line_of_its_result(result: Any, why: str) -> None:
    assert deeds.reason(ended(result, is_error=True)) == why


def test_a_long_reason_is_cut() -> None:
    assert len(deeds.reason(ended("x" * 10_000, is_error=True))) == deeds.WHY_CHARS


@pytest.mark.parametrize(
    "result", ["Error: no such user", "Traceback (most recent call last):\n", {"error": "no such user"}]
)
def test_a_result_that_says_error_is_a_failure_without_a_flag(result: Any) -> None:
    assert deeds.failed(called("f"), ended(result))


@pytest.mark.parametrize(
    "result", ["ERROR 12:00 a line of a log", "Errors are rare", {"error": None}, "", None, []]
)
def test_a_result_that_only_mentions_errors_is_none(result: Any) -> None:
    assert not deeds.failed(called("f"), ended(result))


def test_paths_are_the_values_of_arguments_named_for_them() -> None:
    args: dict[str, Any] = {
        "path": "a.py",
        "files": ["b.py", "c.py"],
        "file_path": "/d",
        "text": "e.py",
        "depth": 3,
    }
    assert deeds.paths(args) == ["a.py", "b.py", "c.py", "/d"]


@pytest.mark.parametrize(
    "args", [{"path": ""}, {"file": "x" * 5_000}, {"path": None}, {"files": [1, {}]}, {"path": 3}]
)
def test_what_cannot_be_a_path_is_left_out(args: dict[str, Any]) -> None:
    assert deeds.paths(args) == []


def test_a_target_is_a_path_only_when_it_looks_like_one() -> None:
    targets = ["src/app.py", "notes.md", "production", "https://example.org/a"]
    assert [one for target in targets for one in deeds.paths({"target": target})] == [
        "src/app.py",
        "notes.md",
    ]


def test_ids_are_the_values_of_fields_named_for_them() -> None:
    fields = {
        "user_id": "u7",
        "id": 12,
        "orderId": "o9",
        "ticket_ids": ["t1", "t2"],
        "valid": True,
        "name": "n",
    }
    assert list(deeds.ids(fields)) == [
        ("user_id", "u7"),
        ("id", "12"),
        ("orderId", "o9"),
        ("ticket_ids", "t1"),
        ("ticket_ids", "t2"),
    ]


@pytest.mark.parametrize("value", [None, True, 1.5, "", "x" * 65, {"a": 1}])
def test_what_cannot_be_an_id_is_left_out(value: Any) -> None:
    assert not deeds.ids({"user_id": value})


def test_json_texts_are_read_like_objects_two_levels_deep() -> None:
    result = {"order_id": "o1", "parts": [{"part_id": 7, "maker": {"maker_id": "m1", "x": {"deep_id": "d"}}}]}
    expected = [("order_id", "o1"), ("part_id", "7"), ("maker_id", "m1")]
    assert list(deeds.ids(result)) == list(deeds.ids(json.dumps(result))) == expected


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[" * 100_000,
        '{"id": "\\ud800"}',
        '{"id": ' + "1" * 5_000 + "}",
        "{\ud800}",
        "[1, 2]",
        "{" + " " * 60_000,
    ],
    ids=["open", "deep", "surrogate escape", "huge number", "surrogate", "no object", "long"],
)
def test_a_text_that_is_no_sound_json_names_no_ids_and_does_not_say_that_it_failed(text: str) -> None:
    result = ToolCallResult.of("c", text)
    assert not deeds.ids(result.result)
    assert not deeds.failed(called("f"), result)


@pytest.mark.parametrize(
    "name",
    """get_user_details search_flights fs_read ListFiles list_directory read_file Grep view_source run_tests
    think
    calculate customer_details mcp__github__get_issue web_search checkStatus order_status""".split(),
)
def test_calls_that_only_read_are_known_by_their_names(name: str) -> None:
    assert deeds.only_reads(name)


@pytest.mark.parametrize(
    "name",
    """book_reservation cancel_order update_status fs_write Edit apply_patch send_certificate create_commit
    deploy
    OpenPullRequest mcp__github__create_issue task_list_update bash frobnicate""".split(),
)
def test_all_others_changed_something(name: str) -> None:
    assert not deeds.only_reads(name)


@pytest.mark.parametrize(
    ("command", "reads"),
    [
        ("ls -l src", True),
        ("cd src && grep -rn TODO . | head", True),
        ("python -m pytest -q tests", True),
        ("git status; git diff", True),
        ("rm -r build", False),
        ("git commit -m 'fix the tests'", False),
        ("ls > files.txt", False),
        ("cat a.txt && mv a.txt b.txt", False),
    ],
)
def test_a_command_is_judged_by_its_own_words(command: str, *, reads: bool) -> None:
    assert deeds.only_reads("execute_bash", command) is reads


@pytest.mark.parametrize(
    ("args", "first"),
    [
        ({"cabin": "economy", "reservation_id": "R1"}, ("reservation_id", "R1")),
        ({"old": "x\ny", "new": "z" * 500, "file_path": "src/a.py"}, ("file_path", "src/a.py")),
        ({"command": "make build", "timeout": 3}, ("command", "make build")),
        ({"name": "north", "volts": 24}, ("name", "north")),
        ({"target": "production", "note_id": 3}, ("note_id", "3")),
    ],
)
def test_what_it_was_done_to_comes_first(args: dict[str, Any], first: tuple[str, str]) -> None:
    assert deeds.deed(called("f", **args)).args[0] == first


def test_contents_and_structures_are_no_arguments_of_a_deed() -> None:
    found = deeds.deed(
        called("f", text="x" * 500, items=[{"id": 1}], both="a\nb", done=True, none=None, size=1.5)
    )
    assert found.args == (("done", "true"), ("size", "1.5"))


@pytest.mark.parametrize(
    ("result", "made"),
    [
        ({"reservation_id": "R9", "user_id": "u1"}, "reservation_id R9"),
        ('{"data": {"id": 77}}', "id 77"),
        ("created 4f3a2b1", "4f3a2b1"),
        ({"user_id": "u1"}, ""),
        ("updated u1", ""),
        ("done", ""),
        ("a report of 12,000 lines " * 20, ""),
    ],
)
def test_what_a_call_made_is_a_new_id(result: Any, made: str) -> None:
    call = called("book", user_id="u1")
    assert deeds.made(call, result, deeds.ids(result), {"u1"}) == made


@pytest.mark.parametrize(
    ("name", "args", "result", "why"),
    [
        (
            "run_tests",
            {"path": "t.py"},
            "FAILED t.py::a\n2 failed, 9 passed in 0.1s",
            "2 failed, 9 passed in 0.1s",
        ),
        ("Bash", {"command": "pytest t.py"}, "1 failed, 3 passed", "1 failed, 3 passed"),
        (
            "Bash",
            {"command": "ls"},
            '{"exit_code": 2, "stdout": "", "stderr": "no such folder"}',
            "no such folder",
        ),
        ("save", {}, '{"success": false, "message": "quota"}', "quota"),
        ("save", {}, {"ok": False, "reason": "quota"}, "quota"),
    ],
)
def test_a_failure_is_what_its_result_says(name: str, args: dict[str, Any], result: Any, why: str) -> None:
    assert deeds.failed(called(name, **args), ended(result))
    assert deeds.reason(ended(result)) == why


@pytest.mark.parametrize(
    ("name", "args", "result"),
    [
        ("run_tests", {"path": "t.py"}, "11 passed, 0 failed in 0.48s"),
        ("read_file", {"path": "log"}, "2 failed, 9 passed"),
        ("Bash", {"command": "ls"}, '{"exit_code": 0, "stderr": ""}'),
        ("save", {}, '{"success": true, "error": null}'),
    ],
)
def test_what_ended_well_is_no_failure(name: str, args: dict[str, Any], result: Any) -> None:
    assert not deeds.failed(called(name, **args), ended(result))
