"""What is loaded of a path: the same, whether it was read at once or grew with the log."""

from __future__ import annotations

from contextlib import closing
from functools import partial

import apsw
import pytest

from tests.unit.session.session_fixtures import (
    END,
    Harness,
    answer,
    answers,
    asks,
    call,
    cuts,
    grown,
    rows,
    run,
    texts,
)
from turnstate import Message, codec, formats
from turnstate.codec import encode, kind_of
from turnstate.context.live_window import LiveWindow, known_counts
from turnstate.context.manager import StateManager
from turnstate.context.policy import Budget
from turnstate.context.preface import Preface
from turnstate.context.view import serving
from turnstate.context.window import Window
from turnstate.entry import Answer, Bootstrap, Cut, Entry, Mask, Note, Prompt, Usage
from turnstate.errors import NewerFormat
from turnstate.ids import MessageId
from turnstate.log.fold import Loaded
from turnstate.log.path import entry_of, load, message_of, path_to, rows_backwards
from turnstate.session import Session
from turnstate.stores.sqlite.rows import stored_id
from turnstate.stores.values import Change, Position, Record, Row, Span
from turnstate.tokens import message_cost

MANAGER, BUDGET = StateManager(), Budget(10_000)
ONE, TWO = call(provider_id="p1"), call(provider_id="p2")
CUT = Cut(
    id="c1",
    kept_from=Message.user("").id,
    summary="",
    covers=(Message.user("").id,) * 2,
    limit=1,
    policy="",
    counter="",
)
ENTRIES: list[Entry] = [
    Prompt("first"),
    Bootstrap("likes tea"),
    Message.user("go"),
    asks(ONE, TWO),
    answers(answer(ONE, 1)),
    Usage(input=1, output=2),
    Message.user("stop"),
    Answer(call=TWO.id, text="[No result]"),
    Note("for people"),
    Prompt("second"),
    CUT,
    Mask(ids=(), saved=0),
]


def row(seq: int, entry: Entry) -> Row:
    tokens = message_cost(entry, MANAGER.counter).tokens if isinstance(entry, Message) else 0
    return Row(
        branch=1, seq=seq, id=f"e{seq}", kind=kind_of(entry), body=encode(entry), tokens=tokens, total=0
    )


def read(entries: list[Entry]) -> Loaded:
    loaded = Loaded([Span(1, 1, len(entries))], first=1)
    for seq, entry in enumerate(entries, start=1):
        loaded.add(row(seq, entry), entry)
    return loaded


def window(loaded: Loaded, live: LiveWindow, budget: Budget = BUDGET) -> Window:
    """Make a window of what is loaded, as a session does it."""
    live.under(budget)
    messages, sizes = loaded.messages[live.length :], loaded.counts[live.length :]
    live.grow(messages, known_counts(messages, sizes, live.limits))
    return live.window(Preface())


def live_window() -> LiveWindow:
    return LiveWindow(MANAGER.counter, MANAGER.policy, stored=True)


def test_rows_are_folded_into_messages_prompts_and_decisions() -> None:
    loaded = read(ENTRIES)
    assert loaded.messages == [entry for entry in ENTRIES if isinstance(entry, Message)]
    assert (loaded.fold.prompt, loaded.fold.bootstrap, loaded.whole) == ("second", "likes tea", True)
    assert loaded.decisions == [ENTRIES[7], CUT, ENTRIES[-1]]
    assert (loaded.cut, loaded.head, loaded.damaged) == (CUT, Position(1, len(ENTRIES)), [])


def test_the_newest_batch_and_the_newest_cut_count() -> None:
    later, cut = (
        call(),
        Cut(
            **{**{name: getattr(CUT, name) for name in CUT.__struct_fields__ if name != "extra"}, "id": "c2"}
        ),
    )
    loaded = read([*ENTRIES, asks(later), cut])
    assert loaded.cut == cut
    assert loaded.fold.open_calls == [later]


def test_a_damaged_row_is_set_aside_and_the_rest_is_there() -> None:
    torn = Row(branch=1, seq=13, id="torn", kind="message", body=b'{"id":', tokens=1, total=1)
    marked = Row(
        branch=1,
        seq=14,
        id="marked",
        kind="prompt",
        body=encode(Prompt("third")),
        tokens=0,
        total=1,
        damaged=True,
    )
    loaded = read(ENTRIES)
    loaded.add(torn, entry_of(torn))
    loaded.add(marked, entry_of(marked))
    assert loaded.damaged == [torn, marked]
    assert (loaded.fold.prompt, loaded.head, len(loaded.messages)) == ("second", Position(1, 14), 4)


