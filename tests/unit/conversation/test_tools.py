"""Tools of a conversation: by origin, on the wire, and in a stable order."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.conversation.conversation_fixtures import Toolbox, tool
from turnstate import Message, ToolCallRequest, ToolSpec
from turnstate.conversation import ConversationState, ToolOrigin, from_json, to_json
from turnstate.conversation.kept_settings import tools_from_json, tools_to_json
from turnstate.conversation.tools import repaired, specs
from turnstate.errors import InvalidPayload

pytestmark = pytest.mark.req("L1")

TOOLS = {
    ToolOrigin("builtin"): [tool("ls"), ToolSpec(name="now", description="", input_schema={})],
    ToolOrigin("custom"): [tool("paint")],
    ToolOrigin.mcp("lamps"): [tool("light")],
}


def test_tools_go_over_the_wire_under_the_key_of_their_origin() -> None:
    written = tools_to_json(TOOLS)
    assert list(written) == ["native___", "custom___", "lamps"]
    assert written["lamps"] == [
        {
            "ToolSpecification": {
                "name": "light",
                "description": "does light",
                "input_schema": {"json": {"type": "object", "properties": {}}},
            }
        }
    ]
    assert written["native___"][1]["ToolSpecification"]["input_schema"] == {"json": None}
    assert tools_from_json(written, at="$.tools") == TOOLS


@pytest.mark.parametrize("origin", TOOLS)
def test_an_origin_is_read_back_from_its_key(origin: ToolOrigin) -> None:
    assert ToolOrigin.of(origin.key) == origin


def test_a_conversation_keeps_its_tools() -> None:
    state = ConversationState("c")
    state.tools = dict(TOOLS)
    assert from_json(to_json(state)).tools == TOOLS


def test_a_tool_manager_brings_its_tools() -> None:
    state = ConversationState("c", tool_manager=Toolbox({"custom___": [tool("paint")], "lamps": []}))
    assert state.tools == {ToolOrigin("custom"): [tool("paint")], ToolOrigin.mcp("lamps"): []}


def test_configured_tools_are_kept_beside_those_of_a_tool_manager() -> None:
    other = ToolSpec(name="ls", description="another", input_schema={})
    boxes = [Toolbox({"native___": [tool("now")]}), Toolbox({"lamps": [tool("light"), other]})]
    state = ConversationState("c", tool_config={"ls": tool("ls"), "cd": tool("cd")}, tool_manager=boxes[0])
    assert state.tools == {ToolOrigin("builtin"): [tool("now"), tool("ls"), tool("cd")]}
    state.attach(tool_manager=boxes[1])  # what it defines itself, it defines
    assert state.tools == {
        ToolOrigin.mcp("lamps"): [tool("light"), other],
        ToolOrigin("builtin"): [tool("cd")],
    }


def test_a_name_is_repaired_by_its_last_words_only() -> None:
    for name, names, shown in (
        ("write", {"overwrite"}, "dummy"),
        ("write", {"overwrite", "fs_write"}, "fs_write"),
        ("create_issue", {"github___create_issue", "recreate_issue"}, "github___create_issue"),
        ("Write", {"fsWrite", "OVERWRITE"}, "fsWrite"),
        ("Write", {"fsWrite", "fs.Write"}, "dummy"),
        ("ls", {"server/ls", "skills"}, "server/ls"),
        ("2", {"v12", "v1_2"}, "v1_2"),
    ):
        called = Message.assistant(tool_calls=[ToolCallRequest(name=name, args={})])
        assert repaired(called, frozenset(names)).tool_calls[0].name == shown, (name, names)


def test_definitions_are_sent_in_an_order_that_does_not_depend_on_that_of_the_origins() -> None:
    backwards = dict(reversed(TOOLS.items()))
    assert [spec.name for spec in specs(TOOLS)] == ["ls", "now", "paint", "light"]
    assert specs(backwards) == specs(TOOLS)


def test_of_two_tools_with_one_name_the_built_in_one_is_sent() -> None:
    other = ToolSpec(name="ls", description="another", input_schema={})
    assert specs({ToolOrigin.mcp("x"): [other], ToolOrigin("builtin"): [tool("ls")]}) == (tool("ls"),)


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ([], "$.tools"),
        ("ls", "$.tools"),
        ({"native___": {}}, "$.tools.native___"),
        ({"native___": [tools_to_json(TOOLS)["lamps"][0], 7]}, "$.tools.native___[1]"),
        ({"lamps": [{"ToolSpecification": {"name": "light"}}]}, "$.tools.lamps[0]"),
        ({"lamps": [{"name": "light"}]}, "$.tools.lamps[0]"),
    ],
)
def test_what_is_no_tool_is_refused_with_the_path_to_it(document: Any, path: str) -> None:
    with pytest.raises(InvalidPayload) as raised:
        tools_from_json(document, at="$.tools")
    assert raised.value.path == path
