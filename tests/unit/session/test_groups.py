"""Where a path may end: behind a message, never between calls and their answers."""

from __future__ import annotations

import pytest
from session_stage import Stage, answer, answers, asks, call, played

from turnstate import Message
from turnstate.errors import NotFound
from turnstate.session import Session
from turnstate.session.branching import end_of, entry_row
from turnstate.stores.values import Position

pytestmark = pytest.mark.req("C3")


async def ends(session: Session, *messages: Message) -> list[int]:
    """Append messages one by one, and give for each how many are left when the path ends there."""
    for message in messages:
        await session.append(message)
    store, at = session._writer.store, session.row.address
    return [(await end_of(store, at, message.id)).seq for message in messages]


async def ends_of(stage: Stage, *messages: Message) -> list[int]:
    return await ends(await (await stage.manager()).create(), *messages)


@played
async def test_words_end_where_they_stand(stage: Stage) -> None:
    assert await ends_of(stage, Message.user("a"), Message.assistant("b"), Message.user("c")) == [1, 2, 3]


@played
async def test_inside_a_group_the_path_ends_before_it_and_behind_its_last_answer_it_ends_there(
    stage: Stage,
) -> None:
    one, two = call(), call()
    group = [asks(one, two), answers(answer(two)), answers(answer(one))]
    assert await ends_of(stage, Message.user("a"), *group, Message.assistant("b")) == [1, 1, 1, 4, 5]


@played
async def test_neighbouring_groups_are_told_apart(stage: Stage) -> None:
    one, two = call(), call()
    rounds = [asks(one), answers(answer(one)), asks(two), answers(answer(two))]
    assert await ends_of(stage, Message.user("a"), *rounds) == [1, 1, 3, 3, 5]


@played
async def test_a_group_may_have_two_messages_of_calls(stage: Stage) -> None:
    one, two = call(), call()
    group = [asks(one), asks(two), answers(answer(one)), answers(answer(two))]
    assert await ends_of(stage, Message.user("a"), *group) == [1, 1, 1, 1, 5]


@played
async def test_words_that_are_said_while_calls_are_open_belong_to_the_group(stage: Stage) -> None:
    one = call()
    group = [
        Message.assistant("let me see"),
        asks(one),
        Message.assistant("still running"),
        answers(answer(one)),
    ]
    assert await ends_of(stage, Message.user("a"), *group) == [1, 2, 2, 2, 5]


@played
async def test_a_late_result_ends_where_it_stands(stage: Stage) -> None:
    one, two = call(), call()
    said = [Message.user("a"), asks(one), Message.user("b"), answers(answer(one)), asks(two)]
    assert await ends_of(stage, *said) == [1, 1, 3, 4, 4]


@played
async def test_decisions_between_a_call_and_its_answer_do_not_hide_the_group(stage: Stage) -> None:
    session, one, two = await (await stage.manager()).create(), call(), call()
    await session.append(Message.user("a"), asks(one, two), answers(answer(one)))
    await session.set_system("You help.")
    last = answers(answer(two, 1))
    await session.append(last)
    store, at = session._writer.store, session.row.address
    first = (await session.messages())[2]
    assert await end_of(store, at, first.id) == Position(1, 1)
    assert await end_of(store, at, last.id) == Position(1, 5)


@played
async def test_a_group_that_a_fork_divides_is_still_one(stage: Stage) -> None:
    session, one, two = await (await stage.manager()).create(), call(), call()
    await session.append(Message.user("a"), asks(one, two))
    await session.fork()
    middle, last = answers(answer(one)), answers(answer(two))
    await session.append(middle)
    await session.append(last)
    store, at = session._writer.store, session.row.address
    assert await end_of(store, at, middle.id) == Position(1, 1)
    assert await end_of(store, at, last.id) == Position(2, 4)


@played
async def test_an_id_that_no_entry_has_is_not_entry_row(stage: Stage) -> None:
    session = await (await stage.manager()).create()
    with pytest.raises(NotFound, match="nobody"):
        await entry_row(session._writer.store, session.row.address, "nobody")
