"""The handle of a conversation: its prompt, its branches, and what is read of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.session.session_fixtures import (
    Harness,
    answer,
    answers,
    asks,
    call,
    cuts,
    everything,
    grown,
    prompt,
    run,
    say,
    texts,
)
from turnstate import Message
from turnstate.context.policy import Budget
from turnstate.errors import InputError, NotFound, SessionError

BUDGET = Budget(100_000)


# The prompt


@pytest.mark.req("A1")
@run
async def test_the_newest_prompt_wins_and_a_rewind_brings_the_older_one_back(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1", system="first")
    await say(session, "a")
    await session.set_system("second")
    await say(session, "b")
    await session.set_system("third")
    assert prompt(await session.window(BUDGET)) == "third"
    await session.rewind(to="b")
    assert prompt(await session.window(BUDGET)) == "second"
    await session.rewind(to="a")
    for handle in (session, await (await harness.manager()).open("s1")):
        assert prompt(await handle.window(BUDGET)) == "first"
    await session.undo()
    await session.undo()
    assert prompt(await session.window(BUDGET)) == "third"


@pytest.mark.req("A1")
@run
async def test_a_prompt_that_was_set_before_the_cut_still_stands(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1", system="first")
    await session.set_system("second")
    await grown(session, 30)
    window = await session.window(Budget(700))
    assert await cuts(session)
    fresh = await (await harness.manager()).open("s1")
    assert prompt(await fresh.window(Budget(700))) == prompt(window) == "second"


@pytest.mark.req("A1", "G5")
@run
async def test_a_prompt_changes_no_version_and_is_no_message(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await say(session, "a")
    version = session.version
    receipt = await session.set_system("You help.")
    assert receipt.version == version
    assert await texts(session) == ["a"]


@pytest.mark.req("A6")
@pytest.mark.parametrize("value", ["\ud800", 5, b"bytes"], ids=repr)
@run
async def test_a_prompt_that_is_no_text_is_refused(harness: Harness, value: Any) -> None:
    session = await (await harness.manager()).create(system="first")
    before = await everything(session)
    with pytest.raises(InputError):
        await session.set_system(value)
    with pytest.raises(InputError):
        session = await session.reset(system=value)
    assert await everything(session) == before


@pytest.mark.req("A6")
@pytest.mark.parametrize("value", ["\ud800", "a\0b", "x" * 501, 5], ids=lambda value: repr(value)[:9])
@run
async def test_a_branch_a_reason_or_a_holder_with_a_hostile_name_is_refused(
    harness: Harness, value: Any
) -> None:
    session = await (await harness.manager()).create()
    await say(session, "a")
    before = await everything(session)
    with pytest.raises(InputError):
        await session.fork(name=value)
    with pytest.raises(InputError):
        await session.end(value)
    with pytest.raises(InputError):
        await session.acquire(holder=value)
    assert await everything(session) == before


# Reading


@pytest.mark.req("G2")
@pytest.mark.parametrize(
    ("last", "expected"), [(0, []), (1, ["e"]), (3, ["c", "d", "e"]), (5, list("abcde")), (99, list("abcde"))]
)
@run
async def test_the_last_messages_are_given_in_their_order(
    harness: Harness, last: int, expected: list[str]
) -> None:
    session = await (await harness.manager()).create(system="You help.")
    await say(session, "a", "b")
    await session.fork(at="b")
    await say(session, "c")
    await session.set_system("Help more.")
    await say(session, "d", "e")
    assert [message.text for message in await session.messages(last=last)] == expected


@pytest.mark.req("G2")
@run
async def test_a_negative_number_of_messages_is_refused(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    with pytest.raises(InputError):
        await session.messages(last=-1)


@pytest.mark.req("C9")
@run
async def test_what_was_cut_is_still_among_the_messages(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    said = await grown(session, 30)
    window = await session.window(Budget(700))
    assert len(window.messages) < len(said)
    assert await session.messages() == said
    assert await session.messages(last=50) == said[-50:]


@pytest.mark.req("G1")
@run
async def test_an_empty_session_has_no_messages_and_an_empty_window(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    assert await session.messages() == []
    assert await session.messages(last=3) == []
    assert (await session.window(BUDGET)).messages == ()


@pytest.mark.req("G2")
@run
async def test_titles_tags_and_meta_are_changed_in_place(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create(title="old", tags=["a"], meta={"n": 1})
    await session.rename("new")
    await session.tag("c", "b", "c")
    await session.annotate({"n": [2, {"deep": None}]})
    for row in (session._row, (await sessions.open(session.id))._row):
        assert (row.title, row.tags, row.meta, row.version) == (
            "new",
            ("b", "c"),
            {"n": [2, {"deep": None}]},
            0,
        )
    await session.tag()
    assert (await sessions.open(session.id))._row.tags == ()


# Branches


@pytest.mark.req("C9")
@run
async def test_a_rewind_makes_a_message_the_last_one_and_keeps_the_rest_in_the_log(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await say(session, "a", "b", "c")
    await session.rewind(to="a")
    assert await texts(session) == ["a"]
    await say(session, "d")
    assert await texts(session) == ["a", "d"]
    assert [branch.operation for branch in await session.branches()] == ["create", "rewind"]
    await session.rewind(to="c")
    assert await texts(session) == ["a", "b", "c"]


@pytest.mark.req("C9")
@run
async def test_a_fork_goes_on_from_the_head_or_from_a_message_of_any_branch(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await say(session, "a", "b")
    branch = await session.fork(name="try")
    assert (branch.name, branch.parent, branch.fork_seq, branch.operation) == ("try", 1, 2, "fork")
    await say(session, "c")
    await session.fork(at="a")
    await say(session, "d")
    assert await texts(session) == ["a", "d"]
    await session.fork(at="c")
    assert await texts(session) == ["a", "b", "c"]
    await say(session, "e")
    assert await texts(session) == ["a", "b", "c", "e"]


@pytest.mark.req("C3")
@run
async def test_a_rewind_into_a_group_goes_to_its_start(harness: Harness) -> None:
    session, one, two = await (await harness.manager()).create(), call(), call()
    await say(session, "a")
    group = [asks(one, two), answers(answer(two)), answers(answer(one))]
    for message in group:
        await session.append(message)
    await session.append(Message.assistant("done"))
    await session.rewind(to=group[1].id)
    assert await texts(session) == ["a"]
    await session.undo()
    await session.rewind(to=group[2].id)
    assert await texts(session) == ["a", "assistant", "tool", "tool"]


@pytest.mark.req("C9")
@run
async def test_undo_takes_back_the_newest_operation_first(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await say(session, "a", "b", "c")
    await session.fork()
    await say(session, "d")
    await session.rewind(to="b")
    await say(session, "e")
    await session.fork(at="a")
    assert [await session.undo(), await texts(session)] == ["fork", ["a", "b", "e"]]
    assert [await session.undo(), await texts(session)] == ["rewind", ["a", "b", "c", "d"]]
    assert [await session.undo(), await texts(session)] == ["fork", ["a", "b", "c"]]
    before = await everything(session)
    with pytest.raises(SessionError, match="nothing to undo"):
        await session.undo()
    assert await everything(session) == before


@pytest.mark.req("G7")
@run
async def test_a_reset_is_not_undone(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await say(session, "a", "b")
    await session.rewind(to="a")
    session = await session.reset()
    with pytest.raises(SessionError, match="nothing to undo"):
        await session.undo()
    assert await texts(session) == []


@pytest.mark.req("G4")
@run
async def test_a_message_that_is_not_there_or_in_another_session_is_not_found(harness: Harness) -> None:
    sessions = await harness.manager()
    session, other = await sessions.create(), await sessions.create()
    await say(session, "a")
    await say(other, "b")
    before = await everything(session)
    for id in ("nobody", "b", "", "\ud800", "a\0"):
        with pytest.raises((NotFound, InputError)):
            await session.rewind(to=id)
        with pytest.raises((NotFound, InputError)):
            await session.fork(at=id)
    assert await everything(session) == before


@pytest.mark.req("G5")
@run
async def test_every_change_of_the_path_makes_the_version_grow(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await say(session, "a", "b")
    versions = [session.version]
    for change in (session.fork(), session.rewind(to="a"), session.undo(), session.reset()):
        await change
        versions.append(session.version)
    assert versions == [2, 3, 4, 5, 6]


@pytest.mark.req("C9")
@run
async def test_another_handle_follows_to_the_new_head(harness: Harness) -> None:
    sessions = await harness.manager()
    session, other = await sessions.create(id="s1"), await sessions.open("s1")
    await say(session, "a", "b")
    await other.window(BUDGET)
    await session.rewind(to="a")
    await say(session, "c")
    assert [message.text for message in (await other.window(BUDGET)).messages] == ["a", "c"]
    await other.append(Message.user("d"))
    assert await texts(session) == ["a", "c", "d"]


@pytest.mark.req("C9")
@run
async def test_cuts_hold_on_the_path_that_contains_them_and_on_no_other(harness: Harness) -> None:
    session, narrow = await (await harness.manager()).create(id="s1"), Budget(700)
    said = await grown(session, 30)
    cut = await session.window(narrow)
    assert len(cut.messages) < 40
    await session.rewind(to=said[9].id)
    whole = await session.window(narrow)
    assert [message.id for message in whole.messages] == [message.id for message in said[:10]]
    await session.undo()
    for handle in (session, await (await harness.manager()).open("s1")):
        assert (await handle.window(narrow)).messages == cut.messages


# Wrong input


HUGE = 10**5_000
"""An integer that Python refuses to print."""


@pytest.mark.req("A6", "G6")
@run
async def test_wrong_input_is_refused_by_name_and_changes_nothing(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create(id="s1", user="u1")
    await session.append(Message.user("a"))
    turn = session.turn("b", budget=BUDGET)
    wrong: list[Callable[[], Any]] = [
        lambda value=value, name=name: session.window(BUDGET, **{name: value})
        for name in ("context", "memory")
        for value in ("a\ud800b", 5)
    ]
    for value in (HUGE, [1], object(), 1.5):
        any_value: Any = value
        wrong += [
            lambda value=any_value: sessions.create(tags=value),
            lambda value=any_value: sessions.list(cursor=value),
            lambda value=any_value: session.append(Message.user("c"), expected_version=value),
            lambda value=any_value: session.begin_tangent(at=value),
            lambda value=any_value: session.leave_tangent(value),
            lambda value=any_value: session.leave_tangent("summary", summary=value),
            lambda value=any_value: session.reopen_tangent(value),
            lambda value=any_value: session.undo(only=value),
            lambda value=any_value: session.note(value),
            lambda value=any_value: session.change_settings(mcp_enabled=value),
            lambda value=any_value: session.change_settings(extra=value),
            lambda value=any_value: session.change_settings(tools=value),
            lambda value=any_value: session.change_settings(context_manager=value),
            lambda value=any_value: session.record_lines(value),
            lambda value=any_value: session.record_lines({"/a": value}),
            lambda value=any_value: session.conversation(last=value),
            lambda value=any_value: session.ask(value),
            lambda value=any_value: session.operate(value),
            lambda value=any_value: session.fork(at=value),
            lambda value=any_value: session.rewind(to=value),
            lambda value=any_value: session.window(value),
            lambda value=any_value: session.state.set("app", "key", 1, expected=value),
            lambda value=any_value: turn.request(value),
            lambda value=any_value: turn.result(value, 1),
            lambda value=any_value: turn.started([value]),
        ]
    wrong.append(lambda: session.entries(kinds=5))  # type: ignore[arg-type]
    wrong.append(lambda: turn.request("openai-chat", tools=[]))
    before = await everything(session)
    for index, one in enumerate(wrong):
        with pytest.raises(InputError):
            assert await one() is None, f"call {index} was accepted"
    assert await everything(session) == before


@run
async def test_text_of_a_foreign_string_type_is_stored_as_text(harness: Harness) -> None:
    class Markup(str):
        """As template engines return it."""

    sessions = await harness.manager()
    session = await sessions.create(id=Markup("s1"), user=Markup("u1"), model=Markup("gpt-5"))
    await session.set_system(Markup("Be brief."))
    await session.set_model(Markup("gpt-4o"))
    await session.append(Message.user(Markup("a")))
    await session.end(Markup("done"))
    assert await texts(session) == ["a"]
