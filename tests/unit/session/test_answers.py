"""Which results a conversation takes: by whose id, how late, how often, and what is refused."""

from __future__ import annotations

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
    run,
    texts,
)
from turnstate import Message, formats
from turnstate.context.policy import Budget
from turnstate.context.window import Window
from turnstate.entry import Answer
from turnstate.errors import InvalidMessage
from turnstate.message import ToolCallRequest
from turnstate.session import Session

pytestmark = pytest.mark.req("A5")

WIDE, NARROW = Budget(100_000), Budget(700)


async def refused(session: Session, *messages: Message, match: str | None = None) -> None:
    before = await everything(session)
    with pytest.raises(InvalidMessage, match=match):
        await session.append(*messages)
    assert await everything(session) == before


def shown(window: Window) -> list[str]:
    """Return a window as one word a message: a role, or what a note says."""
    notes = "[Tool result that no open call awaits"
    return ["note" if message.text.startswith(notes) else message.role for message in window.messages]


def accepted(window: Window) -> bool:
    """Return True if every provider takes a window."""
    each = (formats.get(name) for name in formats.names())
    return all(one.validate(one.render(window.messages)) == [] for one in each)


async def asked(harness: Harness, *calls: ToolCallRequest) -> Session:
    """Open a session in which these calls were made."""
    session = await (await harness.manager()).create(id="s1")
    await session.append(Message.user("go"), asks(*calls))
    return session


@run
async def test_results_come_in_several_messages_and_in_any_order(harness: Harness) -> None:
    one, two, three = calls = [call(number=number) for number in range(3)]
    session = await asked(harness, *calls)
    await session.append(answers(answer(three, 3)))
    await session.append(answers(answer(two, 2)), answers(answer(one, 1)))
    window = await session.window(WIDE)
    assert shown(window) == ["user", "assistant", "tool", "tool", "tool"]
    given = {one.tool_call_id: one.result for message in window.messages for one in message.tool_results}
    assert given == {one.id: 1, two.id: 2, three.id: 3}
    assert accepted(window)


@pytest.mark.parametrize(
    "result", [0, False, "", None, [], {}, 1.5, [{"type": "text", "text": "hi"}]], ids=repr
)
@pytest.mark.req("A6")
@run
async def test_any_json_value_is_a_result(harness: Harness, result: Any) -> None:
    one = call()
    session = await asked(harness, one)
    await session.append(answers(answer(one, result)))
    assert (await session.messages())[-1].tool_results == (answer(one, result),)
    assert accepted(await session.window(WIDE))
    await session.append(answers(answer(one, result)))
    assert await texts(session) == ["go", "assistant", "tool"]


@run
async def test_a_result_is_known_by_the_providers_id_within_the_newest_batch(harness: Harness) -> None:
    old, new, plain = call(provider_id="call_0"), call(provider_id="call_0"), call(provider_id="call_1")
    session = await asked(harness, old)
    await session.append(answers(answer("call_0", "of the old")))
    await session.append(asks(new, plain))
    await session.append(answers(answer("call_1", "plain"), answer("call_0", "of the new")))
    given = [one for message in await session.messages() for one in message.tool_results]
    assert given == [answer(old, "of the old"), answer(plain, "plain"), answer(new, "of the new")]


@run
async def test_an_id_of_the_core_goes_before_an_equal_one_of_a_provider(harness: Harness) -> None:
    first = call()
    second = call(provider_id=first.id)
    session = await asked(harness, first, second)
    await session.append(answers(answer(first.id, "first"), answer(second.id, "second")))
    given = (await session.messages())[-1].tool_results
    assert given == (answer(first, "first"), answer(second, "second"))


@run
async def test_a_providers_id_names_the_newest_open_call_of_any_batch(harness: Harness) -> None:
    old, new = call(provider_id="old"), call(provider_id="new")
    session = await asked(harness, old)
    await session.append(Message.user("never mind"), asks(new))
    await session.append(answers(answer("old", "late")))
    await session.append(answers(answer("new")))
    given = [one for message in await session.messages() for one in message.tool_results]
    assert given == [answer(old, "late"), answer(new)]
    await refused(session, answers(answer("old", "another")), match="already has a different result")


