"""Undo: the newest thing that the user did, taken back, in any process, with the same bytes as before."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.unit.session.session_fixtures import (
    Harness,
    answer,
    answers,
    asks,
    call,
    cuts,
    decisions,
    everything,
    grown,
    run,
    texts,
)
from tests.unit.session.state_fixtures import elsewhere, prompts, restored, said, spoken
from turnstate import Budget, Message, formats
from turnstate.archive import adopt_state, archive, bundles, encode_line, restore
from turnstate.context.cut import Strategy, carried
from turnstate.conversation import ConversationState, from_json
from turnstate.entry import Revert
from turnstate.errors import InputError, NotFound, NothingToUndo, SessionError
from turnstate.home import Home
from turnstate.log.operations import Effect, Here, Steps, end_of, write
from turnstate.log.undo import undo_restore
from turnstate.session import Session, SessionManager
from turnstate.snapshots import Snapshots
from turnstate.stores.values import Address, Position
from turnstate.testing import ScriptedModel

pytestmark = pytest.mark.req("D5")

BUDGET = Budget(3_000)
KEY = "the key is under the mat"
GOOD = "Goal: find the lost key.\nNext: look under the mat."


async def shown(session: Session, budget: Budget = BUDGET) -> bytes:
    """Return the window as bytes; what had to be decided for it is written."""
    return msgspec.json.encode((await session.window(budget)).messages)


@pytest.mark.parametrize("model", [True, False])
@run
async def test_undo_brings_the_view_back_byte_for_byte(harness: Harness, model: bool) -> None:
    session = await (await harness.manager(model=ScriptedModel(GOOD))).create()
    await grown(session, 10)
    before = await shown(session)
    await session.compact(model=model)
    compacted = await shown(session)
    assert compacted != before
    assert await session.undo() == "compact"
    assert await shown(session) == before
    assert await shown(await elsewhere(harness, session)) == before


@run
async def test_a_new_process_undoes_what_another_compacted(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 10)
    before = await shown(session)
    await session.compact()
    other = await elsewhere(harness, session)
    assert await shown(other) != before
    await other.undo()
    assert await shown(other) == before
    assert await shown(session) == before  # the handle that compacted sees it as well


@run
async def test_undo_takes_back_the_collectors_cuts_that_came_after_the_compaction(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 80)
    before = await shown(session)  # the collector has cut once already
    await session.compact(strategy=Strategy(keep=12))
    for limit in (600, 300):
        assert (await session.window(Budget(limit))).decisions
    kinds = [bool(cut.asked) for cut in await cuts(session)]
    assert kinds == [False, True, False, False]
    assert await session.undo() == "compact"
    assert await shown(session) == before
    assert await shown(await elsewhere(harness, session)) == before
    assert len(await cuts(session)) == 4  # nothing was planned anew


@run
async def test_what_was_said_and_cut_after_a_compaction_is_planned_anew_without_it(harness: Harness) -> None:
    session, plain = [await (await harness.manager()).create() for _ in range(2)]
    said = await grown(session, 20)
    await plain.append(*(one.replace(id=f"{one.id}-plain") for one in said))
    await session.compact(strategy=Strategy(keep=2))
    said = await grown(session, 90)
    await plain.append(*(one.replace(id=f"{one.id}-plain") for one in said))
    assert (await session.window(BUDGET)).decisions
    await session.undo()
    texts = [[one.text for one in (await each.window(BUDGET)).messages] for each in (session, plain)]
    assert texts[0] == texts[1]


@run
async def test_words_that_were_said_since_stay(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    said = await grown(session, 10)
    await session.compact()
    await session.append(Message.user("since then"))
    await session.undo()
    window = await session.window(BUDGET)
    assert [message.text for message in window.messages] == [*(one.text for one in said), "since then"]
    assert len(await session.messages()) == 21


@run
async def test_compactions_are_undone_one_after_the_other(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 10)
    views = [await shown(session)]
    for keep in (6, 4, 2):
        await session.compact(strategy=Strategy(keep=keep))
        views.append(await shown(session))
    assert len(set(views)) == 4
    for expected in reversed(views[:-1]):
        assert await session.undo() == "compact"
        assert await shown(session) == expected
        assert await shown(await elsewhere(harness, session)) == expected
    with pytest.raises(SessionError, match="nothing to undo"):
        await session.undo()


@run
async def test_after_an_undo_one_can_compact_again_and_undo_that(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 10)
    before = await shown(session)
    for keep in (3, 5, 3):
        await session.compact(strategy=Strategy(keep=keep))
        window = await session.window(BUDGET)
        assert len(window.messages) == 1 + 2 * keep
        await session.undo()
        assert await shown(session) == before
    assert [type(one) for one in await decisions(session)][1::2] == [Revert] * 3


@run
async def test_a_compaction_on_top_of_the_collectors_cut_leads_back_to_that_cut(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 60)
    before = await shown(session)
    collected = (await cuts(session))[0]
    await session.compact(strategy=Strategy(keep=1))
    await session.undo()
    other = await elsewhere(harness, session)
    assert await shown(other) == before
    assert (await other.preview(BUDGET)).view.cut == collected
    assert len(await cuts(session)) == 2  # nothing was planned anew


@run
async def test_a_models_summary_of_the_former_cut_holds_again(harness: Harness) -> None:
    session = await (await harness.manager(model=ScriptedModel(GOOD))).create()
    await grown(session, 10)
    await session.compact(strategy=Strategy(keep=6))
    before = await shown(session)
    assert GOOD.encode()[:20] in before
    await session.compact(strategy=Strategy(keep=2), model=False)
    await session.undo()
    assert await shown(session) == before
    assert await shown(await elsewhere(harness, session)) == before


@run
async def test_undo_goes_back_over_forks_rewinds_and_compactions_in_the_order_of_their_making(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create()
    said = await grown(session, 10)
    views = [await shown(session)]
    await session.compact(strategy=Strategy(keep=4))
    views.append(await shown(session))
    await session.rewind(to=said[17].id)
    views.append(await shown(session))
    await session.compact(strategy=Strategy(keep=1))
    views.append(await shown(session))
    await session.fork(name="idea")
    done = [await session.undo()]
    assert await shown(session) == views[3]
    for expected in reversed(views[:3]):
        done.append(await session.undo())
        assert await shown(session) == expected
        assert await shown(await elsewhere(harness, session)) == expected
    assert done == ["fork", "compact", "rewind", "compact"]


@pytest.mark.req("I8")
@run
async def test_a_clearing_is_undone_like_a_compaction(harness: Harness) -> None:
    session = await (await harness.manager()).create(system="You keep a lighthouse.")
    await grown(session, 5)
    before = await shown(session)
    assert await session.clear()
    assert [message.kind for message in (await session.window(BUDGET)).messages] == ["prompt"]
    assert len(await session.messages()) == 10
    other = await elsewhere(harness, session)
    assert await other.undo() == "clear"
    assert await shown(other) == before
    assert await shown(session) == before
    assert len((await other.conversation()).history) == 5


@pytest.mark.req("J1", "J2")
@run
async def test_leaving_a_tangent_is_undone_by_going_back_into_it(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 2)
    main = await shown(session)
    await session.begin_tangent()
    await said(session, "aside")
    inside = await shown(session)
    await session.leave_tangent()
    assert await shown(session) == main
    assert await session.undo() == "tangent exit"
    assert await shown(session) == inside
    assert (await session.conversation()).is_in_tangent_mode()
    assert await session.undo() == "tangent"
    assert await shown(session) == main
    with pytest.raises(SessionError, match="nothing to undo"):
        await session.undo()


async def with_operations(session: Session) -> None:
    """Compact, rewind, begin a tangent, restore in it, and leave it."""
    messages = await grown(session, 6)
    await session.compact(strategy=Strategy(keep=4), model=False)
    await session.rewind(to=messages[9].id)
    await session.begin_tangent()
    await said(session, "aside")
    place = session.info.seq
    await session.append(Message.user("further"))
    await session.operate(restored(place))
    await session.leave_tangent()


OPERATIONS = ["tangent exit", "restore", "tangent", "rewind", "compact"]


@pytest.mark.req("J1", "J2")
@pytest.mark.parametrize("elsewhere_too", [False, True], ids=["one handle", "a new one each time"])
@run
async def test_every_operation_is_undone_in_its_order_and_shows_what_was_before(
    harness: Harness, elsewhere_too: bool
) -> None:
    session = await (await harness.manager()).create()
    await with_operations(session)
    handle, done = session, list[str]()
    for _ in OPERATIONS:
        handle = await elsewhere(harness, session) if elsewhere_too else session
        done.append(await handle.undo())
        assert (await handle.conversation(last=100)).messages == await session.messages()
    assert done == OPERATIONS
    for nothing in (handle, session, await elsewhere(harness, session)):
        before = await everything(session)
        with pytest.raises(NothingToUndo, match="nothing to undo"):
            await nothing.undo()
        assert await everything(session) == before


@pytest.mark.req("J1", "J2")
@run
async def test_a_conversation_without_a_session_undoes_the_same(harness: Harness) -> None:
    session, state = await (await harness.manager()).create(), ConversationState()
    await said(session, "one", "two")
    spoken(state, "one", "two")
    await session.begin_tangent()
    state.begin_tangent()
    await said(session, "aside")
    spoken(state, "aside")
    await session.leave_tangent("tail")
    state.exit_tangent_mode_with_tail()
    await session.clear()
    state.clear()

    async def shows_the_same() -> None:
        assert [message.text for message in state.messages] == await texts(session)
        assert prompts(state) == prompts(await session.conversation())

    await shows_the_same()
    done = list[str]()
    for _ in range(3):
        done.append(await session.undo())
        assert state.undo() == done[-1]
        await shows_the_same()
    assert done == ["clear", "tangent exit", "tangent"]
    with pytest.raises(NothingToUndo):
        state.undo()


@run
async def test_undo_of_one_kind_only_refuses_another_and_changes_nothing(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 6)
    await session.compact(strategy=Strategy(keep=2), model=False)
    await session.begin_tangent()
    before = await everything(session)
    with pytest.raises(InputError, match="the newest operation is not a compact but a tangent"):
        await session.undo(only="compact")
    assert await everything(session) == before
    assert await session.undo(only="tangent") == "tangent"
    assert await session.undo(only="compact") == "compact"
    with pytest.raises(NothingToUndo):
        await session.undo(only="compact")


@pytest.mark.req("J2")
@run
async def test_a_compaction_before_a_tangent_is_undone_after_the_tangent(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 6)
    before = await shown(session)
    await session.compact(strategy=Strategy(keep=1), model=False)
    await session.begin_tangent()
    await session.append(Message.user("aside"))
    await session.leave_tangent()
    assert [await session.undo() for _ in range(3)] == ["tangent exit", "tangent", "compact"]
    assert await shown(session) == before


@run
async def test_a_compaction_inside_a_tangent_is_undone_there_and_no_further(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 4)
    await session.compact(strategy=Strategy(keep=2))
    await session.begin_tangent()
    await said(session, "aside")
    inside = await shown(session)
    await session.compact(strategy=Strategy(keep=1))
    done = [await session.undo()]
    assert await shown(session) == inside
    done += [await session.undo(), await session.undo()]
    assert done == ["compact", "tangent", "compact"]


@run
async def test_the_collectors_own_cuts_are_not_undone(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 60)
    await session.window(BUDGET)
    assert len(await cuts(session)) == 1
    with pytest.raises(SessionError, match="nothing to undo"):
        await session.undo()


@run
async def test_two_workers_that_undo_at_once_undo_two_things(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 10)
    before = await shown(session)
    await session.compact(strategy=Strategy(keep=6))
    await session.compact(strategy=Strategy(keep=2))
    other = await elsewhere(harness, session)
    await shown(other)
    await session.undo()
    await other.undo()
    assert await shown(session) == await shown(other) == before


async def imported(harness: Harness) -> Session:
    """Make a session of a conversation whose summary covers messages that no log of ours holds."""
    state = from_json(
        {
            "conversation_id": "s1",
            "history": [],
            "valid_history_range": [0, 0],
            "transcript": [],
            "tools": {},
            "latest_summary": [KEY, {}],
        }
    )
    spoken(state, "one", "two", "three")
    sessions = await harness.manager()
    await adopt_state(sessions.store, sessions.tenant, state)
    return await sessions.open("s1")


async def kept_summary(session: Session, reason: str = "not in this log") -> None:
    """See that undo refuses, says why, changes nothing, and that the summary is still shown."""
    before, log = await shown(session), await everything(session)
    with pytest.raises(SessionError, match=reason):
        await session.undo()
    assert await everything(session) == log
    assert await shown(session) == before
    assert KEY.encode() in before


@run
async def test_the_summary_of_an_imported_conversation_cannot_be_undone(harness: Harness) -> None:
    session = await imported(harness)
    await kept_summary(session)
    await kept_summary(await elsewhere(harness, session))


@pytest.mark.parametrize("operation", ["compact", "clear"])
@run
async def test_undoing_what_was_done_on_top_of_an_imported_summary_brings_it_back(
    harness: Harness, operation: str
) -> None:
    session = await imported(harness)
    before = await shown(session)
    if operation == "clear":
        await session.clear()
    else:
        await session.compact(strategy=Strategy(keep=1), model=False)
    assert await shown(session) != before
    other = await elsewhere(harness, session)
    assert await other.undo() == operation
    for handle in (other, session, await elsewhere(harness, session)):
        assert await shown(handle) == before
    assert (await session.conversation()).latest_summary is not None
    await kept_summary(session)


@run
async def test_a_clearing_of_nothing_but_an_imported_summary_is_undone(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    await session.operate(write(carried(KEY)))
    before = await shown(session)
    assert await session.clear()
    assert KEY.encode() not in await shown(session)
    assert await session.undo() == "clear"
    assert await shown(session) == before
    await kept_summary(await elsewhere(harness, session))


@run
async def test_the_summary_of_an_imported_archive_cannot_be_undone(harness: Harness) -> None:
    session = await imported(harness)
    store = session._writer.store
    lines = [encode_line(line) async for line in archive(store, _each(session._row.address))]
    async with await SessionManager.open("memory:") as sessions:
        for bundle in bundles(io.BytesIO("\n".join(lines).encode())):
            await restore(sessions.store, "default", bundle, now=1)
        other = await sessions.open("s1")
        assert await shown(other) == await shown(session)
        await kept_summary(other)


async def _each(at: Address) -> AsyncIterator[Address]:
    yield at


@run
async def test_a_summary_from_a_snapshot_stays_and_undo_says_why(harness: Harness) -> None:
    snapshots = Snapshots(home=Home(harness.folder / "home"), workspace=harness.folder)
    async with await SessionManager.open("memory:", snapshots=snapshots) as sessions:
        session = await sessions.create(id="s1")
        await session.append(Message.user(KEY), Message.assistant("I see"))
        await grown(session, 3)
        await session.compact(strategy=Strategy(keep=1), model=False)
    async with await SessionManager.open("memory:", snapshots=snapshots) as sessions:
        session = await sessions.restore("s1")
        await kept_summary(session, "nothing to undo.*not in this log")
        await session.append(Message.user("and now?"), Message.assistant("on we go"))
        await session.rewind(to=(await session.messages())[0].id)
        assert KEY.encode() in await shown(session)
        assert await session.undo() == "rewind"
        await session.compact(strategy=Strategy(keep=1), model=False)
        assert await session.undo() == "compact"
        await kept_summary(session, "nothing to undo.*not in this log")


@run
async def test_a_branch_that_no_restore_began_is_not_undone_as_one(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    await grown(session, 2)
    branch = await session.fork()
    before = await everything(session)
    with pytest.raises(SessionError, match="restore"):
        await session.operate(undo_restore(branch.id))
    assert await everything(session) == before


pytestmark = pytest.mark.req("C3")


async def end(session: Session, message: Message) -> Position:
    """Return the place at which a path ends that ends with a message."""

    def ends(here: Here) -> Steps[Effect]:
        return Effect(result=(yield from end_of(here, message.id)))

    place: Position = await session.ask(ends)
    return place


async def ends(session: Session, *messages: Message) -> list[int]:
    """Append messages one by one, and give for each how many are left when the path ends there."""
    for message in messages:
        await session.append(message)
    return [(await end(session, message)).seq for message in messages]


async def ends_of(harness: Harness, *messages: Message) -> list[int]:
    return await ends(await (await harness.manager()).create(), *messages)


@run
async def test_words_end_where_they_stand(harness: Harness) -> None:
    assert await ends_of(harness, Message.user("a"), Message.assistant("b"), Message.user("c")) == [1, 2, 3]


@run
async def test_inside_a_group_the_path_ends_before_it_and_behind_its_last_answer_it_ends_there(
    harness: Harness,
) -> None:
    one, two = call(), call()
    group = [asks(one, two), answers(answer(two)), answers(answer(one))]
    assert await ends_of(harness, Message.user("a"), *group, Message.assistant("b")) == [1, 1, 1, 4, 5]


@run
async def test_neighboring_groups_are_told_apart(harness: Harness) -> None:
    one, two = call(), call()
    rounds = [asks(one), answers(answer(one)), asks(two), answers(answer(two))]
    assert await ends_of(harness, Message.user("a"), *rounds) == [1, 1, 3, 3, 5]


@run
async def test_a_group_may_have_two_messages_of_calls(harness: Harness) -> None:
    one, two = call(), call()
    group = [asks(one), asks(two), answers(answer(one)), answers(answer(two))]
    assert await ends_of(harness, Message.user("a"), *group) == [1, 1, 1, 1, 5]


@run
async def test_words_that_are_said_while_calls_are_open_belong_to_the_group(harness: Harness) -> None:
    one = call()
    group = [
        Message.assistant("let me see"),
        asks(one),
        Message.assistant("still running"),
        answers(answer(one)),
    ]
    assert await ends_of(harness, Message.user("a"), *group) == [1, 2, 2, 2, 5]


@run
async def test_a_late_result_ends_where_it_stands(harness: Harness) -> None:
    one, two = call(), call()
    said = [Message.user("a"), asks(one), Message.user("b"), answers(answer(one)), asks(two)]
    assert await ends_of(harness, *said) == [1, 1, 3, 4, 4]


@run
async def test_decisions_between_a_call_and_its_answer_do_not_hide_the_group(harness: Harness) -> None:
    session, one, two = await (await harness.manager()).create(), call(), call()
    await session.append(Message.user("a"), asks(one, two), answers(answer(one)))
    await session.set_system("You help.")
    last = answers(answer(two, 1))
    await session.append(last)
    first = (await session.messages())[2]
    assert await end(session, first) == Position(1, 1)
    assert await end(session, last) == Position(1, 5)


@run
async def test_a_group_that_a_fork_divides_is_still_one(harness: Harness) -> None:
    session, one, two = await (await harness.manager()).create(), call(), call()
    await session.append(Message.user("a"), asks(one, two))
    await session.fork()
    middle, last = answers(answer(one)), answers(answer(two))
    await session.append(middle)
    await session.append(last)
    assert await end(session, middle) == Position(1, 1)
    assert await end(session, last) == Position(2, 4)


@run
async def test_an_id_that_no_entry_has_is_not_found_and_nothing_changes(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 1)
    before = await everything(session)
    for lost in (
        session.fork(at="nobody"),
        session.rewind("nobody"),
        session.begin_tangent(at="nobody"),
        session.reopen_tangent("nobody"),
        session.entry("nobody"),
    ):
        with pytest.raises(NotFound, match="nobody"):
            await lost
    assert await everything(session) == before


@run
async def test_an_exact_rewind_ends_among_calls_and_their_results(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    one, two = call(path="1"), call(path="2")
    asked, first, second = asks(one, two), answers(answer(one)), answers(answer(two))
    await session.append(Message.user("go"), asked, first, second, Message.assistant("done"))
    await session.rewind(first.id)
    assert await texts(session) == ["go"]
    for message, left in ((asked, 2), (first, 3), (second, 4)):
        await session.rewind(message.id, exact=True)
        assert len(await session.messages()) == left
        assert (
            formats.get("openai-chat").validate(
                formats.get("openai-chat").render((await session.window(Budget(8_000))).messages)
            )
            == []
        )
    await session.rewind(first.id, exact=True)
    await session.append(answers(answer(two, "late")), Message.assistant("done again"))
    assert await texts(session) == ["go", "assistant", "tool", "tool", "done again"]
    assert await session.undo() == "rewind"
