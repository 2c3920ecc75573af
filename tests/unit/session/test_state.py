"""Named values beside a conversation: they follow its branches, and none is overwritten unread."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.session.session_fixtures import Harness, everything, run, say, texts
from turnstate import Budget, Message
from turnstate.archive import archive, bundles, encode_line, restore
from turnstate.entry import Data
from turnstate.errors import Conflict, EpochEnded, InputError, TooLarge
from turnstate.session import Session, SessionManager, State
from turnstate.session import named_values as module
from turnstate.session.named_values import owner_address, owner_states
from turnstate.stores.values import Address

ON_DISK = True

VALUES: list[Any] = [None, False, 0, -1.5, "", "日本 😀\0", [], {}, {"a": [1, {"b": None}]}, [[[]]], 2**53]


async def values(state: State, namespace: str | None = None) -> dict[str, Any]:
    return {one.key: one.value for one in await state.items(namespace)}


async def states(harness: Harness) -> list[State]:
    """Return the state of a session, of a user and of a tenant."""
    sessions = await harness.manager()
    session = await sessions.create()
    return [session.state, sessions.user_state("u1"), sessions.tenant_state]


@run
async def test_any_json_is_kept_under_its_name_and_namespace(harness: Harness) -> None:
    for state in await states(harness):
        assert await state.items() == []
        assert await state.get("app", "theme") is None
        for number, value in enumerate(VALUES):
            written = await state.set("app", f"k{number}", value)
            assert await state.get("app", f"k{number}") == written
            assert written.value == value
            assert type(written.value) is type(value)
        await state.set("other", "k0", "another")
        await state.set("", "k0", "none")
        assert list((await values(state, "app")).values()) == [
            VALUES[int(key[1:])] for key in await values(state, "app")
        ]
        assert await values(state, "other") == {"k0": "another"}
        assert await values(state, "") == {"k0": "none"}
        assert [(one.namespace, one.key) for one in await state.items()][:2] == [("", "k0"), ("app", "k0")]
        await state.delete("app", "k3")
        await state.delete("app", "never there")
        assert await state.get("app", "k3") is None
        assert "k3" not in await values(state, "app")


@run
async def test_the_state_of_a_session_follows_its_branches_and_epochs(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    await say(session, "a")
    await session.state.set("app", "step", 1)
    await say(session, "b")
    await session.state.set("app", "step", 2)
    await session.state.set("app", "more", True)
    other = await (await harness.manager()).open("s1")
    assert await values(other.state) == {"step": 2, "more": True}
    await session.rewind(to="b")
    assert await values(session.state) == await values(other.state) == {"step": 1}
    await session.state.set("app", "step", 9)
    await session.undo()
    assert await values(other.state) == {"step": 2, "more": True}
    await session.rewind(to="a")
    assert await values(session.state) == {}
    anew = await session.reset()
    assert await values(anew.state) == {}
    with pytest.raises(EpochEnded):
        await session.state.set("app", "step", 3)


@run
async def test_data_is_never_sent_and_no_message(harness: Harness) -> None:
    session = await (await harness.manager()).create(system="You help.")
    await say(session, "a")
    before, version, total = await session.window(Budget(8_000)), session.version, session.total
    await session.state.set("app", "secret", "do not send")
    await session.state.delete("app", "secret")
    assert (await session.window(Budget(8_000))).messages == before.messages
    assert (session.version, session.total, await texts(session)) == (version, total, ["a"])
    found = await session.entries(kinds=["data"])
    assert [one.entry for one in found] == [
        Data(namespace="app", key="secret", value="do not send"),
        Data(namespace="app", key="secret", deleted=True),
    ]
    await session.append(Message.assistant("b"))
    assert await texts(session) == ["a", "b"]


@run
async def test_a_value_is_replaced_only_at_the_version_that_was_read(harness: Harness) -> None:
    for state in await states(harness):
        first = await state.set("app", "n", 1, expected=None)
        with pytest.raises(Conflict, match="app/n"):
            await state.set("app", "n", 2, expected=None)
        second = await state.set("app", "n", 2, expected=first.version)
        assert second.version != first.version
        for stale in (first.version, "nonsense", None):
            with pytest.raises(Conflict):
                await state.set("app", "n", 3, expected=stale)
            with pytest.raises(Conflict):
                await state.delete("app", "n", expected=stale)
        await state.set("app", "unrelated", 0)
        await state.delete("app", "n", expected=second.version)
        assert await values(state) == {"unrelated": 0}
        await state.set("app", "n", 4, expected=None)


@run
async def test_counting_by_many_writers_loses_nothing(harness: Harness) -> None:
    managers = [await harness.manager() for _ in range(4)]
    await managers[0].create(id="s1")

    async def count(state: State) -> None:
        for _ in range(5):
            while True:
                known = await state.get("app", "n")
                try:
                    await state.set(
                        "app", "n", known.value + 1 if known else 1, expected=known.version if known else None
                    )
                except Conflict:
                    continue
                break

    sessions = [await manager.open("s1") for manager in managers]
    await asyncio.gather(
        *(count(session.state) for session in sessions), *(count(one.user_state("u")) for one in managers)
    )
    for state in (sessions[0].state, managers[0].user_state("u")):
        assert await values(state) == {"n": 20}


@run
async def test_what_cannot_be_kept_is_refused_and_changes_nothing(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create()
    before = await everything(session)
    too_deep: list[Any] = []
    for _ in range(500):
        too_deep = [too_deep]
    wrong: list[tuple[Any, Any, Any]] = [
        ("app", "", 1),
        (5, "k", 1),
        ("app", "k" * 501, 1),
        ("app", "k\0", 1),
        ("app", "\ud800", 1),
        ("app", "k", object()),
        ("app", "k", float("nan")),
        ("app", "k", {1: 2}),
        ("app", "k", "\ud800"),
        ("app", "k", too_deep),
    ]
    for namespace, key, value in wrong:
        with pytest.raises(InputError):
            await session.state.set(namespace, key, value)
    assert await everything(session) == before


@run
async def test_a_value_may_have_so_many_bytes_and_no_more(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module.LARGEST_VALUE == 16_000_000
    monkeypatch.setattr(module, "LARGEST_VALUE", 600_000)
    session = await (await harness.manager()).create()
    frame = len(b'{"kind":"data","namespace":"app","key":"k","value":""}')
    with pytest.raises(TooLarge, match="app/k has 600,001 bytes"):
        await session.state.set("app", "k", "x" * (module.LARGEST_VALUE - frame + 1))
    assert await session.state.items() == []
    await session.state.set("app", "k", "x" * (module.LARGEST_VALUE - frame))
    fresh = await (await harness.manager()).open(session.id)
    found = await fresh.state.get("app", "k")
    assert found is not None
    assert len(found.value) == module.LARGEST_VALUE - frame


@pytest.mark.req("G4")
@run
async def test_the_state_of_a_user_is_his_alone_and_in_no_list(harness: Harness) -> None:
    sessions, elsewhere = await harness.manager(), await harness.manager(tenant="other")
    await sessions.user_state("u1").set("app", "theme", "dark")
    await sessions.tenant_state.set("app", "theme", "light")
    for state in (sessions.user_state("u2"), elsewhere.user_state("u1"), elsewhere.tenant_state):
        assert await state.items() == []
    assert await values(sessions.user_state("u1")) == {"theme": "dark"}
    assert await values((await harness.manager()).tenant_state) == {"theme": "light"}
    assert list(await sessions.list()) == []
    assert await sessions.expire() == []
    with pytest.raises(InputError):
        SessionManager(sessions.store, tenant=owner_address("default", None).tenant)


@run
async def test_the_state_of_a_user_is_erased_with_the_user(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create(user="u1")
    await session.state.set("app", "step", 1)
    for user in ("u1", "u2"):
        await sessions.user_state(user).set("app", "theme", "dark")
        await sessions.user_state(user).set("app", "theme", "light")
    await sessions.tenant_state.set("app", "theme", "blue")
    kept = sessions.user_state("u1")
    assert await values(kept) == {"theme": "light"}
    receipt = await sessions.erase(user="u1")
    assert (list(receipt.sessions), receipt.state) == ([session.id], 2)
    assert await values(kept) == {}
    assert await values(sessions.user_state("u2")) == {"theme": "light"}
    await kept.set("app", "theme", "anew")
    assert await values(kept) == {"theme": "anew"}
    assert (await sessions.erase(tenant_state=True)).state == 1
    assert await values(sessions.tenant_state) == {}


async def each(addresses: list[Address]) -> AsyncIterator[Address]:
    for at in addresses:
        yield at


@run
async def test_states_are_archived_and_restored_with_their_owners(harness: Harness) -> None:
    sessions, target = await harness.manager(), SessionManager(harness._memory, tenant="moved")
    session = await sessions.create(user="u1")
    await session.state.set("app", "step", 1)
    version = (await sessions.user_state("u1").set("app", "theme", "dark")).version
    await sessions.user_state("u2").set("app", "theme", "light")
    await sessions.tenant_state.set("app", "limit", 5)
    of_user = await owner_states(sessions.store, sessions.tenant, "u1")
    assert len(of_user) == 1
    assert len(await owner_states(sessions.store, sessions.tenant, None)) == 3
    chosen = [Address(sessions.tenant, session.id), *of_user]
    lines = [encode_line(line) async for line in archive(sessions.store, each(chosen))]
    for bundle in bundles(io.BytesIO("\n".join([*lines, ""]).encode())):
        await restore(target.store, target.tenant, bundle, now=harness.clock())
    moved: Session = await target.open(session.id)
    assert await values(moved.state) == {"step": 1}
    found = await target.user_state("u1").get("app", "theme")
    assert found is not None
    assert (found.value, found.version) == ("dark", version)
    assert await target.user_state("u2").items() == await target.tenant_state.items() == []
    assert len(await target.list()) == 1