@run
async def test_a_result_for_a_call_that_nobody_made_is_refused(harness: Harness) -> None:
    one = call()
    session = await asked(harness, one)
    await refused(session, answers(answer("call_unknown")), match="call_unknown")
    await refused(session, answers(answer(one), answer("call_unknown")))
    await refused(session, answers(answer(one)), answers(answer("call_unknown")))
    other = await (await harness.manager()).create()
    await refused(other, answers(answer(one)))


@run
async def test_another_result_for_an_answered_call_is_refused(harness: Harness) -> None:
    one, two = call(), call()
    session = await asked(harness, one, two)
    await session.append(answers(answer(one, 1)))
    await refused(session, answers(answer(one, 2)), match="already has a different result")
    await refused(session, answers(answer(one, 1, is_error=True)))
    await refused(session, answers(answer(one, "1")))
    await refused(session, answers(answer(two, 2), answer(one, 2)))
    await refused(session, answers(answer(two, 2), answer(two, 3)))
    await refused(session, answers(answer(two, 2)), answers(answer(two, 3)))


@pytest.mark.parametrize(
    ("first", "second"), [(1, True), (0, False), (1, 1.0), ([0], [False]), ({"a": 1}, {"a": True})]
)
@run
async def test_values_that_only_python_takes_for_equal_are_different_results(
    harness: Harness, first: Any, second: Any
) -> None:
    one = call()
    session = await asked(harness, one)
    await session.append(answers(answer(one, first)))
    await refused(session, answers(answer(one, second)))


@run
async def test_an_identical_result_is_ignored_and_changes_nothing(harness: Harness) -> None:
    one = call()
    session = await asked(harness, one)
    first = await session.append(answers(answer(one, {"a": [1]})))
    before = await everything(session)
    for handle in (session, await (await harness.manager()).open("s1")):
        again = await handle.append(answers(answer(one, {"a": [1]})))
        assert (again.repeated, again.version, again.head) == (True, first.version, first.head)
    assert await everything(session) == before


@run
async def test_of_a_batch_that_is_partly_known_only_what_is_new_is_taken(harness: Harness) -> None:
    one, two, three = call(), call(), call()
    session = await asked(harness, one, two, three)
    await session.append(answers(answer(one, 1)))
    await session.append(
        answers(answer(one, 1), answer(two, 2)), answers(answer(two, 2)), answers(answer(three, 3))
    )
    given = [message.tool_results for message in await session.messages() if message.tool_results]
    assert given == [(answer(one, 1),), (answer(two, 2),), (answer(three, 3),)]
    assert accepted(await session.window(WIDE))


@run
async def test_calls_and_their_results_may_come_in_one_append(harness: Harness) -> None:
    session, one, two = await (await harness.manager()).create(), call(provider_id="p"), call()
    await session.append(
        Message.user("go"), asks(one), answers(answer("p", 1)), asks(two), answers(answer(two, 2))
    )
    given = [message.tool_results for message in await session.messages() if message.tool_results]
    assert given == [(answer(one, 1),), (answer(two, 2),)]


@run
async def test_a_result_may_not_come_before_its_call(harness: Harness) -> None:
    session, one = await (await harness.manager()).create(), call()
    await refused(session, Message.user("go"), answers(answer(one)), asks(one))


@pytest.mark.req("C3")
@run
async def test_a_result_that_comes_after_the_user_spoke_is_kept_and_shown_in_its_own_place(
    harness: Harness,
) -> None:
    one, two = call(), call()
    session = await asked(harness, one, two)
    await session.append(answers(answer(one, 1)))
    await session.append(Message.user("what takes so long?"))
    before = await session.window(WIDE)
    assert shown(before) == ["user", "assistant", "tool", "tool", "user"]
    await session.append(answers(answer(two, 2)))
    after = await session.window(WIDE)
    assert shown(after) == ["user", "assistant", "tool", "tool", "user", "note"]
    assert after.messages[:5] == before.messages
    assert await texts(session) == ["go", "assistant", "tool", "what takes so long?", "tool"]
    assert accepted(after)
    again = await (await harness.manager()).open("s1")
    assert (await again.window(WIDE)).messages == after.messages
    await refused(session, answers(answer(two, 3)))


@pytest.mark.req("C3")
@run
async def test_calls_that_were_left_behind_are_answered_once_and_for_all(harness: Harness) -> None:
    one = call()
    session = await asked(harness, one)
    await session.append(Message.user("stop"))
    window = await session.window(WIDE)
    assert [decision for decision in window.decisions if isinstance(decision, Answer)] == list(
        window.decisions
    )
    assert len(window.decisions) == 1
    for handle in (session, await (await harness.manager()).open("s1")):
        assert (await handle.window(WIDE)).decisions == ()
        assert (await handle.window(WIDE)).messages == window.messages


