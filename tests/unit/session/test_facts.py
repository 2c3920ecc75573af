"""What code knows stays beside a model's words, however these came into the window."""

from __future__ import annotations

import re

import pytest

from tests.unit.session.session_fixtures import Harness, answer, answers, asks, call, decisions, run
from turnstate import Budget, Message, Policy
from turnstate.context.window import Window
from turnstate.entry import Cut, Summary
from turnstate.models import Finished
from turnstate.session import Session, SessionManager
from turnstate.snapshots import Snapshots
from turnstate.stores.memory import MemoryStore
from turnstate.testing import ScriptedModel
from turnstate.tokens import counter

pytestmark = pytest.mark.req("D2", "D6")

BUDGET = Budget(4_000)
WORDS = "Goal: fix it."


async def failed_writes(session: Session, count: int = 30) -> None:
    """Let an agent plan, decide, read a file, and fail to write."""
    plan = call(
        "todo_write",
        todos=[
            {"content": "read the importer", "status": "completed"},
            {"content": "write the exporter", "status": "in_progress"},
            {"content": "ask for the disk to be mounted", "status": "pending"},
        ],
    )
    read = call("read_file", path="src/importer.py")
    await session.append(
        Message.user("Fix the exporter."),
        asks(plan, read),
        answers(answer(plan), answer(read)),
        Message.assistant("Decision: the exporter keeps its CSV format.\nNow I write it."),
    )
    for number in range(count):
        write = call("write_file", path=f"out/{number}.csv", text="a,b,c\n" * 20)
        why = f"disk {number} is read-only"
        await session.append(
            Message.user(f"Try {number}."),
            asks(write),
            answers(answer(write, why, is_error=True)),
            Message.assistant("That failed. " * 10),
        )


def summary_of(window: Window) -> str:
    (summary,) = (message.text for message in window.messages if message.kind == "summary")
    return summary


def knows_the_facts(text: str) -> bool:
    facts = (
        "write the exporter",
        "ask for the disk to be mounted",
        "the exporter keeps its CSV format",
        "src/importer.py",
        "is read-only",
    )
    return WORDS in text and all(fact in text for fact in facts) and "“read the importer”" not in text


@run
async def test_facts_stay_beside_words_that_are_swapped_in(harness: Harness) -> None:
    manager = await harness.manager(model=ScriptedModel(*[WORDS] * 9))
    session = await manager.create()
    await failed_writes(session)
    await session.window(BUDGET)
    await manager.settled()
    window = await session.window(BUDGET)
    assert knows_the_facts(summary_of(window))
    assert window.tokens <= BUDGET.limit
    reopened = await (await harness.manager()).open(session.id)
    assert (await reopened.window(BUDGET)).messages == window.messages


