"""A conversation begins with what it is given, and with defaults that are safe where it is given nothing."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from tests.unit.conversation.conversation_fixtures import Desk, Harbor, Toolbox, call, stored, talk, tool
from turnstate import Message, SessionManager, catalog
from turnstate.context.policy import Budget
from turnstate.conversation import ConversationState, System, ToolOrigin, amazon_q, fields, from_json, to_json
from turnstate.sticky import ContextManager

SONNET = "anthropic.claude-3-5-sonnet-20241022-v2:0"
FIELDS = (
    "conversation_id",
    "next_message",
    "history",
    "valid_history_range",
    "transcript",
    "tools",
    "context_manager",
    "tool_manager",
    "context_message_length",
    "latest_summary",
    "agents",
    "model",
    "model_info",
    "file_line_tracker",
    "checkpoint_manager",
    "mcp_enabled",
    "tangent_state",
)


@pytest.mark.req("I1")
@pytest.mark.parametrize("name", FIELDS)
def test_every_field_of_the_specification_is_there_under_its_name(name: str) -> None:
    assert hasattr(ConversationState("c"), name)


@pytest.mark.req("I1", "I2")
def test_a_new_conversation_is_empty_and_allows_mcp() -> None:
    assert fields(ConversationState("c")) == {
        "conversation_id": "c",
        "history": [],
        "valid_history_range": [0, 0],
        "transcript": [],
        "tools": {},
        "file_line_tracker": {},
        "mcp_enabled": True,
    }


@pytest.mark.req("I2")
def test_two_conversations_without_a_name_get_different_ids() -> None:
    assert ConversationState().conversation_id != ConversationState().conversation_id


@pytest.mark.req("I2")
def test_a_conversation_is_created_with_agents_tools_a_model_and_a_system(tmp_path: Path) -> None:
    (tmp_path / "RULES.md").write_text("Light it at dusk.\n")
    desk = Desk(tmp_path)
    state = ConversationState(
        "c",
        agents=Harbor("keeper", "You keep a lighthouse.", ["RULES.md"]),
        tool_config={"ls": tool("ls")},
        tool_manager=None,
        model_id=SONNET,
        os=desk,
        mcp_enabled=False,
    )
    assert state.tools == {ToolOrigin("builtin"): [tool("ls")]}
    assert state.model_info == catalog.named(SONNET)
    assert state.mcp_enabled is False
    assert state.context_manager is not None
    assert [(one.path, one.owner) for one in state.context_manager.paths] == [("RULES.md", "agent")]
    assert state.context_manager.max_context_files_size == 150_000
    state.set_next_user_message("Is it lit?")
    shown = state.window().messages
    assert [message.role for message in shown] == ["system", "user", "user"]
    assert shown[0].text == "You keep a lighthouse."
    assert "Light it at dusk." in shown[1].text


@pytest.mark.req("I2")
def test_without_agents_there_are_no_sticky_files_until_somebody_sets_them(tmp_path: Path) -> None:
    (tmp_path / "RULES.md").write_text("Light it at dusk.\n")
    state = ConversationState("c", os=Desk(tmp_path))
    assert state.context_manager is None
    assert state.context_message_length is None
    state.context_manager = ContextManager(state.os.workspace())
    state.context_manager.add("RULES.md")
    state.set_next_user_message("Is it lit?")
    sent = state.window().messages[0].text
    assert "Light it at dusk." in sent
    assert state.context_message_length == len(sent)


@pytest.mark.req("I2", "M1")
def test_an_unknown_model_is_a_warning_and_a_window_of_200_000(caplog: pytest.LogCaptureFixture) -> None:
    catalog.model.cache_clear()
    with caplog.at_level(logging.WARNING):
        state = ConversationState("c", model_id="nobody-made-this")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "nobody-made-this" in caplog.text
    info = state.model_info
    assert info is not None
    assert (info.id, info.context_window, info.known) == ("nobody-made-this", 200_000, False)
    assert state.budget.window == 200_000


@pytest.mark.req("I2", "M1")
def test_without_a_model_the_budget_is_that_of_an_ordinary_one() -> None:
    state = ConversationState("c")
    assert state.model_info is None
    assert state.budget == Budget(200_000, output=4_096, capped=False)


EXACT = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"


@pytest.mark.req("M1", "I9")
def test_the_exact_id_of_a_model_is_kept_everywhere_and_the_catalog_gives_its_limits(tmp_path: Path) -> None:
    state, chosen = ConversationState("c", model_id=EXACT), ConversationState("c", model_id="gpt-4o")
    assert chosen.set_model(EXACT) == state.model_info
    legacy = from_json({**to_json(ConversationState("c")), "model": EXACT})

    async def of_session() -> ConversationState:
        async with await SessionManager.open(f"sqlite:///{tmp_path}/agent.db") as sessions:
            session = await sessions.create()
            await session.set_model(EXACT)
            return await session.conversation()

    async def imported() -> ConversationState:
        async with await SessionManager.open(f"sqlite:///{tmp_path}/imported.db") as sessions:
            return await (await stored(state, sessions)).conversation()

    viewed = [asyncio.run(of_session()), asyncio.run(imported())]
    for one in (state, chosen, legacy, from_json(to_json(state)), *viewed):
        assert one.model_info is not None
        assert one.model_info.id == EXACT
        assert one.budget == Budget.of(catalog.model("claude-sonnet-4-5"))
        assert to_json(one)["model_info"]["model_id"] == EXACT
        assert amazon_q.write(one)["model_info"]["model_id"] == EXACT
        assert amazon_q.read(amazon_q.write(one)).model_info == one.model_info


@pytest.mark.req("M1")
def test_the_budget_follows_the_model_that_is_chosen() -> None:
    state = ConversationState("c", model_id="gpt-4o")
    assert state.budget == Budget.of(catalog.model("gpt-4o"))
    state.set_model("gpt-4.1")
    assert state.budget == Budget.of(catalog.model("gpt-4.1"))
    assert state.manager.counter.name == catalog.model("gpt-4.1").counter


@pytest.mark.req("M1", "I2")
def test_another_model_moves_the_limit_of_the_sticky_files(tmp_path: Path) -> None:
    state = ConversationState("c", agents=Harbor(), model_id=SONNET, os=Desk(tmp_path))
    state.set_model("gpt-4.1")
    assert state.context_manager is not None
    assert state.context_manager.max_context_files_size == catalog.model("gpt-4.1").context_window * 3 // 4


@pytest.mark.req("I1", "I2")
def test_agents_and_tool_manager_are_never_written_down(tmp_path: Path) -> None:
    toolbox = Toolbox({"native___": [tool("ls")]})
    state = ConversationState("c", agents=Harbor(), tool_manager=toolbox, os=Desk(tmp_path))
    talk(state, "hello")
    document = to_json(state)
    assert not {"agents", "tool_manager"} & set(document)
    restored = from_json(document, os=Desk(tmp_path))
    assert (restored.agents, restored.tool_manager) == (None, None)


@pytest.mark.req("I1", "I2", "L1")
def test_after_a_restore_they_are_attached_again(tmp_path: Path) -> None:
    (tmp_path / "NEW.md").write_text("new\n")
    state = ConversationState("c", agents=Harbor(prompt="Old."), os=Desk(tmp_path))
    talk(state, "hello")
    restored = from_json(to_json(state), os=Desk(tmp_path))
    agents, toolbox = Harbor("painter", "New.", ["NEW.md"]), Toolbox({"lamp-server": [tool("light")]})
    restored.attach(agents=agents, tool_manager=toolbox)
    assert (restored.agents, restored.tool_manager) == (agents, toolbox)
    assert restored.tools == {ToolOrigin.mcp("lamp-server"): [tool("light")]}
    assert restored.context_manager is not None
    assert [one.path for one in restored.context_manager.paths] == ["NEW.md"]
    restored.set_next_user_message("again")
    shown = restored.window().messages
    assert shown[0].text == "New."
    assert "new\n" in shown[1].text
    assert restored.history == state.history


@pytest.mark.req("I2")
def test_attaching_the_same_agents_again_adds_nothing(tmp_path: Path) -> None:
    agents = Harbor(prompt="You keep a lighthouse.")
    state = ConversationState("c", agents=agents, os=Desk(tmp_path))
    talk(state, "hello")
    before = to_json(state)
    state.attach(agents=agents)
    assert to_json(state) == before


@pytest.mark.req("I2")
def test_the_system_of_this_process_tells_the_time_and_its_folder(tmp_path: Path) -> None:
    system = System(tmp_path)
    assert system.workspace().root == tmp_path
    assert system.now() > 1_700_000_000_000


@pytest.mark.req("I1")
def test_a_state_does_no_io_and_needs_no_session() -> None:
    state = ConversationState("c")
    talk(state, "one", "two")
    state.set_next_user_message("three")
    state.push_assistant_message(Message.assistant(tool_calls=[call()]))
    assert len(state.history) == 3
    assert from_json(to_json(state)).history == state.history
