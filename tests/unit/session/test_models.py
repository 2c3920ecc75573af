"""The model of a session: which counter counts its messages, on every path and in every process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from tests.unit.session.session_fixtures import Harness, entries, everything, grown, rows, run
from tests.unit.session.state_fixtures import elsewhere, reloaded, said
from turnstate import Budget, Message, StateManager, catalog
from turnstate.codec import encode
from turnstate.context.window import Window
from turnstate.conversation.kept_settings import DEFAULTS, model_to_json
from turnstate.entry import ModelChange, SettingsChange
from turnstate.errors import InputError, NewerFormat
from turnstate.log.operations import write
from turnstate.log.records import recount
from turnstate.session import Session, SessionManager
from turnstate.snapshots import Snapshots
from turnstate.stores.values import Change, Record
from turnstate.tokens import counter, message_cost

pytestmark = pytest.mark.req("B1")

ON_DISK = True
CLAUDE, GPT = "claude-sonnet-4-5", "gpt-4o"
WIDE, NARROW = Budget(50_000), Budget(900)


async def counters(session: Session) -> list[str]:
    """Return the counter that the stored count of each message on the path is in; every count must fit."""
    name, found = session._row.counter, list[str]()
    for row, entry in zip(await rows(session), await entries(session), strict=True):
        name = entry.counter if isinstance(entry, ModelChange) else name
        if isinstance(entry, Message):
            assert row.tokens == message_cost(entry, counter(name)).tokens
            found.append(name)
    return found


def sent(window: Window) -> bytes:
    return msgspec.json.encode((window.tokens, window.messages))


async def counted_anew(session: Session, name: str, budget: Budget = WIDE) -> bytes:
    """Return the window as a manager with that counter makes it, who knows no stored count."""
    state = await session.conversation()
    manager = StateManager(name)
    tally = manager.tally(await session.messages(), budget, stored=True)
    return sent(manager.window(tally, budget, decisions=list(state.shown.fold.decisions)))


@run
async def test_messages_are_counted_in_the_counter_of_the_model_from_its_entry_on(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 3)
    before = await session.window(WIDE)
    found = await session.set_model(CLAUDE)
    assert (found.id, found.counter) == (CLAUDE, "estimate:claude")
    await grown(session, 2)
    assert await counters(session) == ["o200k_base"] * 6 + ["estimate:claude"] * 4
    assert (await session.model()) == found == await (await elsewhere(harness, session)).model()
    assert (await session.window(WIDE)).tokens > before.tokens
    for handle in (session, await elsewhere(harness, session)):
        assert sent(await handle.window(WIDE)) == await counted_anew(session, "estimate:claude")
    stored = await rows(session)
    assert [row.total for row in stored] == [sum(row.tokens for row in stored[: n + 1]) for n in range(11)]
    await session.set_model(CLAUDE)  # it is in force already
    assert len(await rows(session)) == len(stored)


@run
async def test_a_session_may_begin_with_a_model_and_without_one_it_keeps_its_counter(
    harness: Harness,
) -> None:
    sessions = await harness.manager()
    session = await sessions.create(model=f"us.anthropic.{CLAUDE}", system="You help.")
    await grown(session, 1)
    assert await counters(session) == ["estimate:claude"] * 2
    assert (await session.model()) == catalog.named(f"us.anthropic.{CLAUDE}")
    plain = await sessions.create(counter="cl100k_base")
    await grown(plain, 1)
    assert await counters(plain) == ["cl100k_base"] * 2
    assert await plain.model() is None
    assert sent(await plain.window(WIDE)) == await counted_anew(plain, "cl100k_base")
    for bad in ("", 3, "x\0y"):
        with pytest.raises(InputError):
            await sessions.create(id="no", model=bad)  # type: ignore[arg-type]
        with pytest.raises(InputError):
            await plain.set_model(bad)  # type: ignore[arg-type]
    assert len(await rows(plain)) == 2


@run
async def test_a_rewind_before_the_model_brings_the_former_one_back(harness: Harness) -> None:
    session = await (await harness.manager()).create(model=GPT)
    first = await grown(session, 2)
    await session.set_model(CLAUDE)
    second = await grown(session, 2)
    await session.rewind(to=first[-1].id)
    other = await elsewhere(harness, session)
    for handle in (session, other):
        assert (await handle.model()) == catalog.named(GPT)
        assert sent(await handle.window(WIDE)) == await counted_anew(session, "o200k_base")
    await grown(other, 1)
    assert await counters(session) == ["o200k_base"] * 6
    assert await session.undo() == "rewind"
    assert (await session.model()) == catalog.named(CLAUDE)
    await session.fork(at=second[1].id)
    await grown(session, 1)
    assert await counters(session) == ["o200k_base"] * 4 + ["estimate:claude"] * 4
    session = await session.reset()
    await grown(session, 1)
    assert await counters(session) == ["estimate:claude"] * 2


@run
async def test_a_handle_that_missed_the_change_counts_under_the_new_model(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    await grown(session, 1)
    stale = [await elsewhere(harness, session) for _ in range(3)]
    await stale[1].window(WIDE)
    await session.set_model(CLAUDE)
    key = await stale[0].append(Message.user("how is the lamp tonight?"), key="k")
    assert (await session.append(Message.user("how is the lamp tonight?"), key="k")).last == key.last
    await stale[1].append(Message.assistant("it is lit"), expected_version=2)
    await stale[2].window(WIDE)
    await stale[2].append(Message.user("and the fog horn?"))
    assert await counters(session) == ["o200k_base"] * 2 + ["estimate:claude"] * 3


@run
async def test_appends_and_changes_of_model_that_race_leave_every_count_right(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    handles = [session, *[await elsewhere(harness, session) for _ in range(3)]]

    async def talk(handle: Session) -> None:
        for number in range(6):
            await handle.append(Message.user(f"question {number}, 質問, and then some words"))

    async def change(handle: Session) -> None:
        for model in (CLAUDE, "gpt-4", CLAUDE, GPT):
            await handle.set_model(model)

    tasks: list[Callable[[Session], Awaitable[None]]] = [talk, talk, talk, change]
    await asyncio.gather(*(task(handle) for task, handle in zip(tasks, handles, strict=True)))
    assert len(await counters(session)) == 18
    store = session._writer.store
    assert [one async for one in store.verify(repair=False, recount=recount)] == []
    for handle in handles:
        assert sent(await handle.window(WIDE)) == await counted_anew(session, "o200k_base")


@run
async def test_windows_are_cut_to_the_counter_in_force(harness: Harness) -> None:
    session = await (await harness.manager()).create(system="You help.")
    await grown(session, 30)
    assert (await session.window(NARROW)).tokens <= 900
    await session.set_model(CLAUDE)
    window = await session.window(NARROW)
    assert StateManager("estimate:claude").count(window.messages).tokens <= 900
    assert sent(await (await elsewhere(harness, session)).window(NARROW)) == sent(window)
    await grown(session, 5)
    window = await session.window(NARROW)
    assert sent(await (await elsewhere(harness, session)).window(NARROW)) == sent(window)
    assert window.tokens == StateManager("estimate:claude").count(window.messages).tokens
    await session.compact(NARROW)
    assert (await session.window(NARROW)).tokens <= 900


@pytest.mark.req("I1", "M1")
@run
async def test_a_view_has_the_model_of_its_branch_and_windows_count_under_it(harness: Harness) -> None:
    session = await (await harness.manager()).create(counter="cl100k_base", system="You help.")
    await said(session, "one")
    assert (await session.conversation()).model_info is None
    await session.set_model(CLAUDE)
    await said(session, "two", "three")
    assert await counters(session) == ["cl100k_base"] * 2 + ["estimate:claude"] * 4
    assert (await session.conversation()).model_info == await session.model() == catalog.named(CLAUDE)

    await session.set_model("gpt-4")
    await session.begin_tangent()
    await session.set_model(CLAUDE)
    await said(session, "aside")
    assert await session.model() == catalog.named(CLAUDE)
    assert sent(await session.window(WIDE)) == sent(await (await elsewhere(harness, session)).window(WIDE))
    await session.leave_tangent("tail")
    assert await session.model() == (await reloaded(harness, session)).model_info == catalog.named("gpt-4")
    await said(session, "back")
    assert (await counters(session))[-4:] == ["cl100k_base"] * 4
    assert sent(await session.window(WIDE)) == sent(await (await elsewhere(harness, session)).window(WIDE))


@run
async def test_a_model_that_is_set_again_is_not_written_again(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await session.set_model(CLAUDE)
    before = await everything(session)
    assert await session.set_model(CLAUDE) == catalog.named(CLAUDE)
    assert await everything(session) == before


@run
async def test_a_model_with_limits_of_its_own_keeps_them_until_another_is_set(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    own = msgspec.structs.replace(catalog.named(CLAUDE), context_window=1_000_000)
    fields = {**DEFAULTS, "model_info": model_to_json(own)}
    await session.operate(write(ModelChange(own.id, own.counter), SettingsChange(fields)))
    assert (await reloaded(harness, session)).model_info == own
    await session.change_settings(extra={"theme": "dark"})
    assert (await reloaded(harness, session)).model_info == own
    await session.set_model(GPT)
    assert (await reloaded(harness, session)).model_info == catalog.named(GPT)
    await session.change_settings(extra={})
    assert (await reloaded(harness, session)).model_info == catalog.named(GPT)


@run
async def test_a_snapshot_brings_the_model_back(harness: Harness) -> None:
    folder = Snapshots(harness.folder / "snapshots")
    sessions = await harness.manager(snapshots=folder)
    session = await sessions.create(id="s1", counter="cl100k_base", model=CLAUDE)
    await grown(session, 3)
    await session.set_model(GPT)
    tokens = (await session.snapshot()).token_count
    assert tokens == StateManager("o200k_base").count(await session.messages()).tokens
    await sessions.close()
    async with await SessionManager.open("memory:", snapshots=folder) as lost:
        session = await lost.restore("s1")
        assert (await session.model()) == catalog.named(GPT)
        assert await counters(session) == ["o200k_base"] * 6
        assert (await session.snapshot()).token_count == tokens


@run
async def test_a_model_counted_by_what_a_newer_version_knows_is_refused_by_name(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    await grown(session, 1)
    store, at = session._writer.store, session._row.address
    unknown = Record(id="m", kind="model", body=encode(ModelChange("eliza", "o300k_base")))
    await store.commit(Change(at=at, now=1, records=(unknown,)))
    assert [one async for one in store.verify(repair=True, recount=recount)] == []
    for handle in (session, await elsewhere(harness, session)):
        with pytest.raises(NewerFormat, match="'eliza' is counted by 'o300k_base'"):
            await handle.append(Message.user("hello"))
        with pytest.raises(NewerFormat, match="o300k_base"):
            await handle.window(WIDE)
    await session.set_model(CLAUDE)
    await session.append(Message.user("hello"))
    assert (await session.window(WIDE)).tokens > 0


OTHER_PROCESS = """
import sys
from turnstate import Budget, Message, blocking
with blocking.SessionManager.open(sys.argv[1]) as sessions:
    session = sessions.open("s1")
    session.append(Message.user("a question from elsewhere"))
    print(session.model().id, session.window(Budget(50_000)).tokens)
    session.set_model("gpt-4")
"""


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
@run
async def test_another_process_counts_under_the_same_model(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    await grown(session, 2)
    await session.set_model(CLAUDE)
    command = [sys.executable, "-c", OTHER_PROCESS, f"sqlite:///{harness.path}"]
    told = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    assert (await session.model()) == catalog.named("gpt-4")
    await session.rewind(to=(await session.messages())[-1].id)
    assert told.stdout.split() == [CLAUDE, str((await session.window(WIDE)).tokens)]
    assert await counters(session) == ["o200k_base"] * 4 + ["estimate:claude"]
