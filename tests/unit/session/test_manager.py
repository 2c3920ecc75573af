"""Which sessions there are: made, opened, listed, searched and expired, each for its tenant and user."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.session.session_fixtures import (
    Harness,
    answer,
    answers,
    asks,
    call,
    everything,
    grown,
    parcels,
    run,
    texts,
)
from turnstate import Message, blocking
from turnstate.context.policy import Budget
from turnstate.errors import AlreadyExists, Conflict, InputError, NotFound, TurnstateError
from turnstate.session import Session, SessionManager

BUDGET = Budget(8_000)


async def found(sessions: SessionManager, text: str, **which: Any) -> list[tuple[str, str]]:
    return [(hit.session, hit.message.text) async for hit in sessions.search(text, **which)]


@pytest.mark.req("G2", "G4")
@run
async def test_a_session_is_opened_under_its_id_by_any_manager_of_its_tenant(harness: Harness) -> None:
    session = await (await harness.manager()).create(user="u1", system="You help.", title="Weather")
    await session.append(Message.user("hello"))
    other = await (await harness.manager()).open(session.id, user="u1")
    assert (other.id, other._row.user, other._row.title, other.version) == (session.id, "u1", "Weather", 1)
    assert await texts(other) == ["hello"]


@pytest.mark.req("G4")
@run
async def test_an_id_that_is_taken_is_refused_and_the_session_stays(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create(id="s1", user="u1")
    await session.append(Message.user("hello"))
    before = await everything(session)
    with pytest.raises(AlreadyExists):
        await sessions.create(id="s1", user="u2", system="Mine now.")
    assert await everything(session) == before


@pytest.mark.req("G4")
@run
async def test_two_tenants_may_use_one_id(harness: Harness) -> None:
    one, other = await harness.manager(tenant="one"), await harness.manager(tenant="other")
    await (await one.create(id="s1")).append(Message.user("of one"))
    await (await other.create(id="s1")).append(Message.user("of the other"))
    assert await texts(await one.open("s1")) == ["of one"]
    assert await texts(await other.open("s1")) == ["of the other"]


BY_ID: dict[str, Callable[[SessionManager, str, str | None], Awaitable[object]]] = {
    "open": lambda sessions, id, user: sessions.open(id, user=user),
    "destroy": lambda sessions, id, user: sessions.destroy(id, user=user),
    "erase": lambda sessions, id, user: sessions.erase(session=id, user=user),
    "restore": lambda sessions, id, user: sessions.restore(id, user=user),
}


@pytest.mark.req("G4")
@pytest.mark.parametrize("operation", BY_ID)
@run
async def test_what_is_not_there_or_is_somebody_elses_is_not_found(harness: Harness, operation: str) -> None:
    sessions, other = await harness.manager(), await harness.manager(tenant="other")
    mine = await sessions.create(id="mine", user="u1")
    await sessions.create(id="nobodys")
    await mine.append(Message.user("hello"))
    before = await everything(mine)
    operate = BY_ID[operation]
    for manager, id, user in [
        (sessions, "unknown", None),
        (sessions, "", None),
        (sessions, "mine", "u2"),
        (sessions, "mine", ""),
        (sessions, "nobodys", "u1"),
        (other, "mine", None),
        (other, "mine", "u1"),
    ]:
        with pytest.raises(NotFound):
            await operate(manager, id, user)
    assert await everything(mine) == before


ON_A_HANDLE: dict[str, Callable[[Session], Awaitable[object]]] = {
    "append": lambda session: session.append(Message.user("more")),
    "append with a key": lambda session: session.append(Message.user("more"), key="k"),
    "append a result": lambda session: session.append(answers(answer("call_1"))),
    "messages": lambda session: session.messages(),
    "last messages": lambda session: session.messages(last=3),
    "window": lambda session: session.window(BUDGET),
    "preview": lambda session: session.preview(BUDGET),
    "snapshot": lambda session: session.snapshot(),
    "set_system": lambda session: session.set_system("You help."),
    "fork": lambda session: session.fork(),
    "fork at": lambda session: session.fork(at="m1"),
    "rewind": lambda session: session.rewind(to="m1"),
    "undo": lambda session: session.undo(),
    "branches": lambda session: session.branches(),
    "reset": lambda session: session.reset(),
    "reset with a prompt": lambda session: session.reset(system="You help."),
    "end": lambda session: session.end(),
    "answer_interrupted_calls": lambda session: session._handle.answer_interrupted_calls(),
    "rename": lambda session: session.rename("title"),
    "tag": lambda session: session.tag("tag"),
    "annotate": lambda session: session.annotate({}),
    "acquire": lambda session: session.acquire(),
}


@pytest.mark.req("G4")
@pytest.mark.parametrize("operation", ON_A_HANDLE)
@run
async def test_a_handle_of_a_session_that_was_destroyed_finds_nothing(
    harness: Harness, operation: str
) -> None:
    sessions = await harness.manager()
    session = await sessions.create(id="s1")
    await session.append(Message.user("hello", id="m1"))
    await (await harness.manager()).destroy("s1")
    with pytest.raises(NotFound):
        await ON_A_HANDLE[operation](session)
    assert list(await sessions.list()) == []


@pytest.mark.req("G4")
@pytest.mark.parametrize("operation", ON_A_HANDLE)
@run
async def test_a_forged_handle_of_another_tenant_finds_nothing(harness: Harness, operation: str) -> None:
    sessions, other = await harness.manager(), await harness.manager(tenant="other")
    session = await sessions.create(id="s1")
    await session.append(Message.user("hello", id="m1"))
    before = await everything(session)
    twin = await other.create(id="s1")
    await other.destroy("s1")
    with pytest.raises(NotFound):
        await ON_A_HANDLE[operation](twin)
    assert await everything(session) == before


NO_NAMES: list[Any] = ["a\0b", "\ud800", "x" * 501, "", 5, b"bytes", ["list"], True]
NO_TEXTS: list[Any] = ["\ud800", 5, b"bytes", ["list"]]
REFUSED = [(field, value) for field in ("id", "user", "tag", "tenant") for value in NO_NAMES]
REFUSED += [("title", value) for value in NO_NAMES if value != ""] + [("system", value) for value in NO_TEXTS]


@pytest.mark.req("A6", "G4")
@pytest.mark.parametrize(("field", "value"), REFUSED, ids=lambda value: repr(value)[:12])
@run
async def test_a_name_that_cannot_be_kept_is_refused_and_nothing_is_created(
    harness: Harness, field: str, value: Any
) -> None:
    sessions = await harness.manager()
    given: dict[str, Any] = {"tags": ["fine", value]} if field == "tag" else {field: value}
    with pytest.raises(InputError):
        await (harness.manager(tenant=value) if field == "tenant" else sessions.create(**given))
    assert list(await sessions.list()) == []


@pytest.mark.req("A6")
@pytest.mark.parametrize(
    "meta", [{"n": float("nan")}, {"n": float("inf")}, {5: "key"}, {"a": object()}, ["list"]]
)
@run
async def test_meta_that_is_not_a_json_object_is_refused(harness: Harness, meta: Any) -> None:
    sessions = await harness.manager()
    with pytest.raises(InputError):
        await sessions.create(meta=meta)
    session = await sessions.create(meta={"kept": [1, None, "\0"]})
    with pytest.raises(InputError):
        await session.annotate(meta)
    assert (await sessions.open(session.id))._row.meta == {"kept": [1, None, "\0"]}


@pytest.mark.req("A6")
@pytest.mark.parametrize("value", ["a\0b", "\ud800", "x" * 501, 5])
@run
async def test_a_title_or_tag_that_cannot_be_kept_leaves_the_old_one(harness: Harness, value: Any) -> None:
    sessions = await harness.manager()
    session = await sessions.create(title="before", tags=["before"])
    with pytest.raises(InputError):
        await session.rename(value)
    with pytest.raises(InputError):
        await session.tag("fine", value)
    row = (await sessions.open(session.id))._row
    assert (row.title, row.tags) == ("before", ("before",))


@pytest.mark.req("A6", "G4")
@pytest.mark.parametrize("value", ["a\0b", "\ud800", "x" * 501, "", 5, b"bytes", None], ids=repr)
@run
async def test_asking_with_a_hostile_name_finds_nothing_or_is_refused(harness: Harness, value: Any) -> None:
    sessions = await harness.manager()
    await sessions.create(id="5", user="5")
    with pytest.raises((NotFound, InputError)):
        await sessions.open(value)
    with pytest.raises((NotFound, InputError)):
        await sessions.destroy(value)
    if value is None:
        return
    with pytest.raises((NotFound, InputError)):
        await sessions.open("5", user=value)
    for ask in (sessions.list(user=value), sessions.list(tag=value), found(sessions, "word", user=value)):
        try:
            assert list(await ask) == []
        except InputError:
            continue


@pytest.mark.req("G2")
@run
async def test_sessions_are_listed_newest_first_by_user_tag_and_whether_they_ended(harness: Harness) -> None:
    sessions = await harness.manager()
    for number in range(5):
        harness.clock.advance(1_000)
        session = await sessions.create(
            id=f"s{number}", user=f"u{number % 2}", tags=["even"] * (1 - number % 2)
        )
    await session.end()
    assert [row.id for row in await sessions.list()] == ["s4", "s3", "s2", "s1", "s0"]
    assert [row.id for row in await sessions.list(user="u1")] == ["s3", "s1"]
    assert [row.id for row in await sessions.list(tag="even")] == ["s4", "s2", "s0"]
    assert [row.id for row in await sessions.list(live=True)] == ["s3", "s2", "s1", "s0"]
    assert [row.id for row in await sessions.list(live=False)] == ["s4"]
    page = await sessions.list(limit=2)
    assert [row.id for row in await sessions.list(cursor=page.cursor, limit=2)] == ["s2", "s1"]


@run
async def test_pages_by_activity_lead_on_by_their_cursor_and_times_are_utc(harness: Harness) -> None:
    sessions = await harness.manager(idle=3600)
    for number in range(5):
        harness.clock.advance(1_000)
        await sessions.create(id=f"s{number}")
    harness.clock.advance(1_000)
    session = await sessions.open("s1")
    await session.append(Message.user("hello"))
    found, cursor = list[str](), None
    while True:
        page = await sessions.list(order="active", cursor=cursor, limit=2)
        found += [one.id for one in page]
        if (cursor := page.cursor) is None:
            break
    assert found == ["s1", "s4", "s3", "s2", "s0"]
    assert [one.id async for one in sessions.all(order="active")] == found
    now = datetime.fromtimestamp(harness.clock() / 1000, UTC)
    (newest,) = await sessions.list(since=now)
    assert newest == session.info
    assert (newest.active, newest.created) == (now, now - timedelta(seconds=4))
    assert (newest.idle, newest.expires) == (timedelta(hours=1), now + timedelta(hours=1))
    assert (newest.ended, newest.leased_until) == (None, None)
    async with session.lease(seconds=30):
        held = (await sessions.open("s1")).info
    assert held.leased_until == now + timedelta(seconds=30)


@pytest.mark.req("G2")
@run
async def test_a_negative_number_of_sessions_is_refused_and_none_is_none(harness: Harness) -> None:
    sessions = await harness.manager()
    await sessions.create()
    assert list(await sessions.list(limit=0)) == []
    with pytest.raises(InputError):
        await sessions.list(limit=-1)
    with pytest.raises(InputError):
        await sessions.expire(limit=-1)


@pytest.mark.req("G2")
@run
async def test_all_sessions_are_walked_however_many_pages_there_are(harness: Harness) -> None:
    sessions = await harness.manager()
    made = [(await sessions.create(id=f"s{number:03}", user="u1")).id for number in range(230)]
    await sessions.create(id="other", user="u2")
    assert sorted([row.id async for row in sessions.all(user="u1")]) == made


@pytest.mark.req("G4", "C9")
@run
async def test_a_search_stays_within_its_tenant_and_its_user(harness: Harness) -> None:
    sessions, other = await harness.manager(), await harness.manager(tenant="other")
    for manager, id, user in [
        (sessions, "a", "u1"),
        (sessions, "b", "u2"),
        (sessions, "c", None),
        (other, "d", "u1"),
    ]:
        session = await manager.create(id=id, user=user)
        await session.append(Message.user(f"the disk is full on {id}"))
    assert await found(sessions, "disk full", user="u1") == [("a", "the disk is full on a")]
    assert [id for id, _ in await found(sessions, "DISK")] == ["c", "b", "a"]
    assert [id for id, _ in await found(other, "disk")] == ["d"]
    assert await found(sessions, "disk empty") == []
    assert await found(sessions, "disk", user="u3") == []


@pytest.mark.req("C9")
@run
async def test_a_search_finds_what_was_cut_rewound_and_reset(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create()
    await session.append(
        Message.user("remember the xylophone", id="m1"), Message.assistant("Noted: marimba.")
    )
    await grown(session, 30)
    await session.window(Budget(600))
    await session.rewind(to="m1")
    assert len(await found(sessions, "marimba")) == 1
    session = await session.reset()
    assert len(await found(sessions, "xylophone")) == 1


@pytest.mark.req("C9")
@run
async def test_a_search_finds_calls_and_results_and_goes_on_over_pages(harness: Harness) -> None:
    sessions, one = await harness.manager(), call("grep", pattern="needle_in_args")
    session = await sessions.create()
    await session.append(Message.user("hi"), asks(one))
    await session.append(*[Message.user(f"haystack {number}") for number in range(250)])
    assert [hit.message.tool_calls async for hit in sessions.search("needle_in_args")] == [(one,)]
    assert len(await found(sessions, "haystack", limit=1_000)) == 250
    assert [text for _, text in await found(sessions, "haystack", limit=120)] == [
        f"haystack {number}" for number in range(249, 129, -1)
    ]
    assert await found(sessions, "haystack", limit=0) == []


@pytest.mark.req("F2")
@run
async def test_closing_the_manager_ends_no_session(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create(id="s1")
    await session.append(Message.user("hello"))
    await sessions.close()
    again = await harness.manager()
    assert (await again.open("s1"))._row.ended is None
    assert await parcels(again.store) == []


def test_a_url_that_no_store_serves_is_refused() -> None:
    with pytest.raises(InputError, match="memory:, sqlite:"):
        asyncio.run(SessionManager.open("mysql://nowhere"))


def test_a_setting_that_is_refused_leaves_no_store_open() -> None:
    with pytest.raises(TurnstateError):
        asyncio.run(SessionManager.open("memory:", tenant=""))


BAD_SETTINGS: list[dict[str, Any]] = [
    *({"tenant": value} for value in (None, 5, "", "x" * 501, "\0", "\ud800")),
    *({"policy": value} for value in ({}, "default", 5, Budget(1_000))),
    *({"counter": value} for value in (None, 5, "", "gpt-4o", "nobody")),
    *({"idle": value} for value in ("60", True, -1, float("nan"), float("inf"), 1e9, [60])),
    *({"model": value} for value in ("gpt-4o", 5, ...)),
    *({"snapshots": value} for value in ("folder", True, 5)),
    *({"memory": value} for value in ("jsonl:memory", True, ...)),
    *({"home": value} for value in ("/tmp", 5)),
    *({"clock": value} for value in (None, 5, "now")),
]


@pytest.mark.parametrize("settings", BAD_SETTINGS, ids=repr)
def test_settings_that_make_no_sense_are_refused_before_a_store_is_made(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(InputError):
        asyncio.run(SessionManager.open(f"sqlite:///{tmp_path / 'agent.db'}", **settings))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError):
        blocking.SessionManager.open("memory:", **settings)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        *(("create", {"tags": value}) for value in ("urgent", [5])),
        *(("create", {"counter": value}) for value in ("", "gpt-4o", 5)),
        *(("create", {"idle": value}) for value in ("60", True, -1, float("nan"))),
        *(("list", {"limit": value}) for value in (None, "5", True, -1, 1.5)),
        *(("list", {"since": value}) for value in ("yesterday", 1_750_000_000_000, datetime(2025, 6, 30))),
        *(("list", {"until": value}) for value in ("today", 1.5)),
        *(("list", {"order": value}) for value in ("newest", None)),
        *(("list", {"cursor": value}) for value in ("s1", 5, "", "é", "W10", "WyJhY3RpdmUiLDEsImEiXQ")),
        *(("list", {"live": value}) for value in ("yes", 1)),
        *(("expire", {"limit": value}) for value in (None, "5", -1)),
    ],
    ids=repr,
)
@run
async def test_what_a_manager_is_asked_is_checked(
    harness: Harness, method: str, settings: dict[str, Any]
) -> None:
    sessions = await harness.manager()
    with pytest.raises(InputError):
        await getattr(sessions, method)(**settings)
    assert list(await sessions.list()) == []


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        *(("window", {"budget": value}) for value in (None, 8_000, "8000")),
        *(
            ("window", {"budget": Budget(8_000), "tools": value})
            for value in ([{"name": "ls"}], {"name": "ls"})
        ),
        *(("preview", {"budget": value}) for value in (None, 8_000)),
        *(("compact", {"budget": value}) for value in (8_000, "8000")),
        *(("compact", {"strategy": value}) for value in (2, {"keep": 2})),
        *(("compact", {"patience": value}) for value in (0, -1, "5", True, float("nan"), float("inf"))),
        ("compact", {"focus": 5}),
        *(("preview_compact", {"strategy": value}) for value in (2, {"keep": 2})),
        *(("messages", {"last": value}) for value in ("5", True, -1, 1.5)),
        *(("acquire", {"seconds": value}) for value in (0, -1, "5", True, float("nan"), float("inf"), None)),
    ],
    ids=repr,
)
@run
async def test_what_a_session_is_asked_is_checked(
    harness: Harness, method: str, settings: dict[str, Any]
) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 8)
    before = await everything(session)
    with pytest.raises(InputError):
        await getattr(session, method)(**settings)
    assert await everything(session) == before


@run
async def test_a_wrong_type_is_answered_with_what_to_pass(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    plain: Any = {"role": "user", "content": "hello"}
    number: Any = 8_000
    tool: Any = {"type": "function", "function": {"name": "ls"}}
    for wrong, text in [
        (session.window(number), r"a Budget, such as Budget\(8000\)"),
        (session.preview(Budget(8_000), tools=[tool]), r"tools\[0\] .* a ToolSpec\("),
        (session.append(plain), r"not dict; formats.get\(…\).parse"),
        (session.append(*(["hello"])), r"not str; write Message.user"),  # type: ignore[arg-type]
        (session.cost(plain), r"cost takes messages, not dict"),
    ]:
        with pytest.raises(InputError, match=text):
            await wrong


@pytest.mark.req("A1")
@run
async def test_the_total_is_known_before_a_message_is_added_and_follows_the_path(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create(id="s1", system="You help.")
    said = [Message.user("hello"), Message.assistant("How can I help? " * 20), Message.user("日本語")]
    expected = 0
    for message in said:
        assert session.total == expected
        expected += await session.cost(message)
        await session.append(message)
    assert session.total == expected == (await sessions.open("s1")).total
    await session.rewind(to=said[0].id)
    assert session.total == await session.cost(said[0])
    await session.undo()
    assert session.total == expected
    assert (await session.reset()).total == 0


@run
async def test_metadata_that_changed_meanwhile_is_not_overwritten(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create(id="s1", meta={"n": 1})
    other = await sessions.open("s1")
    await session.annotate({"n": 2}, expected=session.info.meta)
    with pytest.raises(Conflict, match="metadata"):
        await other.annotate({"n": 3}, expected=other.info.meta)
    assert (await sessions.open("s1")).info.meta == {"n": 2}


@pytest.mark.req("C9")
@run
async def test_a_search_in_one_session_needs_the_session_to_be_there(harness: Harness) -> None:
    sessions = await harness.manager()
    for id in ("a", "b"):
        await (await sessions.create(id=id, user="u1")).append(Message.user(f"the disk of {id} is full"))
    (hit,) = [hit async for hit in sessions.search("disk", session="a")]
    assert (hit.session, hit.message.text, hit.branch, hit.seq) == ("a", "the disk of a is full", 1, 1)
    assert hit.time == datetime.fromisoformat(hit.message.timestamp)
    for which in ({"session": "c"}, {"session": "a", "user": "u2"}):
        with pytest.raises(NotFound):
            await found(sessions, "disk", **which)


def test_the_url_of_a_store_is_text(tmp_path: Path) -> None:
    async def opened(url: Any) -> None:
        async with SessionManager.open(url):
            pass

    for url in (tmp_path / "agent.db", None, b"sqlite:///agent.db", 5):
        with pytest.raises(InputError, match="for an SQLite file, write sqlite:///PATH"):
            asyncio.run(opened(url))
