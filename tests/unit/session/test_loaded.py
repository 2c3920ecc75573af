"""What is loaded of a path: the same, whether it was read at once or grew with the log."""

from __future__ import annotations

import pytest
from session_stage import answer, answers, asks, call

from turnstate import Message, codec
from turnstate.codec import encode, kind_of
from turnstate.context.head import Head
from turnstate.context.live_window import LiveWindow
from turnstate.context.manager import StateManager
from turnstate.context.policy import Budget
from turnstate.context.window import Window
from turnstate.entry import Answer, Bootstrap, Cut, Entry, Mask, Note, Prompt, Usage
from turnstate.log.path import entry_of
from turnstate.session.loaded import Loaded
from turnstate.session.windows import known_counts
from turnstate.stores.values import Position, Row, Span
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
    return live.window(Head())


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


def test_what_stands_before_the_messages_is_told() -> None:
    head = read(ENTRIES).message_head([], "a file", None)
    assert (head.system, head.bootstrap, head.context, head.memory) == ("second", "likes tea", "a file", None)
