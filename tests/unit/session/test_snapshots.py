"""An agent that restarts remembers: from the log, and without it from its newest snapshot."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from turnstate import Budget, Message, ToolCallRequest, ToolCallResult
from turnstate.context.snapshot import ContextSnapshot
from turnstate.entry import INTERRUPTED
from turnstate.errors import HomeUnusable, NotFound, SnapshotFailed
from turnstate.home import Home
from turnstate.session import SessionManager
from turnstate.snapshots import ForeignSnapshot, Snapshots
from turnstate.stores.memory import MemoryStore

pytestmark = pytest.mark.req("H1", "H2", "H3", "H4")

BUDGET = Budget(2_000)
Test = Callable[[SessionManager], Awaitable[None]]


class Places:
    """A workspace for snapshots, and the folder of an installation."""

    def __init__(self, path: Path) -> None:
        self.path, self.home = path, Home(path / "home")

    def run(self, *tests: Test, url: str = "memory:", home: Home | None = None) -> None:
        """Run each test as a process of its own would: with a new manager."""
        for test in tests:
            asyncio.run(self._run(test, url, home or self.home))

    async def _run(self, test: Test, url: str, home: Home) -> None:
        snapshots = Snapshots(home=home, workspace=self.path)
        async with await SessionManager.open(url, snapshots=snapshots) as sessions:
            await test(sessions)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


async def talk(sessions: SessionManager, turns: int = 3) -> None:
    session = await sessions.create(id="s", user="u", title="keys", tags=["home"], system="Be kind.")
    for number in range(turns):
        await session.append(Message.user(f"question {number} " + "word " * 20))
        await session.append(Message.assistant(f"answer {number} " + "word " * 20))


def test_a_session_that_the_store_lost_comes_back_under_its_id(places: Places) -> None:
    async def check(sessions: SessionManager) -> None:
        session = await sessions.restore("s", user="u")
        assert [m.text[:10] for m in await session.messages(last=2)] == ["question 2", "answer 2 w"]
        window = await session.window(BUDGET)
        assert (window.messages[0].text, len(window.messages)) == ("Be kind.", 7)
        assert (session.id, session._row.title, session._row.tags) == ("s", "keys", ("home",))
        with pytest.raises(NotFound):
            await sessions.restore("s", user="somebody else")

    places.run(talk, check)


def test_where_the_store_has_the_session_the_log_is_the_truth(places: Places, tmp_path: Path) -> None:
    async def check(sessions: SessionManager) -> None:
        session = await sessions.restore("s")
        assert len(await session.messages()) == 80

    async def talk_long(sessions: SessionManager) -> None:
        await talk(sessions, 40)
        await (await sessions.open("s")).window(BUDGET)

    places.run(talk_long, check, url=f"sqlite:///{tmp_path}/log.db")


def test_the_summary_comes_back_and_the_next_cut_folds_it(places: Places) -> None:
    async def cut(sessions: SessionManager) -> None:
        await talk(sessions, 40)
        session = await sessions.open("s")
        await session.window(BUDGET)
        await session.append(Message.user("one more"), Message.assistant("yes"))

    async def check(sessions: SessionManager) -> None:
        session = await sessions.restore("s")
        whole = await session.window(BUDGET)
        (summary,) = [message for message in whole.messages if message.kind == "summary"]
        assert "question 0" in summary.text
        assert len(await session.messages()) < 80
        smaller = await session.window(Budget(1_000))
        (summary,) = [message for message in smaller.messages if message.kind == "summary"]
        assert "46 earlier messages" in summary.text

    places.run(cut, check)


def test_calls_that_were_under_way_get_a_visible_error_that_is_saved(places: Places, tmp_path: Path) -> None:
    calls = [ToolCallRequest(name="ls", args={}), ToolCallRequest(name="cat", args={})]

    async def begin(sessions: SessionManager) -> None:
        await talk(sessions)
        session = await sessions.open("s")
        await session.append(Message.user("look"), Message.assistant("on it", tool_calls=calls))
        await session.append(Message.tool([ToolCallResult(tool_call_id=calls[0].id, result="a b")]))

    async def check(sessions: SessionManager) -> None:
        session = await sessions.restore("s")
        (last,) = await session.messages(last=1)
        assert [(r.tool_call_id, r.result, r.is_error) for r in last.tool_results] == [
            (calls[1].id, INTERRUPTED, True)
        ]
        count = len(await session.messages())
        assert len(await (await sessions.restore("s")).messages()) == count

    places.run(begin, check, url=f"sqlite:///{tmp_path}/log.db")
    places.run(check)


def test_a_snapshot_of_another_installation_needs_trust_and_has_no_authority(
    places: Places, tmp_path: Path
) -> None:
    elsewhere = Home(tmp_path / "elsewhere")

    async def refuse(sessions: SessionManager) -> None:
        with pytest.raises(ForeignSnapshot):
            await sessions.restore("s")
        with pytest.raises(NotFound):
            await sessions.open("s")

    async def trust(sessions: SessionManager) -> None:
        session = await sessions.restore("s", trust=True)
        window = await session.window(BUDGET)
        assert [m.kind for m in window.messages if m.role == "system"] == ["foreign"]
        assert session._row.user is None

    places.run(talk, home=elsewhere)
    places.run(refuse, trust)


def test_a_reset_leaves_no_snapshot_of_what_ended(places: Places) -> None:
    async def reset(sessions: SessionManager) -> None:
        await talk(sessions)
        await (await sessions.open("s")).reset()

    async def check(sessions: SessionManager) -> None:
        session = await sessions.restore("s")
        assert await session.messages() == []

    places.run(reset, check)


def test_erasing_removes_the_snapshots_too(places: Places) -> None:
    async def erase(sessions: SessionManager) -> None:
        await talk(sessions)
        await sessions.settled()
        receipt = await sessions.erase(user="u")
        assert (list(receipt.sessions), receipt.snapshots > 0) == (["s"], True)
        with pytest.raises(NotFound):
            await sessions.restore("s")

    places.run(erase)


def test_a_session_that_was_destroyed_does_not_come_back(places: Places) -> None:
    async def destroy(sessions: SessionManager) -> None:
        await talk(sessions)
        await sessions.settled()
        await sessions.destroy("s")

    async def check(sessions: SessionManager) -> None:
        with pytest.raises(NotFound):
            await sessions.restore("s")

    places.run(destroy, check)


def test_a_disk_that_refuses_is_told_and_stops_nothing(places: Places) -> None:
    async def refuse(sessions: SessionManager) -> None:
        shutil.rmtree(places.path / ".openstarry")  # as it was when the store was opened
        (places.path / ".openstarry").write_text("in the way")
        await talk(sessions)
        session = await sessions.open("s")
        await session.append(Message.user("still there?"), Message.assistant("yes"))
        await asyncio.sleep(0)
        await sessions.settled()
        assert "snapshot" in session.notices[0]
        assert len(await session.messages()) == 8

    places.run(refuse)


class Slow(Snapshots):
    """Snapshots on a disk that stalls before the first one is written."""

    def __init__(self, *, home: Home, workspace: Path) -> None:
        super().__init__(home=home, workspace=workspace)
        self.begun, self.go_on = threading.Event(), threading.Event()

    def write(self, session_id: str, snapshot: ContextSnapshot) -> Path:
        if not self.begun.is_set():
            self.begun.set()
            self.go_on.wait(60)
        return super().write(session_id, snapshot)


@pytest.mark.req("G7")
@pytest.mark.parametrize("same", [True, False])
def test_a_snapshot_that_was_under_way_when_its_epoch_ended_does_not_come_back(
    places: Places, same: bool
) -> None:
    async def scene() -> None:
        store, slow = MemoryStore(), Slow(home=places.home, workspace=places.path)
        old = await SessionManager(store, snapshots=slow).create(id="s")
        other = await SessionManager(store, snapshots=slow).open("s")
        await old.append(Message.user("old"), Message.assistant("old"))
        await asyncio.to_thread(slow.begun.wait, 60)
        resetting = asyncio.create_task((old if same else other).reset())
        if same:
            await asyncio.sleep(0.05)
            slow.go_on.set()
        session = await resetting
        slow.go_on.set()
        await old._handle.keeper._task  # type: ignore[union-attr]
        restored = slow.restore("default/s")
        assert restored is not None
        assert restored.snapshot.messages == ()
        assert await session.messages() == []
        assert old.notices == ()

    asyncio.run(scene())


@pytest.mark.req("H1")
@pytest.mark.parametrize("why", ["a file", "a file above", "a link", "not writable"])
def test_a_folder_that_cannot_hold_snapshots_shows_at_opening(tmp_path: Path, why: str) -> None:
    if why == "a file":
        (tmp_path / ".openstarry").mkdir()
        (tmp_path / ".openstarry/snapshots").write_text("mine")
    elif why == "a file above":
        (tmp_path / ".openstarry").write_text("mine")
    elif why == "a link":
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / ".openstarry").symlink_to("elsewhere")
    folder = "/proc/turnstate/snapshots" if why == "not writable" else ".openstarry/snapshots"
    snapshots = Snapshots(folder, Home(tmp_path / "home"), workspace=tmp_path)

    async def opened() -> None:
        async with await SessionManager.open(f"sqlite:///{tmp_path}/agent.db", snapshots=snapshots):
            raise AssertionError("it was opened")

    with pytest.raises(SnapshotFailed, match="snapshots cannot be written"):
        asyncio.run(opened())
    assert not (tmp_path / "agent.db").exists()


@pytest.mark.req("H1")
def test_a_home_without_a_key_shows_at_opening(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("not a folder")
    snapshots = Snapshots(home=Home(tmp_path / "home"), workspace=tmp_path)

    async def opened() -> None:
        await SessionManager.open("memory:", snapshots=snapshots)

    with pytest.raises(HomeUnusable):
        asyncio.run(opened())


@pytest.mark.req("H1")
def test_opening_leaves_no_file_in_the_folder_but_what_keeps_it_out_of_commits(places: Places) -> None:
    async def nothing(_: SessionManager) -> None:
        return

    places.run(nothing, nothing)
    assert [path.name for path in (places.path / ".openstarry/snapshots").iterdir()] == [".gitignore"]
