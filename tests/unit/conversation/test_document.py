"""A conversation as JSON: all of it comes back, and what is unreadable is refused with the path to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conversation.conversation_fixtures import Desk, Harbor, call, prompts, talk, tool, work
from turnstate import Budget, Message, catalog
from turnstate.context.cut import Strategy
from turnstate.conversation import (
    ConversationState,
    FileLineTracker,
    RequestMetadata,
    ToolOrigin,
    fields,
    from_json,
    to_json,
)
from turnstate.entry import Checkpoint
from turnstate.errors import InvalidPayload, NewerFormat, TurnstateError

pytestmark = pytest.mark.req("I9")

REQUIRED = ("conversation_id", "history", "valid_history_range", "transcript", "tools")
OPTIONAL = (
    "next_message",
    "context_manager",
    "context_message_length",
    "latest_summary",
    "model",
    "model_info",
    "checkpoint_manager",
    "tangent_state",
)


def full(folder: Path) -> ConversationState:
    """Return a conversation that has something in every field."""
    (folder / "RULES.md").write_text("Light it at dusk.\n")
    state = ConversationState(
        "c", agents=Harbor(prompt="Keep.", paths=["RULES.md"]), model_id="gpt-4o", os=Desk(folder)
    )
    state.tools = {ToolOrigin("builtin"): [tool("ls")], ToolOrigin.mcp("lamps"): [tool("light")]}
    work(state, "Look.", call("ls"))
    talk(state, "one", "two", "three")
    state.set_next_user_message("four")
    state.push_assistant_message(Message.assistant("4"), RequestMetadata(input=9, details={"id": "r"}))
    state.file_line_tracker = {"a.py": FileLineTracker(after_fswrite_lines=7, is_first_write=False)}
    for label in ("0", "1.1"):
        state.add(Checkpoint(label=label, commit="a" * 40, work_tree="/work" if label == "0" else ""))
    state.mcp_enabled = False
    state.append_transcript("503")
    plan = state.plan_compaction(Strategy(keep=3))
    assert plan is not None
    state.compact(plan, "Goal: light.", source={"model": "gpt-4o"})
    state.begin_tangent()
    talk(state, "aside")
    state.exit_tangent_mode()
    state.enter_tangent_mode()
    talk(state, "elsewhere")
    state.set_next_user_message("waiting")
    return state


def test_a_full_conversation_comes_back_whole(tmp_path: Path) -> None:
    state = full(tmp_path)
    state.window()
    document = to_json(state)
    restored = from_json(json.loads(json.dumps(document)), os=Desk(tmp_path))
    kept = {**document, "context_message_length": None}
    assert {**to_json(restored), "context_message_length": None} == kept
    assert restored.preview().messages == state.preview().messages
    assert restored.messages == state.messages
    assert restored.kept_tangents() == state.kept_tangents()
    restored.exit_tangent_mode()
    state.exit_tangent_mode()
    assert fields(restored) | {"context_message_length": 0} == fields(state) | {"context_message_length": 0}


@pytest.mark.req("J1")
def test_a_tangent_has_the_main_conversation_in_its_five_fields(tmp_path: Path) -> None:
    state = full(tmp_path)
    main = state.tangent_state
    assert main is not None
    document = json.loads(json.dumps(to_json(state)))
    written = document["tangent_state"]
    names = [
        "main_history",
        "main_next_message",
        "main_transcript",
        "main_latest_summary",
        "tangent_start_time",
    ]
    assert list(written) == names
    assert len(written["main_history"]) == len(main.main_history)
    assert written["main_latest_summary"][0] == "Goal: light."
    assert written["main_latest_summary"][1]["model"] == "gpt-4o"
    assert (written["main_next_message"], written["tangent_start_time"]) == (None, main.tangent_start_time)

    del document["turnstate"]  # what another program writes: its fields are all there is
    for restored in (from_json(document), from_json({**document, "latest_summary": None})):
        assert restored.is_in_tangent_mode()
        assert restored.history == state.history
        assert restored.next_message == state.next_message
        assert restored.transcript == state.transcript
        assert restored.tangent_state == main
        restored.exit_tangent_mode()
        assert restored.history == main.main_history
        assert restored.latest_summary == main.main_latest_summary


def test_checkpoints_are_the_labels_and_commits_of_the_path(tmp_path: Path) -> None:
    state = full(tmp_path)
    found = state.checkpoint_manager
    assert found is not None
    assert (found.work_tree, [(one.label, one.commit) for one in found.checkpoints]) == (
        "/work",
        [("0", "a" * 40), ("1.1", "a" * 40)],
    )
    document = json.loads(json.dumps(to_json(state)))
    assert document["checkpoint_manager"]["work_tree"] == "/work"
    for part in (document, {name: value for name, value in document.items() if name != "turnstate"}):
        assert from_json(part).checkpoint_manager == found
    assert state.checkpoints is None  # the live manager is attached, and never written
    state.begin_tangent(at=state.messages[0].id)
    assert state.checkpoint_manager is None


def test_writing_a_conversation_changes_nothing_in_it(tmp_path: Path) -> None:
    state = full(tmp_path)
    assert to_json(state) == to_json(state)


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_field_that_is_not_set_is_left_out(name: str) -> None:
    state = ConversationState("c")
    talk(state, "hello")
    assert name not in to_json(state)


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_field_that_is_not_set_may_also_be_null(name: str) -> None:
    state = ConversationState("c")
    talk(state, "hello")
    assert to_json(from_json({**to_json(state), name: None})) == to_json(state)


@pytest.mark.parametrize("name", REQUIRED)
def test_a_required_field_that_is_missing_is_a_clear_error(name: str) -> None:
    document = to_json(ConversationState("c"))
    del document[name]
    with pytest.raises(InvalidPayload, match=f"needs the field {name}") as raised:
        from_json(document)
    assert raised.value.path == f"$.{name}"


@pytest.mark.req("M1")
def test_a_legacy_model_is_read() -> None:
    document = {**to_json(ConversationState("c")), "model": "gpt-4o"}
    state = from_json(document)
    assert (state.model, state.model_info) == ("gpt-4o", catalog.model("gpt-4o"))


@pytest.mark.req("M1")
def test_the_model_info_wins_over_a_legacy_model() -> None:
    info = {"model_id": "gpt-4.1", "context_window_tokens": 50_000, "model_name": "ours"}
    state = from_json({**to_json(ConversationState("c")), "model": "gpt-4o", "model_info": info})
    assert state.model_info is not None
    assert (state.model_info.id, state.model_info.name) == ("gpt-4.1", "ours")
    assert state.model_info.context_window == state.budget.window == 50_000
    assert state.model_info.counter == catalog.model("gpt-4.1").counter


@pytest.mark.req("M1")
def test_all_that_is_known_of_a_model_survives() -> None:
    state = ConversationState("c", model_id="anthropic.claude-3-5-sonnet-20241022-v2:0")
    restored = from_json(to_json(state)).model_info
    assert restored is not None
    assert state.model_info is not None
    for name in ("id", "name", "provider", "context_window", "output_limit", "counter", "features", "known"):
        assert getattr(restored, name) == getattr(state.model_info, name)


def test_mcp_is_allowed_where_a_document_does_not_say() -> None:
    document = to_json(ConversationState("c"))
    del document["mcp_enabled"]
    assert from_json(document).mcp_enabled is True


def test_a_document_without_our_part_is_read_from_its_fields() -> None:
    state = ConversationState("c")
    work(state, "Look.", call("ls"))
    talk(state, "one", "two")
    state.append_transcript("503")
    plan = state.plan_compaction(Strategy(keep=0))
    assert plan is not None
    state.compact(plan, "Goal: light.", source={"model": "gpt-4o"})
    state.set_next_user_message("three")
    document = fields(state)
    restored = from_json(document)
    assert restored.history == state.history
    assert restored.next_message == state.next_message
    assert restored.transcript == state.transcript
    assert restored.latest_summary is not None
    assert restored.latest_summary[0] == "Goal: light."
    assert any("Goal: light." in message.text for message in restored.window().messages)


def at(document: Any, *path: Any, value: Any) -> Any:
    """Return a document with another value at a path."""
    copy = json.loads(json.dumps(document))
    inner = copy
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return copy


DEEP: Any = []
for _ in range(300_000):
    DEEP = [DEEP]


@pytest.mark.parametrize("document", [None, 7, "text", [], [{}], {}])
def test_what_is_no_conversation_is_refused(document: Any) -> None:
    with pytest.raises(InvalidPayload):
        from_json(document)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (["conversation_id"], 7, "$.conversation_id"),
        (["conversation_id"], "", "$.conversation_id"),
        (["history"], {}, "$.history"),
        (["history"], None, "$.history"),
        (["history", 0], "hello", "$.history[0]"),
        (["history", 0, "user"], None, "$.history[0].user"),
        (["history", 0, "user", 0], 7, "$.history[0].user[0]"),
        (["history", 0, "user", 0, "role"], "wizard", "$.history[0].user[0]"),
        (["history", 0, "assistant"], None, "$.history[0].assistant[0]"),
        (["history", 0, "request_metadata"], [], "$.history[0].request_metadata"),
        (["history", 0, "request_metadata"], {"input": "many"}, "$.history[0].request_metadata"),
        (["next_message"], "hello", "$.next_message"),
        (["next_message"], [None], "$.next_message[0]"),
        (["tools"], [], "$.tools"),
        (["tools"], None, "$.tools"),
        (["model"], 7, "$.model"),
        (["model_info"], "gpt-4o", "$.model_info"),
        (["model_info"], {"model_id": "x", "context_window_tokens": "big"}, "$.model_info"),
        (["model_info"], {"model_id": "x", "context_window_tokens": 0}, "$.model_info"),
        (["model_info"], {"model_id": "x", "context_window_tokens": -5}, "$.model_info"),
        (["file_line_tracker"], [], "$.file_line_tracker"),
        (["file_line_tracker"], {"a.py": 7}, "$.file_line_tracker.a.py"),
        (["mcp_enabled"], "yes", "$.mcp_enabled"),
        (["checkpoint_manager"], [], "$.checkpoint_manager"),
        (["turnstate"], 7, "$.turnstate"),
        (["turnstate"], {}, "$.turnstate"),
        (["turnstate", "version"], "one", "$.turnstate"),
        (["turnstate", "head"], 5, "$.turnstate.head"),
        (["turnstate", "head"], 0, "$.turnstate.head"),
        (["turnstate", "head"], -1, "$.turnstate.head"),
        (["turnstate", "branches"], [], "$.turnstate.head"),
        (["turnstate", "branches", 0, "entries", 0], "no such id", "$.turnstate.branches[0].entries[0]"),
        (["turnstate", "branches", 0, "entries", 0], ["cut", {}], "$.turnstate.branches[0].entries[0]"),
        (["turnstate", "branches", 0, "entries", 0], ["message", {}], "$.turnstate.branches[0].entries[0]"),
        (["turnstate", "branches", 1, "parent"], 2, "$.turnstate.branches[1].parent"),
        (["turnstate", "branches", 1, "parent"], -1, "$.turnstate.branches[1].parent"),
        (["turnstate", "branches", 1, "parent"], None, "$.turnstate.branches[1].parent"),
        (["turnstate", "branches", 1, "former"], 2, "$.turnstate.branches[1].former"),
        (["turnstate", "branches", 1, "at"], 999, "$.turnstate.branches[1].at"),
        (["turnstate", "branches", 1, "at"], -1, "$.turnstate.branches[1].at"),
    ],
)
def test_what_is_unreadable_is_refused_with_the_path_to_it(path: list[Any], value: Any, told: str) -> None:
    state = ConversationState("c")
    talk(state, "hello")
    state.enter_tangent_mode()
    talk(state, "aside")
    with pytest.raises(InvalidPayload) as raised:
        from_json(at(to_json(state), *path, value=value))
    assert raised.value.path == told


def test_a_summary_of_another_form_is_refused() -> None:
    for wrong in ("text", ["text"], ["text", 7], [7, {}], {"0": "text"}):
        with pytest.raises(InvalidPayload) as raised:
            from_json({**fields(ConversationState("c")), "latest_summary": wrong})
        assert (raised.value.path or "").startswith("$.latest_summary")


@pytest.mark.parametrize("lines", ["text", [7], {}, None])
def test_a_transcript_of_another_form_is_refused(lines: Any) -> None:
    with pytest.raises(InvalidPayload) as raised:
        from_json({**fields(ConversationState("c")), "transcript": lines})
    assert raised.value.path == "$.transcript"


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), "\ud800", DEEP], ids=["nan", "infinity", "lone surrogate", "deep"]
)
@pytest.mark.parametrize("name", ["extra", "context_manager", "checkpoint_manager", "tools"])
def test_hostile_values_are_typed_errors(name: str, value: Any) -> None:
    with pytest.raises(TurnstateError):
        from_json({**to_json(ConversationState("c")), name: {"x": value}})


def test_a_document_of_a_newer_version_says_so() -> None:
    document = to_json(ConversationState("c"))
    with pytest.raises(NewerFormat, match="update"):
        from_json(at(document, "turnstate", "version", value=3))
    talk(state := ConversationState("c"), "hello")
    with pytest.raises(NewerFormat, match="update"):
        from_json(at(to_json(state), "turnstate", "branches", 0, "entries", 0, value=["hologram", {}]))


@pytest.mark.parametrize("branch", [1, 2, 99], ids=["where it leads", "the tangent", "none"])
def test_an_exit_that_names_a_branch_outside_of_its_tangent_leads_to_the_tangent(branch: int) -> None:
    state = ConversationState("c")
    talk(state, "hello")
    name = state.begin_tangent()
    talk(state, "aside")
    state.exit_tangent_mode()
    document = json.loads(json.dumps(to_json(state)))
    exit = document["turnstate"]["branches"][0]["entries"][-1]
    assert exit == ["tangent", {"kind": "tangent", "name": name, "branch": 2, "opening": "aside"}]
    exit[1] |= {"branch": branch, "opening": ""}
    restored = from_json(document)
    assert [one.opening for one in restored.kept_tangents()] == ["aside"]
    restored.reopen_tangent(name)
    assert prompts(restored) == ["hello", "aside"]
    restored.exit_tangent_mode()
    assert restored.undo() == "tangent exit"
    assert prompts(restored) == ["hello", "aside"]


def test_fields_that_another_program_changed_are_used() -> None:
    state = ConversationState("c", model_id="gpt-4.1")
    state.tools = {ToolOrigin("builtin"): [tool("ls")]}
    talk(state, "hello")
    document = {**to_json(state), "tools": {}, "model_info": {"model_id": "gpt-4o"}, "mcp_enabled": False}
    restored = from_json(document)
    assert (restored.tools, restored.mcp_enabled) == ({}, False)
    assert restored.model_info is not None
    assert restored.model_info.id == "gpt-4o"
    again = from_json(to_json(restored))
    assert fields(again) == fields(restored)


def test_an_old_budget_does_not_come_with_a_document() -> None:
    state = ConversationState("c")
    talk(state, *(f"question {number} " + "word " * 60 for number in range(30)))
    state.window(Budget(1_000))
    restored = from_json(to_json(state))
    assert restored.valid_history_range == state.valid_history_range
    assert prompts(restored) == prompts(state)
    assert restored.preview(Budget(1_000)).messages == state.preview(Budget(1_000)).messages
    assert len(restored.preview(Budget(100_000)).messages) == 60
