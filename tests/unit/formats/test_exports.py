"""Conversations for people and for files: nothing breaks out of its fence, lines read back as they were."""

from __future__ import annotations

import pytest

from turnstate import Message, ToolCallRequest, ToolCallResult
from turnstate.errors import InputError
from turnstate.formats.exports import jsonl, markdown, read_jsonl
from turnstate.testing import conversations

CALL = ToolCallRequest(name="read_file", args={"path": "notes.md"})
TALK = [
    Message.system("Be brief."),
    Message.user("What does it say?"),
    Message.assistant("Reading.", tool_calls=[CALL]),
    Message.tool([ToolCallResult(tool_call_id=CALL.id, result="```\nrm -rf\n```", is_error=True)]),
]


@pytest.mark.req("A8")
def test_markdown_shows_who_said_what_and_what_the_tools_did() -> None:
    text = markdown(TALK)
    assert (
        text.index("## system") < text.index("## user") < text.index("## assistant") < text.index("## tool")
    )
    assert "`read_file`" in text
    assert '"path": "notes.md"' in text
    assert "error of" in text


@pytest.mark.req("A8")
def test_a_fence_in_an_output_does_not_end_the_fence_around_it() -> None:
    lines = markdown(TALK).splitlines()
    fences = [line for line in lines if line.startswith("````")]
    assert len(fences) == 2
    inside = lines[lines.index(fences[0]) + 1 : len(lines) - 1 - lines[::-1].index(fences[1])]
    assert inside == ["```", "rm -rf", "```"]


def test_markdown_of_nothing_is_nothing() -> None:
    assert markdown([]) == ""


@pytest.mark.req("A7", "A8")
@pytest.mark.parametrize("seed", range(20))
def test_lines_read_back_as_equal_messages(seed: int) -> None:
    messages = conversations.broken(seed)
    lines = list(jsonl(messages))
    assert len(lines) == len(messages) + 1
    assert all(line.count("\n") == 1 for line in lines)
    assert list(read_jsonl(lines)) == messages


@pytest.mark.parametrize(
    ("line", "number"), [("{", 3), ('{"id": 5}', 3), ('{"role": "user", "role": "user"}', 3), ("NaN", 3)]
)
def test_a_bad_line_is_named_by_its_number(line: str, number: int) -> None:
    lines = list(jsonl(TALK[:1]))
    with pytest.raises(InputError, match=f"line {number}: "):
        list(read_jsonl([*lines, line]))


def test_a_file_without_its_header_is_refused() -> None:
    with pytest.raises(InputError, match="first line"):
        list(read_jsonl(["{}"]))
