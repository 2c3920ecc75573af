"""Tool definitions are values like the others: checked, frozen, their own."""

from __future__ import annotations

from typing import Any

import pytest

from turnstate import ToolSpec
from turnstate.errors import InputError
from turnstate.toolspec import EMPTY_SCHEMA


def test_a_tool_needs_no_more_than_a_name() -> None:
    tool = ToolSpec("ls")
    assert (tool.description, tool.input_schema) == ("", EMPTY_SCHEMA)


def test_tools_do_not_share_their_empty_schema() -> None:
    one, other = ToolSpec("one"), ToolSpec("other")
    one.input_schema["properties"]["path"] = {"type": "string"}
    assert (
        other.input_schema
        == ToolSpec("third").input_schema
        == EMPTY_SCHEMA
        == {"type": "object", "properties": {}}
    )


def test_a_tool_does_not_change_with_what_it_was_made_from() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}, "required": ["a"]}
    tool = ToolSpec("ls", "Lists files.", schema)
    schema["required"].append("b")
    assert tool.input_schema["required"] == ["a"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"name": ""}, "a tool needs a name"),
        ({"name": 5}, "expected text, got int .at name"),
        ({"name": "\ud800"}, "a lone surrogate .* .at name"),
        ({"name": "x", "description": None}, "expected text, got NoneType .at description"),
        ({"name": "x", "input_schema": [1]}, "expected a JSON object, got list .at input_schema"),
        ({"name": "x", "input_schema": {"a": float("inf")}}, "inf is not JSON .at input_schema.a"),
    ],
)
def test_a_wrong_definition_is_refused_by_a_typed_error(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        ToolSpec(**fields)


def test_a_tool_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ToolSpec("ls").name = "rm"  # type: ignore[misc]
