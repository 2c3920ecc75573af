"""Stores that earlier versions wrote are opened, read, written to and verified by this one.

What could be read from a kept store when it was written can be read from it now, field for field. If the
first test here fails, a schema or a kind of entry is new: run `python tools/keep_stores.py`.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.harness.kept_stores import (
    ENGINES,
    STORES,
    TENANT,
    USER,
    about,
    contents,
    expected_of,
    loaded,
    memories,
    missing,
    own_lines,
    sets,
    shadow_contents_of,
    snapshot_document,
)
from turnstate import Budget, Message, SessionManager
from turnstate.archive import bundles, restore
from turnstate.checkpoints import ShadowRepository
from turnstate.errors import Busy, EpochEnded, KeyReused
from turnstate.memory.engines import open_engine
from turnstate.memory.port import User
from turnstate.stores import connect
from turnstate.testing import FixedClock

pytestmark = pytest.mark.req("G3", "G6")

SETS = [pytest.param(folder, id=folder.name) for folder in sets()]


def test_the_newest_set_is_of_today() -> None:
    newest = json.loads((sets()[-1] / "about.json").read_text())
    assert newest == about(), "run `python tools/keep_stores.py`, and commit what it writes"


@pytest.mark.parametrize("kind", STORES)
def test_the_newest_set_has_every_kind_of_entry(kind: str) -> None:
    lines = expected_of(sets()[-1], kind)["lines"]
    assert {*about()["kinds"]} <= {line.get("kind") for line in lines}


@pytest.mark.parametrize("folder", SETS)
@pytest.mark.parametrize("kind", STORES)
def test_a_kept_store_is_read_appended_to_and_verified(folder: Path, kind: str, tmp_path: Path) -> None:
    expected = expected_of(folder, kind)

    async def scene(url: str) -> None:
        store = await connect(url)
        try:
            assert missing(await contents(store), expected) == []
            assert [finding async for finding in store.verify(repair=False)] == []
            await _go_on(SessionManager(store, tenant=TENANT, clock=FixedClock()))
            assert [finding async for finding in store.verify(repair=False)] == []
            lines = [line for line in (await contents(store))["lines"] if line.get("type") == "entry"]
            kept = [line for line in expected["lines"] if line.get("type") == "entry"]
            assert len(lines) > len(kept)
            assert [one for one in kept if one not in lines] == []
        finally:
            await store.close()

    with loaded(folder, kind, tmp_path) as url:
        asyncio.run(scene(url))


@pytest.mark.parametrize(
    "damage", ["DELETE FROM entry WHERE seq = 5", "DELETE FROM key", "UPDATE session SET title = 'x'"]
)
def test_a_kept_store_that_lost_something_is_caught(damage: str, tmp_path: Path) -> None:
    folder = sets()[-1]

    async def scene(url: str) -> None:
        store = await connect(url)
        try:
            assert missing(await contents(store), expected_of(folder, "sqlite")) == []
            await _go_on(SessionManager(store, tenant=TENANT, clock=FixedClock()))
        finally:
            await store.close()

    with loaded(folder, "sqlite", tmp_path) as url:
        with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as db:
            db.execute(damage)
        with pytest.raises(AssertionError):
            asyncio.run(scene(url))


async def _go_on(sessions: SessionManager) -> None:
    """Use the sessions of a kept store as a program would that was started again."""
    session = await sessions.open("everything")
    assert session.notices == ()
    question = Message.user("Question 3: please read the log of the lamp. 灯台")
    assert (await session.append(question, key="question-3")).repeated
    with pytest.raises(KeyReused):
        await session.append(Message.user("Another question"), key="question-3")
    assert (await session.state.get("app", "place")).value == "Skagen"
    state = await session.conversation()
    assert [one.text for one in state.messages if one.role == "user"]
    await session.append(Message.user("Today's question"), Message.assistant("Today's answer"), key="today")
    window = await session.window(Budget(3_000, output=300))
    assert window.messages[-1].text == "Today's answer"
    await session.compact(model=False)
    await session.undo()
    with pytest.raises(Busy):
        await (await sessions.open("leased")).append(Message.user("not mine"))
    with pytest.raises(EpochEnded):
        await (await sessions.open("ended")).append(Message.user("too late"))
    assert (
        await (await sessions.open("again")).append(Message.user("In the second epoch."), key="epoch-2")
    ).repeated
    assert (await sessions.user_state(USER).get("app", "theme")).value == {"dark": True}
    assert (await sessions.tenant_state.get("app", "limit")).value == 3
    parcels = await sessions.store.take(2**50, until=2**51, limit=100)
    assert {one.session for one in parcels} >= {"ended", "everything"}


@pytest.mark.parametrize("folder", SETS)
@pytest.mark.parametrize("kind", ENGINES)
def test_a_kept_memory_is_read_and_added_to(folder: Path, kind: str, tmp_path: Path) -> None:
    async def scene(url: str) -> None:
        engine = await open_engine(url)
        try:
            assert missing(await memories(engine), expected_of(folder, kind)) == []
            sessions = SessionManager(await connect("memory:"), tenant=TENANT, memory=engine)
            session = await sessions.create(user=USER)
            await session.append(Message.user("My favorite color is teal."))
            await session.end()
            assert (await sessions.deliver())["delivered"] == 1
            assert any("teal" in one.text for one in await engine.search(User(TENANT, USER), "color", 5))
        finally:
            await engine.close()

    with loaded(folder, kind, tmp_path) as url:
        asyncio.run(scene(url))


@pytest.mark.parametrize("folder", SETS)
def test_a_kept_archive_is_imported(folder: Path, tmp_path: Path) -> None:
    async def imported(file: Path) -> Any:
        store = await connect("memory:")
        with file.open("rb") as lines:
            for bundle in bundles(lines):
                await restore(store, TENANT, bundle, now=1)
        return await own_lines(store)

    with loaded(folder, "archive", tmp_path) as place:
        found = asyncio.run(imported(Path(place) / "sessions.jsonl"))
    assert missing(found, expected_of(folder, "archive")) == []


@pytest.mark.parametrize("folder", SETS)
def test_a_kept_snapshot_is_restored(folder: Path, tmp_path: Path) -> None:
    with loaded(folder, "snapshot", tmp_path) as place:
        assert missing(snapshot_document(Path(place)), expected_of(folder, "snapshot")) == []


@pytest.mark.parametrize("folder", SETS)
def test_kept_checkpoints_are_read_restored_and_added_to(folder: Path, tmp_path: Path) -> None:
    with loaded(folder, "shadow", tmp_path) as place:
        tree = Path(place) / "tree"
        repository = ShadowRepository.open(Path(place) / "shadow", tree, force=True)
        assert missing(shadow_contents_of(repository), expected_of(folder, "shadow")) == []
        repository.restore("second", hard=True, undo="undo-2")
        assert (tree / "lamp.txt").read_text() == "bright\n"
        assert (tree / "日本.txt").read_text() == "new\n"
        repository.undo("undo-2")
        assert (tree / "lamp.txt").read_text() == "red\n"
        (tree / "lamp.txt").write_text("green\n")
        repository.snapshot("today")
        assert repository.verify() == []
