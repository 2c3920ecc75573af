"""The fold of a log, as a session and as a state use it: both say the same of the same entries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from turnstate import Message
from turnstate.codec import kind_of
from turnstate.context.calls import KnownCalls, fresh
from turnstate.conversation import ConversationState
from turnstate.conversation.shown import ShownConversation
from turnstate.entry import Answer, Bootstrap, Cut, Entry, Mask, Note, Prompt, Revert, Summary, Usage
from turnstate.errors import InvalidMessage
from turnstate.log.fold import Fold, Loaded
from turnstate.log.memory_log import MemoryLog
from turnstate.log.operations import Placed, known_calls
from turnstate.message import ToolCallRequest, ToolCallResult
from turnstate.session import SessionManager
from turnstate.stores.memory import MemoryStore
from turnstate.stores.values import Position, Span

ONE = ToolCallRequest(name="ls", args={}, provider_id="p1")
TWO = ToolCallRequest(name="cat", args={}, provider_id="p2")


def said(count: int) -> list[Message]:
    """Return user and assistant messages in turn, with their numbers as ids."""
    speak = (Message.user, Message.assistant)
    return [
        speak[number % 2](f"{number}", id=f"m{number}", timestamp="2026-01-01T00:00:00Z")
        for number in range(count)
    ]


def cut(id: str, kept_from: str | None, covers: tuple[str, str], **more: Any) -> Cut:
    fields: dict[str, Any] = {"limit": 1, "policy": "", "counter": "", "summary": f"digest of {id}"} | more
    return Cut(id=id, kept_from=kept_from, covers=covers, **fields)


def result(call: ToolCallRequest, value: Any = "done") -> Message:
    return Message.tool([ToolCallResult(tool_call_id=call.id, result=value)])


def of_session(entries: Iterable[Entry], first: int = 1) -> Fold:
    loaded = Loaded([Span(1, 1, 1)], first=first)
    loaded.grow([(entry, 1, 1) for entry in entries], Position(1, 1))
    return loaded.fold


def of_state(entries: Iterable[Entry], first: int = 1) -> Fold:
    shown = ShownConversation(first=first)
    for place, entry in enumerate(entries, start=first):
        shown.add(Placed(1, place, str(place), kind_of(entry), entry))
    return shown.fold


Folded = Callable[..., Fold]
both = pytest.mark.parametrize("folded", [of_session, of_state])


@both
def test_messages_prompts_and_decisions(folded: Folded) -> None:
    entries: list[Entry] = [
        Prompt("first"),
        Bootstrap("likes tea"),
        *said(2),
        Usage(input=1),
        Note("for people"),
        Prompt("second"),
        Mask(ids=(), saved=0),
    ]
    fold = folded(entries)
    assert fold.messages == said(2)
    assert (fold.prompt, fold.bootstrap) == ("second", "likes tea")
    assert fold.decisions == fold.holding == [entries[-1]]
    assert (fold.cut, fold.summary_of(None), fold.open_calls) == (None, "", [])


@both
def test_the_newest_cut_that_was_not_reverted_holds_with_its_newest_summary(folded: Folded) -> None:
    first = cut("c1", "m2", ("m0", "m1"))
    second = cut("c2", "m4", ("m0", "m3"), asked={"before": 1})
    entries: list[Entry] = [*said(3), first, Summary(cut="c1", text="old"), Summary(cut="c1", text="new")]
    fold = folded(entries)
    assert (fold.cut, fold.summary_of(first)) == (first, "new")
    fold = folded([*entries, *said(5)[3:], second])
    assert (fold.cut, fold.summary_of(second)) == (second, "digest of c2")
    fold = folded(
        [*entries, *said(5)[3:], second, Summary(cut="c2", text="x"), Revert(cut="c2", at=9, former=4)]
    )
    assert (fold.cut, fold.summary_of(fold.cut)) == (first, "new")


@both
def test_a_summary_that_was_reverted_with_its_cut_is_no_longer_used(folded: Folded) -> None:
    asked = cut("c1", "m2", ("m0", "m1"), asked={"before": 1})
    fold = folded([*said(3), asked, Summary(cut="c1", text="x"), Revert(cut="c1", at=4, former=0)])
    assert (fold.cut, fold.model_summary(asked)) == (None, None)


@both
@pytest.mark.parametrize(
    ("made", "place", "evicted"),
    [
        (cut("c", "m2", ("m0", "m1")), 2, ("m0", "m1")),
        (cut("c", None, ("m0", "m1")), 2, ("m0", "m1")),
        (cut("c", None, ("m0", "m3"), asked={"operation": "clear"}), 4, None),
        (cut("c", None, ("", ""), asked={"imported": True}), 4, None),
        (cut("c", "unknown", ("m0", "m1")), 0, None),
    ],
)
def test_where_a_cut_begins_to_keep_and_what_is_archived_with_it(
    folded: Folded, made: Cut, place: int, evicted: tuple[str, str] | None
) -> None:
    made = folded(said(4)).archiving(made)
    fold = folded([*said(4), made, *said(6)[4:]])
    assert fold.first_kept(made) == place
    assert fold.evicted(made) == evicted
    assert made.archived_to == (evicted and evicted[1])


@both
def test_of_a_path_that_is_not_folded_from_its_root_all_is_kept_if_the_last_covered_is_unknown(
    folded: Folded,
) -> None:
    made = cut("c", None, ("older", "old"), asked={"before": 1})
    fold = folded([*said(2), made, *said(4)[2:]], first=7)
    assert fold.first_kept(made) == 0


def known(entries: Sequence[Entry], *asked: Message) -> KnownCalls:
    """Return the calls that messages refer to, on a path of these entries."""
    log = MemoryLog("c")
    for entry in entries:
        log.add(entry)
    return log.run(known_calls(log.path(), asked))


def made(folded: Folded, *entries: Entry) -> list[Entry]:
    """Return entries as they are written: each cut with what is archived after it."""
    written = list[Entry]()
    for entry in entries:
        written.append(folded(written).archiving(entry) if isinstance(entry, Cut) else entry)
    return written


def archived(folded: Folded, *entries: Entry) -> list[tuple[str, str] | None]:
    """Return what each cut among entries archives, as seen when it is written and later."""
    written, found = made(folded, *entries), list[tuple[str, str] | None]()
    for number, entry in enumerate(written):
        if isinstance(entry, Cut):
            found.append(folded(written).evicted(entry))
            assert folded(written[:number]).evicted(entry) == found[-1]
    return found


@pytest.mark.req("F3")
@both
def test_no_message_is_archived_twice_whichever_cut_it_leaves_with(folded: Folded) -> None:
    narrow, wide = cut("narrow", "m6", ("m0", "m5")), cut("wide", "m2", ("m0", "m1"))
    assert archived(folded, *said(8), wide, narrow) == [("m0", "m1"), ("m2", "m5")]
    assert archived(folded, *said(8), narrow, wide) == [("m0", "m5"), None]
    later = cut("later", "m7", ("m0", "m6"))
    assert archived(folded, *said(8), narrow, wide, later) == [("m0", "m5"), None, ("m6", "m6")]


@pytest.mark.req("F3", "I8")
@both
def test_what_an_undone_compaction_archived_stays_archived_and_a_clearing_archives_nothing(
    folded: Folded,
) -> None:
    asked = cut("asked", "m4", ("m0", "m3"), asked={"operation": "compact"})
    later = cut("later", "m6", ("m0", "m5"))
    undone = Revert(cut="asked", at=9, former=0)
    assert archived(folded, *said(8), asked, undone, later) == [("m0", "m3"), ("m4", "m5")]
    clearing = cut("clearing", None, ("m0", "m3"), asked={"operation": "clear"})
    some = [*said(4), clearing, *said(8)[4:]]
    assert archived(folded, *some, later) == [None, ("m4", "m5")]
    shown_again = Revert(cut="clearing", at=5, former=0)
    assert archived(folded, *some, shown_again, later) == [None, ("m0", "m5")]


@both
def test_an_answer_of_the_core_is_shown_and_is_no_result(folded: Folded) -> None:
    given = Answer.give(ONE.id, "cancelled")
    entries: list[Entry] = [Message.user("go"), Message.assistant(tool_calls=[ONE, TWO]), result(TWO), given]
    fold = folded(entries)
    assert fold.messages[-1] == given.message
    assert fold.open_calls == []
    late = result(ONE, "after all")
    assert fresh(known(entries, late), [late]) == [late]
    assert fresh(known(entries, result(TWO)), [result(TWO)]) == []
    with pytest.raises(InvalidMessage, match="already"):
        fresh(known(entries, result(TWO, "other")), [result(TWO, "other")])


@both
def test_a_call_id_that_is_used_again_is_open_again(folded: Folded) -> None:
    again = Message.assistant(tool_calls=[ONE])
    entries = [Message.user("go"), Message.assistant(tool_calls=[ONE]), result(ONE, 1), again]
    assert folded(entries).open_calls == [ONE]
    (taken,) = fresh(known(entries, result(ONE, 2)), [result(ONE, 2)])
    assert taken.tool_results[0].result == 2


def test_a_result_may_name_a_call_of_the_newest_batch_by_the_providers_id() -> None:
    entries = [Message.user("go"), Message.assistant(tool_calls=[ONE, TWO])]
    given = Message.tool([ToolCallResult(tool_call_id="p2", result="x")])
    (taken,) = fresh(known(entries, given), [given])
    assert [one.tool_call_id for one in taken.tool_results] == [TWO.id]
    unknown = Message.tool([ToolCallResult(tool_call_id="p3", result="x")])
    with pytest.raises(InvalidMessage, match="no call p3"):
        fresh(known(entries, unknown), [unknown])


U, A1, A2 = Message.user("go"), Message.assistant(tool_calls=[ONE]), Message.assistant(tool_calls=[TWO])
ROUNDS: list[tuple[list[Message], int]] = [
    ([U, A1], 1),
    ([U, A1, result(ONE)], 3),
    ([U, A1, A2, result(ONE)], 1),  # both calls belong to one round
    ([U, A1, A2, result(ONE), result(TWO)], 5),
    ([U, A1, result(ONE), Message.assistant("done")], 4),
    ([U, A1, Message.user("stop")], 3),  # the user did not wait
]


@pytest.mark.parametrize(("messages", "kept"), ROUNDS)
def test_a_fork_of_a_session_and_a_tangent_of_a_state_may_begin_at_the_same_places(
    messages: list[Message], kept: int
) -> None:
    async def forked() -> int:
        session = await SessionManager(MemoryStore()).create()
        for message in messages:
            await session.append(message)
        return (await session.fork(at=messages[-1].id)).fork_seq

    state = ConversationState()
    for message in messages:
        state.add(message)
    state.begin_tangent(at=messages[-1].id)
    assert state.open_tangents[0].fork_seq == asyncio.run(forked()) == kept