@run
async def test_facts_stay_beside_words_that_were_prepared(harness: Harness) -> None:
    manager = await harness.manager(
        model=ScriptedModel(*[WORDS] * 9), policy=Policy(warn_at=0.3, compact_at=0.4)
    )
    session = await manager.create()
    await failed_writes(session, 20)
    whole = (await session.preview(Budget(100_000))).tokens
    budget = Budget(whole * 5 // 4)
    assert not (await session.window(budget)).decisions
    await manager.settled()
    window = await session.window(budget)
    assert [type(one) for one in window.decisions] == [Cut, Summary]
    assert knows_the_facts(summary_of(window))


@pytest.mark.req("D5")
@run
async def test_facts_stay_beside_words_of_a_compaction_on_request(harness: Harness) -> None:
    manager = await harness.manager(model=ScriptedModel(WORDS))
    session = await manager.create()
    await failed_writes(session)
    done = await session.compact(Budget(20_000))
    assert done.source == "model"
    assert knows_the_facts(done.summary)
    window = await session.window(Budget(20_000))
    assert done.summary in summary_of(window)
    assert window.tokens == done.tokens_after
    state = await session.conversation()
    assert state.latest_summary is not None
    assert state.latest_summary[0] == done.summary


@run
async def test_the_newest_failures_are_told_first(harness: Harness) -> None:
    manager = await harness.manager(model=ScriptedModel(WORDS))
    session = await manager.create()
    await failed_writes(session, 30)
    done = await session.compact(Budget(20_000))
    told = [int(number) for number in re.findall(r"disk (\d+) is read-only", done.summary)]
    assert told == list(range(28, 28 - len(told), -1))  # the 29th is still in the window
    assert len(told) >= 5


@pytest.mark.req("D3")
@run
async def test_a_fold_of_earlier_summaries_keeps_the_facts(harness: Harness) -> None:
    manager = await harness.manager(model=ScriptedModel(*[WORDS] * 3))
    session = await manager.create()
    await failed_writes(session, 4)
    for _ in range(3):
        for number in range(6):
            await session.append(Message.user(f"Talk {number}. " * 20), Message.assistant("Well. " * 40))
        done = await session.compact(Budget(20_000))
        assert done.source == "model"
        assert done.summary.count("write the exporter") == 1
        assert knows_the_facts(done.summary)


@pytest.mark.req("D1", "C1")
@run
async def test_facts_take_half_of_the_cap_at_most_and_both_keep_within_it(harness: Harness) -> None:
    counting, long = counter("o200k_base"), "Goal: fix it. " + "The exporter must write. " * 400
    for limit in (2_000, 4_000, 20_000):
        manager = await harness.manager(
            model=ScriptedModel(*[lambda request: _at_most(request.max_output, long)] * 9)
        )
        session = await manager.create()
        await failed_writes(session)
        done = await session.compact(Budget(limit))
        cap = manager.policy.summary_cap(limit)
        _, summary = await decisions(session)
        assert isinstance(summary, Summary)
        assert summary.facts
        assert counting.count(summary.facts).tokens <= cap // 2
        window = await session.window(Budget(limit))
        assert window.report.usage["summary"] <= cap
        assert done.source == "model"


def _at_most(tokens: int | None, text: str) -> str:
    """Return a text that is a little longer than a model was asked for, as models do."""
    return text[: (tokens or 0) * 3]


@pytest.mark.req("D4")
@run
async def test_a_summary_that_was_cut_off_by_its_length_is_refused(harness: Harness) -> None:
    model = ScriptedModel(["Goal: fix it. Never delete the", Finished("length")])
    session = await (await harness.manager(model=model)).create()
    await failed_writes(session)
    done = await session.compact(Budget(20_000))
    assert done.source == "digest"
    assert "cut off" in done.refused
    assert "Never delete the" not in summary_of(await session.window(Budget(20_000)))


@pytest.mark.req("D3", "H3")
@run
async def test_facts_are_still_known_after_a_restore_from_a_snapshot(harness: Harness) -> None:
    model = ScriptedModel(WORDS, "Goal: fix it. More was said.")
    kept = Snapshots(harness.folder / "snapshots")
    manager = await harness.manager(model=model, snapshots=kept)
    session = await manager.create(id="s1")
    await failed_writes(session, 10)
    done = await session.compact(Budget(20_000))
    await session.append(Message.user("Go on."), Message.assistant("I do."))
    await manager.close()
    fresh = SessionManager(MemoryStore(), model=model, snapshots=kept)
    again = await fresh.restore("s1")
    assert summary_of(await again.window(Budget(20_000))).endswith(done.summary)
    for number in range(6):
        await again.append(Message.user(f"Talk {number}. " * 20), Message.assistant("Well. " * 40))
    once_more = await again.compact(Budget(20_000))
    assert once_more.source == "model"
    assert knows_the_facts(once_more.summary)
    assert once_more.summary.count("write the exporter") == 1
    await fresh.close()


@pytest.mark.parametrize(("language", "title"), [("en", "Failed:"), ("ja", "失敗："), ("zh", "失败：")])
@run
async def test_facts_are_told_in_the_language_of_the_policy(
    harness: Harness, language: str, title: str
) -> None:
    manager = await harness.manager(model=ScriptedModel(WORDS), policy=Policy(language=language))
    session = await manager.create()
    await failed_writes(session)
    done = await session.compact(Budget(20_000))
    assert title in done.summary
    assert knows_the_facts(done.summary)
