"""Loading: from the newest cut on where it can be used, else from the root, and around what is damaged."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from session_stage import END, Stage, answer, answers, asks, call, cuts, grown, played, rows, texts

from turnstate import Message, codec, formats
from turnstate.context.policy import Budget
from turnstate.context.window import Window
from turnstate.errors import NewerFormat
from turnstate.ids import MessageId
from turnstate.log.path import message_of, path_to, rows_backwards
from turnstate.session import Session
from turnstate.session.loaded import Loaded, Settings, load
from turnstate.stores.values import Change, Record, Row, Span

NARROW = Budget(700)

on_disk = pytest.mark.parametrize("stage", ["sqlite"], indirect=True)  # what is in memory is not damaged


async def loaded(session: Session, budget: Budget | None = NARROW) -> Loaded:
    """Load a session as a new handle would."""
    manager, store = session._manager, session._writer.store
    settings = budget and Settings(budget.limit, manager.policy.fingerprint, manager.counter.name)
    return await load(store, await store.get(session.row.address), settings)


def accepted(window: Window) -> bool:
    each = (formats.get(name) for name in formats.names())
    return all(one.validate(one.render(window.messages)) == [] for one in each)


@pytest.mark.req("C9", "G2")
@played
async def test_a_session_is_loaded_from_what_its_newest_cut_kept(stage: Stage) -> None:
    session = await (await stage.manager()).create(id="s1", system="You help.")
    said = await grown(session, 100)
    await session.window(NARROW)
    (cut,) = await cuts(session)
    part = await loaded(session)
    kept = [message.id for message in said].index(cut.kept_from)
    assert part.messages == said[kept:]
    assert (part.whole, part.first, part.fold.prompt) == (False, kept + 2, "You help.")
    assert part.head == session.row.head
    await grown(session, 2)
    assert len((await loaded(session)).messages) == len(said) - kept + 4


@pytest.mark.req("G2")
@pytest.mark.parametrize("budget", [Budget(900), Budget(700, 1)])
@played
async def test_under_another_budget_it_is_loaded_from_the_root(stage: Stage, budget: Budget) -> None:
    session = await (await stage.manager()).create(id="s1")
    said = await grown(session, 30)
    await session.window(NARROW)
    assert (await loaded(session, budget)).messages == said
    assert len((await loaded(session, None)).messages) < len(said)


@pytest.mark.req("C5", "C6")
@played
async def test_the_question_that_a_cut_pinned_is_loaded_before_what_it_kept(stage: Stage) -> None:
    session = await (await stage.manager()).create(id="s1")
    question = Message.user("the question of a long turn")
    await session.append(Message.user("hi"), Message.assistant("hello"), question)
    for number in range(40):
        one = call(number=number)
        await session.append(asks(one), answers(answer(one, "word " * 20)))
    window = await session.window(NARROW)
    (cut,) = await cuts(session)
    assert cut.pinned == (question.id,)
    part = await loaded(session)
    assert part.messages[0] == question
    assert part.messages[1].id == cut.kept_from
    fresh = await (await stage.manager()).open("s1")
    assert codec.dump((await fresh.window(NARROW)).messages) == codec.dump(window.messages)


@pytest.mark.req("C9")
@played
async def test_a_path_over_several_branches_is_loaded_in_order(stage: Stage) -> None:
    session = await (await stage.manager()).create(id="s1")
    said = await grown(session, 20)
    for _ in range(3):
        await session.fork(at=said[-3].id)
        said = [*said[:-2], *await grown(session, 4)]
    assert await session.messages() == said
    window = await session.window(NARROW)
    (cut,) = await cuts(session)
    await session.fork()
    said += await grown(session, 1, words=2)
    part = await loaded(session)
    assert part.messages == said[[message.id for message in said].index(cut.kept_from) :]
    fresh = await (await stage.manager()).open("s1")
    assert (await fresh.window(NARROW)).messages[: len(window.messages)] == window.messages


@pytest.mark.req("C9")
@played
async def test_a_path_is_walked_backwards_whole_however_long_it_is(stage: Stage) -> None:
    session = await (await stage.manager()).create(id="s1")
    for _ in range(5):
        await session.append(*[Message.user(f"{number}") for number in range(450)])
        await session.fork()
    store, row = session._writer.store, session.row
    path = await path_to(store, row.address, row.head)
    seqs = [one.seq async for one in rows_backwards(store, row.address, path)]
    assert seqs == list(range(2_250, 0, -1))


def damage(stage: Stage, *ids: str) -> None:
    """Change bytes of entries as a failing disk would."""
    with closing(sqlite3.connect(stage.path)) as db:
        for id in ids:
            db.execute(
                "UPDATE entry SET body = CAST(substr(body, 1, length(body) - 4) AS BLOB) WHERE id = ?", [id]
            )
        db.commit()


async def damaged_session(stage: Stage, *, turns: int = 30) -> tuple[list[Message], str]:
    """Leave a session with a cut behind, and give its messages and the id of the cut's entry."""
    sessions = await stage.manager()
    session = await sessions.create(id="s1", system="You help.")
    said = await grown(session, turns)
    await session.window(NARROW)
    cut = next(row.id for row in await rows(session) if row.kind == "cut")
    await stage.close()
    return said, cut