@pytest.mark.req("B1")
@pytest.mark.parametrize("step", [1, 2, 5, 100])
def test_a_tally_that_grew_equals_one_that_was_made_at_once(step: int) -> None:
    messages: list[Entry] = [Message.user("go")]
    for number in range(12):
        one = call(number=number)
        messages += [
            asks(one),
            answers(answer(one, "line\n" * number**3)),
            Message.assistant(f"seen {number}"),
        ]
    whole, grown, live = read(messages), Loaded([Span(1, 1, 1)], first=1), live_window()
    for start in range(0, len(messages), step):
        rows = [row(start + place + 1, entry) for place, entry in enumerate(messages[start : start + step])]
        new = [(entry, one.tokens, len(one.body)) for entry, one in zip(messages[start:], rows, strict=False)]
        grown.grow(new, Position(1, start + len(rows)))
        window(grown, live)
    windows = [window(whole, live_window()), window(grown, live)]
    assert codec.dump(windows[0].messages) == codec.dump(windows[1].messages)
    assert windows[0].tokens == windows[1].tokens == MANAGER.count(windows[0].messages).tokens
    assert grown.head == whole.head


@pytest.mark.req("B1")
def test_another_budget_makes_another_tally_with_its_own_reduction() -> None:
    one = call()
    loaded = read([Message.user("go"), asks(one), answers(answer(one, "line of output\n" * 300))])
    live = live_window()
    wide, small = window(loaded, live), window(loaded, live, Budget(2_000))
    assert wide.tokens > 900 > small.tokens == MANAGER.count(small.messages).tokens
    assert f"[Full output: {loaded.messages[-1].id}]" in str(small.messages[-1].tool_results[0].result)


def test_the_stored_count_of_an_output_holds_if_the_soft_limit_does_not_reduce_it() -> None:
    one, two, budget = call(), call(), Budget(4_000)
    kept, cut = answers(answer(one, "word " * 400)), answers(answer(two, "line\n" * 700))
    loaded = read([Message.user("go"), asks(one), kept, asks(two), cut, Message.user("stop")])
    live = live_window().under(budget)
    assert len(encode(kept)) > live.limits.soft
    known = [message.id for message, _ in known_counts(loaded.messages, loaded.counts, live.limits)]
    assert kept.id in known
    assert cut.id not in known
    made = window(loaded, live, budget)
    assert kept in made.messages
    assert cut not in made.messages
    assert made.tokens == MANAGER.count(made.messages).tokens


@pytest.mark.parametrize(
    ("messages", "results", "words"),
    [(8, 1, 240), (2, 1, 240), (1, 1, 240), (1, 1, 400), (1, 2, 120), (1, 4, 60), (1, 2, 240)],
)
def test_known_counts_change_neither_a_window_nor_what_is_decided(
    messages: int, results: int, words: int
) -> None:
    """Outputs share the limit of their group, and a decision names the scale that they depend on."""
    groups = [[call() for _ in range(results)] for _ in range(messages)]
    outputs = [answers(*(answer(one, "word " * words) for one in group)) for group in groups]
    asked = asks(*(one for group in groups for one in group))
    loaded = read([Message.user("go"), asked, *outputs, Message.user("stop")])
    made = window(loaded, live_window(), Budget(4_000))
    counted = live_window().under(Budget(4_000))
    counted.grow(loaded.messages)
    plain = counted.window(Preface())
    assert known_counts(loaded.messages, loaded.counts, counted.limits)
    assert (made.messages, made.tokens) == (plain.messages, plain.tokens)
    assert made.decisions == plain.decisions


def test_what_stands_before_the_messages_is_told() -> None:
    preface = read(ENTRIES).preface([], "a file", None)
    assert (preface.system, preface.bootstrap, preface.context, preface.memory) == (
        "second",
        "likes tea",
        "a file",
        None,
    )


NARROW = Budget(700)

on_disk = pytest.mark.parametrize("harness", ["sqlite"], indirect=True)  # what is in memory is not damaged


async def loaded(session: Session, budget: Budget | None = NARROW) -> Loaded:
    """Load a session as a new handle would."""
    store = session._writer.store
    wanted = partial(serving, limit=budget.limit, policy=session._handle.policy) if budget else None
    return await load(store, await store.get(session._row.address), wanted)


def accepted(window: Window) -> bool:
    each = (formats.get(name) for name in formats.names())
    return all(one.validate(one.render(window.messages)) == [] for one in each)