@pytest.mark.req("C3", "C9")
@pytest.mark.parametrize("by", ["core", "provider"])
@pytest.mark.parametrize("handle", ["live", "fresh"])
@run
async def test_a_result_whose_call_has_left_the_window_is_kept_and_shown_as_text(
    harness: Harness, by: str, handle: str
) -> None:
    one = call(provider_id="p1")
    session = await asked(harness, one)
    await grown(session, 30)
    await session.window(NARROW)
    assert await cuts(session)
    if handle == "fresh":
        session = await (await harness.manager()).open("s1")
        await session.window(NARROW)
        held = session._handle.windows.known.messages  # type: ignore[union-attr]
        assert one not in [call for message in held for call in message.tool_calls]
    late = answers(answer(one.id if by == "core" else "p1", "at last"))
    await session.append(late)
    window = await session.window(NARROW)
    assert shown(window)[-1] == "note"
    assert accepted(window)
    assert (await session.messages())[-1].tool_results == (answer(one, "at last"),)
    await session.append(answers(answer(one, "at last")))
    await refused(session, answers(answer(one, "otherwise")))


@pytest.mark.req("C9")
@run
async def test_a_call_that_was_answered_before_the_cut_stays_answered(harness: Harness) -> None:
    one = call()
    session = await asked(harness, one)
    await session.append(answers(answer(one, 1)))
    await grown(session, 30)
    await session.window(NARROW)
    fresh = await (await harness.manager()).open("s1")
    await refused(fresh, answers(answer(one, 2)))
    await refused(fresh, answers(answer("call_unknown")))
    assert (await fresh.append(answers(answer(one, 1)))).repeated


@run
async def test_a_call_of_another_branch_is_unknown_there(harness: Harness) -> None:
    session, one = await (await harness.manager()).create(), call()
    await session.append(Message.user("go", id="m1"))
    await session.append(asks(one))
    await session.rewind(to="m1")
    await refused(session, answers(answer(one)))
    await session.undo()
    await session.append(answers(answer(one)))


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("cut", [True, False])
@run
async def test_an_id_that_is_used_again_names_the_newer_call(
    harness: Harness, answered: bool, cut: bool
) -> None:
    old, new, lost = (ToolCallRequest(id=id, name="ls", args={}) for id in ("call_0", "call_0", "lost"))
    session = await asked(harness, old, lost)
    if answered:
        await session.append(answers(answer(old, "old")))
    if cut:
        await grown(session, 30)
        await session.window(NARROW)
        session = await (await harness.manager()).open("s1")
    await session.append(Message.user("again"), asks(new))
    await session.append(answers(answer("lost", "late"), answer("call_0", "new")))
    await refused(session, answers(answer("call_0", "newer")))
    assert (await session.messages())[-1].tool_results == (answer("lost", "late"), answer("call_0", "new"))
    window = await session.window(NARROW)
    assert accepted(window)


@run
async def test_results_under_a_repeated_provider_id_go_to_the_calls_in_order(harness: Harness) -> None:
    calls = [call("ls", "call_0", number=number) for number in range(4)]
    session = await asked(harness, *calls)
    await session.append(answers(answer("call_0", "a"), answer("call_0", "b")))
    other = await (await harness.manager()).open("s1")
    await other.append(answers(answer("call_0", "a")))
    await session.append(answers(answer("call_0", "d")))
    given = [result for message in await session.messages() for result in message.tool_results]
    assert [(one.tool_call_id, one.result) for one in given] == list(
        zip([one.id for one in calls], "abad", strict=True)
    )
    assert accepted(await session.window(WIDE))
    await refused(session, answers(answer("call_0", "e")), match="already has a different result")
    await session.append(answers(answer("call_0", "d")))
    assert len(await session.messages()) == 5


@run
async def test_a_batch_that_comes_with_its_results_resolves_repeated_ids_in_order(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    calls = [call("ls", "x"), call("ls", "x")]
    await session.append(Message.user("go"), asks(*calls), answers(answer("x", 1), answer("x", 2)))
    given = {one.tool_call_id: one.result for m in await session.messages() for one in m.tool_results}
    assert given == {calls[0].id: 1, calls[1].id: 2}