@pytest.mark.req("C9")
@on_disk
@pytest.mark.parametrize(
    "which", ["a message before the cut", "what was kept first", "a kept message", "the cut", "the prompt"]
)
@played
async def test_what_stands_around_a_damaged_entry_is_served_and_the_damage_is_told(
    stage: Stage, which: str
) -> None:
    said, cut_row = await damaged_session(stage)
    session = await (await stage.manager()).open("s1")
    (cut,) = await cuts(session)
    prompt = (await rows(session))[0].id
    hit = {
        "a message before the cut": said[3].id,
        "what was kept first": cut.kept_from,
        "a kept message": said[-3].id,
        "the cut": cut_row,
        "the prompt": prompt,
    }[which]
    damage(stage, hit)
    session = await (await stage.manager()).open("s1")
    assert await session.messages() == [message for message in said if message.id != hit]
    window = await session.window(NARROW)
    assert accepted(window)
    assert window.tokens <= NARROW.limit
    assert sum(message.kind == "summary" for message in window.messages) == 1
    assert hit not in {message.id for message in window.messages}
    assert session.notices
    await session.append(Message.user("go on"))
    fresh = await (await stage.manager()).open("s1")
    assert (await texts(fresh))[-1] == "go on"
    assert codec.dump((await fresh.window(NARROW)).messages) == codec.dump(
        (await session.window(NARROW)).messages
    )


@pytest.mark.req("A5", "C9")
@on_disk
@played
async def test_results_of_a_damaged_call_are_shown_as_text(stage: Stage) -> None:
    session, one = await (await stage.manager()).create(id="s1"), call()
    asked = asks(one)
    await session.append(
        Message.user("go"), asked, answers(answer(one, "found it")), Message.assistant("done")
    )
    await stage.close()
    damage(stage, asked.id)
    window = await (await (await stage.manager()).open("s1")).window(NARROW)
    assert [message.role for message in window.messages] == ["user", "user", "assistant"]
    assert "found it" in window.messages[1].text
    assert accepted(window)


@pytest.mark.req("C9")
@played
async def test_an_entry_of_a_newer_version_stops_the_window_and_is_left_untouched(stage: Stage) -> None:
    session = await (await stage.manager()).create(id="s1")
    await session.append(Message.user("hello"))
    strange = Record(id=MessageId("strange"), kind="hologram", body=b'{"kind":"hologram"}')
    store, at = session._writer.store, session.row.address
    await store.commit(Change(at=at, now=stage.clock(), records=(strange,)))
    before = await store.read(at, Span(1, 1, END))
    with pytest.raises(NewerFormat, match="hologram"):
        await session.window(NARROW)
    assert await texts(session) == ["hello"]
    assert await store.read(at, Span(1, 1, END)) == before


def test_a_damaged_row_is_no_message() -> None:
    body = codec.encode(Message.user("hello"))
    row = Row(branch=1, seq=1, id="m", kind="message", body=body, tokens=1, total=1)
    assert message_of(row) is not None
    torn = Row(branch=1, seq=1, id="m", kind="message", body=body[:-3], tokens=1, total=1)
    marked = Row(branch=1, seq=1, id="m", kind="message", body=body, tokens=1, total=1, damaged=True)
    note = Row(branch=1, seq=1, id="m", kind="note", body=b'{"kind":"note","text":"x"}', tokens=0, total=1)
    assert [message_of(one) for one in (torn, marked, note)] == [None, None, None]
