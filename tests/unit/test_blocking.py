from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnstate import Budget, Message, blocking, errors
from turnstate.session import Session, SessionManager, State

pytestmark = pytest.mark.req("G2")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/agent.db"


@pytest.fixture
def sessions(url: str) -> Iterator[blocking.SessionManager]:
    with blocking.SessionManager.open(url) as opened:
        yield opened


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("turnstate-blocking")]


WITHOUT_A_TWIN = {"memory", "ask", "operate", "files"}
"""An engine is awaited; blocking sessions `recall` and `remember`. The rest is for our own packages."""


def is_asynchronous(method: object) -> bool:
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


@pytest.mark.parametrize("kind", [Session, SessionManager, State])
def test_every_public_method_that_is_awaited_has_a_plain_twin(kind: type) -> None:
    twin = getattr(blocking, kind.__name__)
    members = {name: member for one in reversed(kind.__mro__[:-1]) for name, member in vars(one).items()}
    awaited = {name for name in members if not name.startswith("_") and is_asynchronous(members[name])}
    awaited -= WITHOUT_A_TWIN
    assert {name for name in awaited if not callable(getattr(twin, name, None))} == set()
    assert {name for name in awaited if is_asynchronous(getattr(twin, name))} == set()
    public = [name for name in members if not name.startswith("_")]
    properties = {name for name in public if isinstance(members[name], property)}
    assert properties - set(dir(twin)) - WITHOUT_A_TWIN == set()


def test_a_conversation_is_kept_without_await(url: str) -> None:
    with blocking.SessionManager.open(url, tenant="acme") as sessions:
        session = sessions.create(user="u1", system="You help.")
        session.append(Message.user("hello"), key="k")
        assert session.append(Message.user("hello"), key="k").repeated
    with blocking.SessionManager.open(url, tenant="acme") as sessions:
        again = sessions.open(session.id, user="u1")
        assert [message.text for message in again.messages()] == ["hello"]
        assert again.window(Budget(window=8_000)).messages[0].text == "You help."
        assert (again.id, again.version, again.info.user, sessions.tenant) == (session.id, 1, "u1", "acme")


def test_what_is_iterated_is_a_plain_iterator(sessions: blocking.SessionManager) -> None:
    made = [sessions.create(title=str(number)) for number in range(3)]
    for session in made:
        session.append(Message.user("the disk is full"))
    assert [row.id for row in sessions.all()] == [session.id for session in reversed(made)]
    assert [hit.session for hit in sessions.search("disk", limit=2)] == [made[2].id, made[1].id]


def test_an_iterator_that_is_left_early_is_closed(sessions: blocking.SessionManager) -> None:
    for _ in range(3):
        sessions.create()
    rows = sessions.all()
    assert next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert list(rows) == []


def test_an_iterator_that_outlives_its_sessions_ends(url: str) -> None:
    with blocking.SessionManager.open(url) as sessions:
        sessions.create()
        sessions.create()
        rows = sessions.all()
        next(rows)
    with pytest.raises(errors.SessionError, match="closed"):
        next(rows)
    del rows
    gc.collect()


@pytest.mark.req("G5")
def test_a_lease_is_held_for_the_block(url: str, sessions: blocking.SessionManager) -> None:
    session = sessions.create()
    with blocking.SessionManager.open(url) as others:
        other = others.open(session.id)
        with session.lease() as lease:
            assert lease.fence == 1
            session.append(Message.user("mine"))
            with pytest.raises(errors.Busy):
                other.append(Message.user("theirs"))
        other.append(Message.user("theirs"))


def test_an_error_inside_a_lease_is_raised_and_the_lease_released(sessions: blocking.SessionManager) -> None:
    session = sessions.create()
    with pytest.raises(KeyboardInterrupt), session.lease():
        raise KeyboardInterrupt
    with session.lease() as lease:
        assert lease.fence == 2


@pytest.mark.req("G4")
def test_errors_are_those_of_the_asynchronous_sessions(sessions: blocking.SessionManager) -> None:
    with pytest.raises(errors.NotFound):
        sessions.open("nobody")
    session = sessions.create(user="u1")
    with pytest.raises(errors.NotFound):
        sessions.open(session.id, user="u2")
    with pytest.raises(errors.InvalidMessage):
        session.append()


def test_a_url_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    before = threads()
    with pytest.raises(errors.InputError):
        blocking.SessionManager.open(f"sqlite:///{tmp_path}/missing/agent.db")
    assert threads() == before


def test_closing_ends_the_thread_and_can_be_repeated(url: str) -> None:
    before = threads()
    sessions = blocking.SessionManager.open(url)
    session = sessions.create()
    sessions.close()
    sessions.close()
    assert threads() == before
    with pytest.raises(errors.SessionError, match="closed"):
        session.append(Message.user("too late"))


def test_sessions_that_nobody_holds_any_more_close_themselves(url: str) -> None:
    before = threads()
    sessions = blocking.SessionManager.open(url)
    assert len(threads()) == len(before) + 1
    del sessions
    gc.collect()
    assert threads() == before


def test_it_works_where_a_loop_runs_already(url: str) -> None:
    async def notebook() -> list[str]:
        with blocking.SessionManager.open(url) as sessions:
            session = sessions.create()
            session.append(Message.user("from a cell"))
            return [message.text for message in session.messages()]

    assert asyncio.run(notebook()) == ["from a cell"]


def test_many_threads_share_one_manager(sessions: blocking.SessionManager) -> None:
    session = sessions.create()
    workers = [
        threading.Thread(target=session.append, args=(Message.user(str(number)),)) for number in range(20)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(int(message.text) for message in session.messages()) == list(range(20))


@pytest.mark.timeout(60)  # what is not cancelled never ends
def test_an_interruption_cancels_what_is_under_way() -> None:
    loop, started, cancelled = blocking._Loop(), threading.Event(), threading.Event()

    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def interrupt() -> None:
        started.wait()
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    sender = threading.Thread(target=interrupt)
    sender.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run(endless())
    finally:
        signal.signal(signal.SIGINT, before)
        sender.join()
    assert cancelled.is_set()

    async def answer() -> str:
        return "still there"

    assert loop.run(answer()) == "still there"
    loop.stop()


def test_waiting_inside_the_loop_is_refused_instead_of_hanging() -> None:
    loop = blocking._Loop()

    async def inner() -> None:
        pass

    async def outer() -> None:
        loop.run(inner())

    with pytest.raises(errors.SessionError, match="use the async API"):
        loop.run(outer())
    loop.stop()


def test_a_script_that_forgets_to_close_ends_and_loses_nothing(url: str) -> None:
    script = (
        "import sys; from turnstate import Message, blocking\n"
        "sessions = blocking.SessionManager.open(sys.argv[1])\n"
        "session = sessions.create(id='kept')\n"
        "session.append(Message.user('hello'))\n"
        "rows = sessions.all(); next(rows)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, url], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with blocking.SessionManager.open(url) as sessions:
        assert [message.text for message in sessions.open("kept").messages()] == ["hello"]
