"""A store that came back without what it acknowledged is noticed by the handles that heard it."""

from __future__ import annotations

import asyncio
from copy import deepcopy

import pytest
from session_stage import say, texts

from turnstate import Budget, Message
from turnstate.session import SessionManager
from turnstate.session.setbacks import Setbacks
from turnstate.stores.memory import MemoryStore
from turnstate.stores.values import Receipt, SessionRow

WIDE = Budget(100_000)


class Forgetful(MemoryStore):
    """A store that can be set back, as a server is that synced too late."""

    def keep(self) -> None:
        self._kept = deepcopy(self._state.sessions)

    def go_back(self) -> None:
        self._state.sessions = deepcopy(self._kept)


@pytest.mark.req("G6")
def test_a_handle_that_appends_to_a_store_that_went_back_says_so() -> None:
    async def appended() -> None:
        store = Forgetful()
        session = await SessionManager(store).create(id="s1")
        await say(session, "a", "b")
        store.keep()
        await say(session, "c", "d")
        store.go_back()
        assert session.notices == ()
        await say(session, "e")
        (notice,) = session.notices
        assert "entry 4 of branch 1 was there, then it ended at entry 2" in notice
        assert await texts(session) == ["a", "b", "e"]

    asyncio.run(appended())


@pytest.mark.req("G6")
def test_a_handle_that_reads_from_a_store_that_went_back_says_so_and_shows_what_is_there() -> None:
    async def read() -> None:
        store = Forgetful()
        session = await SessionManager(store).create(id="s1")
        await say(session, "a")
        store.keep()
        await say(session, "b")
        await session.window(WIDE)
        store.go_back()
        window = await session.window(WIDE)
        assert [message.text for message in window.messages] == ["a"]
        assert "then it ended at entry 1" in session.notices[0]

    asyncio.run(read())


@pytest.mark.req("G6")
def test_a_window_does_not_show_what_was_lost_and_written_over() -> None:
    async def written_over() -> None:
        store = Forgetful()
        session = await SessionManager(store).create(id="s1")
        await say(session, "a")
        store.keep()
        await say(session, "b", "c")
        await session.window(WIDE)
        store.go_back()
        other = await SessionManager(store).open("s1")
        await say(other, "x", "y", "z")
        window = await session.window(WIDE)
        assert [message.text for message in window.messages] == ["a", "x", "y", "z"]
        assert session.notices != ()
        assert other.notices == ()

    asyncio.run(written_over())


def test_a_handle_says_nothing_while_tasks_and_other_handles_write_forks_and_resets() -> None:
    async def busy() -> None:
        store = MemoryStore()
        one = await SessionManager(store).create(id="s1")
        other = await SessionManager(store).open("s1")
        for number in range(10):
            await asyncio.gather(
                *(session.append(Message.user(f"{number}")) for session in (one, other, one, other)),
                one.window(WIDE),
                other.messages(),
            )
        first = (await one.messages())[0].id
        await one.rewind(to=first)
        await other.append(Message.user("after"))
        await one.undo()
        await other.window(WIDE)
        await one.append(Message.user("again"), key="k")
        await other.append(Message.user("again"), key="k")
        anew = await one.reset()
        await anew.append(Message.user("anew"))
        assert one.notices == other.notices == anew.notices == ()

    asyncio.run(busy())


def seen(seq: int) -> SessionRow:
    about = {"tenant": "acme", "id": "s1", "user": None, "title": "", "tags": (), "counter": "", "meta": {}}
    return SessionRow(**about, created=1, active=1, seq=seq, version=seq)


def receipt(seq: int, *, repeated: bool = False) -> Receipt:
    return Receipt(epoch=1, version=seq, branch=1, first=seq, last=seq, repeated=repeated)


@pytest.mark.req("G6")
def test_two_writes_under_one_number_are_a_setback_however_little_was_known_before() -> None:
    setbacks = Setbacks()
    setbacks.wrote(seen(4), receipt(5))
    setbacks.wrote(seen(4), receipt(5))
    assert "entry 5 of branch 1 was there, then it ended at entry 4" in setbacks.notice


def test_answers_that_overtake_one_another_or_are_repeated_are_no_setback() -> None:
    setbacks = Setbacks()
    for seq in (6, 5, 7):
        setbacks.wrote(seen(4), receipt(seq))
    setbacks.wrote(seen(7), receipt(3, repeated=True))
    setbacks.wrote(seen(7), receipt(8))
    assert setbacks.notice == ""
