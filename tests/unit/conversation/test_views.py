"""The view of a session: it shows one version, never changes, and says which call has what it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.unit.conversation.conversation_fixtures import (
    Desk,
    Harbor,
    Toolbox,
    call,
    prompts,
    result,
    talk,
    tool,
    validate,
)
from turnstate import Budget, Message, Session, SessionManager
from turnstate.catalog import named
from turnstate.context.cut import Strategy
from turnstate.conversation import ConversationState, FileLineTracker, ToolOrigin, fields, from_json, to_json
from turnstate.entry import Checkpoint, Note
from turnstate.errors import InputError, NothingToUndo, NotLoaded
from turnstate.log.operations import write
from turnstate.session.view import NEWEST

T = TypeVar("T")


def with_session(test: Callable[[Session], Awaitable[T]]) -> T:
    async def run() -> T:
        async with await SessionManager.open("memory:") as sessions:
            return await test(await sessions.create(id="c", system="Keep."))

    return asyncio.run(run())


async def say(session: Session, *questions: str) -> None:
    for one in questions:
        await session.append(Message.user(one))
        await session.append(Message.assistant(f"answer to {one}"))


def view() -> ConversationState:
    async def test(session: Session) -> ConversationState:
        await say(session, "one", "two")
        return await session.conversation()

    return with_session(test)


CHANGES: list[tuple[Callable[[ConversationState], object], str]] = [
    (lambda state: state.set_next_user_message("hello"), "append(Message.user(…))"),
    (lambda state: state.add_tool_results([result(call())]), "append(Message.tool(…))"),
    (lambda state: state.push_assistant_message(Message.assistant("hi")), "append(Message.assistant(…))"),
    (lambda state: state.add(Note("hello")), "append(…)"),
    (lambda state: state.append_transcript("503"), "note(…)"),
    (lambda state: state.set_system("Rest."), "set_system(…)"),
    (lambda state: state.set_model("gpt-4o"), "set_model(…)"),
    (lambda state: state.clear(), "clear()"),
    (lambda state: state.undo(), "undo()"),
    (lambda state: state.enter_tangent_mode(), "begin_tangent()"),
    (lambda state: state.begin_tangent(), "begin_tangent()"),
    (lambda state: state.exit_tangent_mode(), "leave_tangent()"),
    (lambda state: state.exit_tangent_mode_with_tail(), "leave_tangent('tail')"),
    (lambda state: state.exit_tangent_mode_with_summary("x"), "leave_tangent('summary')"),
    (lambda state: state.reopen_tangent("x"), "reopen_tangent(…)"),
    (lambda state: state.window(), "window(…)"),
    (lambda state: state.preview(), "preview(…)"),
    (lambda state: state.plan_compaction(), "preview_compact()"),
    (lambda state: state.compact(None), "compact()"),  # type: ignore[arg-type]
    (lambda state: setattr(state, "tools", {}), "change_settings(tools=…)"),
    (lambda state: setattr(state, "model_info", named("gpt-4o")), "set_model(…)"),
    (lambda state: setattr(state, "model", "gpt-4o"), "set_model(…)"),
    (lambda state: setattr(state, "context_manager", None), "change_settings(context_manager=…)"),
    (lambda state: setattr(state, "mcp_enabled", False), "change_settings(mcp_enabled=…)"),
    (lambda state: setattr(state, "extra", {"a": 1}), "change_settings(extra=…)"),
    (lambda state: setattr(state, "file_line_tracker", {}), "record_lines(…)"),
]


@pytest.mark.req("I1")
@pytest.mark.parametrize(("change", "named"), CHANGES, ids=[named for _, named in CHANGES])
def test_a_view_never_changes_and_names_the_method_of_the_session(
    change: Callable[[ConversationState], object], named: str
) -> None:
    state = view()
    before = fields(state)
    with pytest.raises(InputError) as raised:
        change(state)
    assert str(raised.value).endswith(f"use await session.{named}")
    assert fields(state) == before


@pytest.mark.req("I1")
def test_a_method_that_is_gone_names_what_replaced_it() -> None:
    async def test(session: Session) -> None:
        for name, told in (("commit", "session.commit"), ("catch_up", r"session\.conversation\(\)")):
            with pytest.raises(AttributeError, match=told):
                getattr(session, name)
        with pytest.raises(AttributeError, match="no attribute 'comit'"):
            getattr(session, "comit")  # noqa: B009

    with_session(test)


@pytest.mark.req("I1")
def test_a_view_shows_the_version_at_which_it_was_read() -> None:
    async def test(session: Session) -> None:
        await say(session, "one")
        first = await session.conversation()
        shown = fields(first)
        await say(session, "two")
        await session.begin_tangent()
        await session.set_system("Rest.")
        second = await session.conversation()
        assert fields(first) == shown
        assert (first.system, second.system) == ("Keep.", "Rest.")
        assert (first.is_in_tangent_mode(), second.is_in_tangent_mode()) == (False, True)
        assert first.version < second.version == session.version
        assert prompts(second) == ["one", "two"]

    with_session(test)


@pytest.mark.req("I1", "L1")
def test_agents_and_tools_are_attached_to_a_view_to_be_read(tmp_path: Path) -> None:
    async def test(session: Session) -> None:
        await say(session, "one")
        state = await session.conversation(os=Desk(tmp_path))
        agents, toolbox = Harbor("painter", "New.", ["NEW.md"]), Toolbox({"native___": [tool("ls")]})
        state.attach(agents=agents, tool_manager=toolbox)
        assert state.tools == {ToolOrigin("builtin"): [tool("ls")]}
        assert state.context_manager is not None
        assert [one.path for one in state.context_manager.paths] == ["NEW.md"]
        assert state.system == "Keep."
        assert (await session.conversation()).tools == {}

    with_session(test)


async def beyond_the_newest(session: Session) -> None:
    """Give a session a beginning with lines and checkpoints, and then more than a view shows by default."""
    await session.record_lines({"a.py": FileLineTracker(lines=3)})
    await session.operate(write(Checkpoint(label="0", commit="a" * 40, work_tree="/work")))
    await session.begin_tangent()
    await say(session, "aside")
    await session.leave_tangent()
    messages = [
        one
        for number in range(NEWEST + 5)
        for one in (Message.user(f"{number}"), Message.assistant(f"answer to {number}"))
    ]
    await session.append(*messages)


@pytest.mark.req("I1")
def test_what_was_not_loaded_is_an_error_that_names_the_call() -> None:
    async def test(session: Session) -> None:
        await beyond_the_newest(session)
        state = await session.conversation()
        assert (len(state.history), state.has_earlier) == (NEWEST, True)
        assert prompts(state)[0] == "5"
        lacking: list[tuple[Callable[[], object], str]] = [
            (
                lambda: state.file_line_tracker,
                r"session\.lines\(\), or await session\.conversation\(last=…\)",
            ),
            (lambda: state.checkpoint_manager, r"checkpoint_manager .* session\.conversation\(last=…\)"),
            (state.kept_tangents, r"session\.tangents\(\), or await session\.conversation\(last=…\)"),
            (lambda: to_json(state), r"session\.conversation\(last=…\)"),
        ]
        for look, told in lacking:
            with pytest.raises(NotLoaded, match=told):
                look()

    with_session(test)


@pytest.mark.req("I1")
def test_a_view_of_the_last_exchanges_has_everything_beside_them() -> None:
    async def test(session: Session) -> None:
        await beyond_the_newest(session)
        state = await session.conversation(last=3)
        assert prompts(state) == [str(NEWEST + number) for number in (2, 3, 4)]
        assert state.has_earlier
        assert state.file_line_tracker == await session.lines() == {"a.py": FileLineTracker(lines=3)}
        assert state.checkpoint_manager is not None
        assert [one.label for one in state.checkpoint_manager.checkpoints] == ["0"]
        assert state.kept_tangents() == await session.tangents()
        assert [one.opening for one in state.kept_tangents()] == ["aside"]
        assert state.system == "Keep."
        whole = await session.conversation(last=10_000)
        assert (len(whole.history), whole.has_earlier) == (NEWEST + 5, False)

    with_session(test)


@pytest.mark.req("I1")
def test_a_short_conversation_is_shown_whole_with_its_lines_and_checkpoints() -> None:
    async def test(session: Session) -> None:
        await session.record_lines({"a.py": FileLineTracker(lines=3)})
        await session.operate(write(Checkpoint(label="0", commit="a" * 40, work_tree="/work")))
        await say(session, "one")
        state = await session.conversation()
        assert not state.has_earlier
        assert list(state.file_line_tracker) == ["a.py"]
        assert state.checkpoint_manager is not None

    with_session(test)


@pytest.mark.req("I1", "D5")
def test_a_view_has_the_exchanges_since_the_newest_cut_and_its_summary() -> None:
    async def test(session: Session) -> None:
        await say(session, *map(str, range(8)))
        await session.compact(strategy=Strategy(keep=3))
        await say(session, "8")
        state = await session.conversation()
        assert prompts(state) == ["5", "6", "7", "8"]
        assert (state.has_earlier, state.valid_history_range) == (True, (0, 4))
        assert state.latest_summary is not None
        whole = await session.conversation(last=100)
        assert (len(whole.history), whole.valid_history_range) == (9, (5, 9))
        assert whole.latest_summary == state.latest_summary
        await session.clear()
        assert (await session.conversation()).history == []
        assert await session.undo() == "clear"
        await session.undo()
        assert prompts(await session.conversation()) == [str(number) for number in range(9)]

    with_session(test)


@pytest.mark.req("J1")
def test_a_view_of_a_tangent_has_the_main_conversation(tmp_path: Path) -> None:
    async def test(session: Session) -> None:
        await say(session, "one", "two")
        main = await session.conversation(os=Desk(tmp_path))
        await session.begin_tangent()
        await say(session, "aside")
        await session.begin_tangent()
        await say(session, "further")
        state = await session.conversation(os=Desk(tmp_path))
        assert prompts(state) == ["one", "two", "aside", "further"]
        assert state.tangent_state is not None
        assert state.tangent_state.main_history == main.history
        assert state.tangent_state.main_transcript == main.transcript
        assert len(state.open_tangents) == 2

    with_session(test)


# Views as documents.


@pytest.mark.req("I9")
def test_a_view_of_everything_is_a_document_that_goes_on() -> None:
    async def test(session: Session) -> tuple[Any, Any]:
        await say(session, "one", "two")
        await session.note("503")
        await session.begin_tangent()
        await say(session, "aside")
        await session.append(Message.user("waiting"))
        view = await session.conversation(last=10_000)
        document = to_json(view)
        await session.leave_tangent("tail")
        return document, fields(await session.conversation(last=10_000))

    document, after = with_session(test)
    restored = from_json(document)
    assert to_json(restored) == document
    restored.exit_tangent_mode_with_tail()
    assert prompts(restored) == ["one", "two", "aside"]
    assert restored.transcript == after["transcript"]


@pytest.mark.req("I9")
def test_a_document_of_a_part_keeps_what_still_counts() -> None:
    async def test(session: Session) -> tuple[Any, list[str]]:
        await say(session, *map(str, range(8)))
        await session.compact(strategy=Strategy(keep=6))
        await say(session, "last")
        window = await session.preview(Budget(100_000))
        return to_json(await session.conversation()), [message.text for message in window.messages]

    document, sent = with_session(test)
    state = from_json(document)
    assert [message.text for message in state.preview().messages] == sent
    assert sent[0] == "Keep."
    plan = state.plan_compaction(Strategy(keep=1))
    assert plan is not None
    state.compact(plan)
    state.undo()
    assert [message.text for message in state.preview().messages] == sent
    state.begin_tangent(at=state.messages[5].id)
    talk(state, "aside")
    state.set_next_user_message("and?")
    again = from_json(to_json(state))
    assert again.preview().messages == state.preview().messages
    validate(again.preview(), again)
    assert again.undo() == "tangent"
    with pytest.raises(NothingToUndo, match="not in this log"):
        again.undo()


@pytest.mark.req("I9", "I8")
def test_a_clearing_before_the_part_that_a_document_has_is_not_undone() -> None:
    async def test(session: Session) -> Any:
        await say(session, "hidden")
        await session.clear()
        await say(session, *map(str, range(5)))
        return to_json(await session.conversation(last=2))

    state = from_json(with_session(test))
    assert prompts(state) == ["3", "4"]
    with pytest.raises(NothingToUndo):
        state.undo()
    assert [message.text for message in state.preview().messages][:2] == ["Keep.", "3"]


@pytest.mark.req("I9")
def test_a_view_and_a_state_without_a_session_are_written_as_json_by_a_method() -> None:
    async def test(session: Session) -> ConversationState:
        await say(session, "one", "two")
        return await session.conversation()

    view = with_session(test)
    assert view.to_json() == to_json(view)
    assert from_json(view.to_json()).to_json()["history"] == view.to_json()["history"]