@pytest.mark.req("C9", "G2")
@run
async def test_a_session_is_loaded_from_what_its_newest_cut_kept(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1", system="You help.")
    said = await grown(session, 100)
    await session.window(NARROW)
    (cut,) = await cuts(session)
    part = await loaded(session)
    kept = [message.id for message in said].index(cut.kept_from)
    assert part.messages == said[kept:]
    assert (part.whole, part.first, part.fold.prompt) == (False, kept + 2, "You help.")
    assert part.head == session._row.head
    await grown(session, 2)
    assert len((await loaded(session)).messages) == len(said) - kept + 4


@pytest.mark.req("G2")
@run
async def test_under_a_much_larger_budget_it_is_loaded_from_the_root(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    said = await grown(session, 30)
    await session.window(NARROW)
    assert (await loaded(session, Budget(1_200))).messages == said
    for budget in (None, NARROW, Budget(900), Budget(700, output=1), Budget(200)):
        assert len((await loaded(session, budget)).messages) < len(said)


@pytest.mark.req("C5", "C6")
@run
async def test_the_question_that_a_cut_pinned_is_loaded_before_what_it_kept(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
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
    fresh = await (await harness.manager()).open("s1")
    assert codec.dump((await fresh.window(NARROW)).messages) == codec.dump(window.messages)


@pytest.mark.req("C9")
@run
async def test_a_path_over_several_branches_is_loaded_in_order(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
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
    fresh = await (await harness.manager()).open("s1")
    assert (await fresh.window(NARROW)).messages[: len(window.messages)] == window.messages


@pytest.mark.req("C9")
@run
async def test_a_path_is_walked_backwards_whole_however_long_it_is(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    for _ in range(5):
        await session.append(*[Message.user(f"{number}") for number in range(450)])
        await session.fork()
    store, row = session._writer.store, session._row
    path = await path_to(store, row.address, row.head)
    seqs = [one.seq async for one in rows_backwards(store, row.address, path)]
    assert seqs == list(range(2_250, 0, -1))


def damage(harness: Harness, *ids: str) -> None:
    """Change bytes of entries as a failing disk would.

    With the library of the store: another one in this process would release its locks when it closes.
    """
    with closing(apsw.Connection(str(harness.path))) as db:
        db.set_busy_timeout(10_000)  # the index may be continued meanwhile
        for id in ids:
            db.execute(
                "UPDATE entry SET body = CAST(substr(body, 1, length(body) - 4) AS BLOB) WHERE id = ?",
                [stored_id(id)],
            )


async def damaged_session(harness: Harness, *, turns: int = 30) -> tuple[list[Message], str]:
    """Leave a session with a cut behind, and give its messages and the id of the cut's entry."""
    sessions = await harness.manager()
    session = await sessions.create(id="s1", system="You help.")
    said = await grown(session, turns)
    await session.window(NARROW)
    cut = next(row.id for row in await rows(session) if row.kind == "cut")
    await harness.close()
    return said, cut


@pytest.mark.req("C9")
@on_disk
@pytest.mark.parametrize(
    "which", ["a message before the cut", "what was kept first", "a kept message", "the cut", "the prompt"]
)
@run
async def test_what_stands_around_a_damaged_entry_is_served_and_the_damage_is_told(
    harness: Harness, which: str
) -> None:
    said, cut_row = await damaged_session(harness)
    session = await (await harness.manager()).open("s1")
    (cut,) = await cuts(session)
    prompt = (await rows(session))[0].id
    hit = {
        "a message before the cut": said[3].id,
        "what was kept first": cut.kept_from,
        "a kept message": said[-3].id,
        "the cut": cut_row,
        "the prompt": prompt,
    }[which]
    damage(harness, hit)
    session = await (await harness.manager()).open("s1")
    assert await session.messages() == [message for message in said if message.id != hit]
    window = await session.window(NARROW)
    assert accepted(window)
    assert window.tokens <= NARROW.limit
    assert sum(message.kind == "summary" for message in window.messages) == 1
    assert hit not in {message.id for message in window.messages}
    assert session.notices
    await session.append(Message.user("go on"))
    fresh = await (await harness.manager()).open("s1")
    assert (await texts(fresh))[-1] == "go on"
    assert codec.dump((await fresh.window(NARROW)).messages) == codec.dump(
        (await session.window(NARROW)).messages
    )


@pytest.mark.req("A5", "C9")
@on_disk
@run
async def test_results_of_a_damaged_call_are_shown_as_text(harness: Harness) -> None:
    session, one = await (await harness.manager()).create(id="s1"), call()
    asked = asks(one)
    await session.append(
        Message.user("go"), asked, answers(answer(one, "found it")), Message.assistant("done")
    )
    await harness.close()
    damage(harness, asked.id)
    window = await (await (await harness.manager()).open("s1")).window(NARROW)
    assert [message.role for message in window.messages] == ["user", "user", "assistant"]
    assert "found it" in window.messages[1].text
    assert accepted(window)


@pytest.mark.req("C9")
@run
async def test_an_entry_of_a_newer_version_stops_the_window_and_is_left_untouched(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    await session.append(Message.user("hello"))
    strange = Record(id=MessageId("strange"), kind="hologram", body=b'{"kind":"hologram"}')
    store, at = session._writer.store, session._row.address
    await store.commit(Change(at=at, now=harness.clock(), records=(strange,)))
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
