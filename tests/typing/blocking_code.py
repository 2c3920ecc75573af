"""Sessions without await as a user would write them: it must type-check strictly as it stands."""

from __future__ import annotations

from contextlib import suppress

from turnstate import Budget, Message, blocking, errors
from turnstate.session import SearchResult, SessionInfo
from turnstate.stores.values import Lease, Receipt


def kept(url: str) -> list[str]:
    with blocking.SessionManager.open(url, tenant="acme") as sessions:
        session: blocking.Session = sessions.create(user="u1", system="You help.", tags=["x"])
        receipt: Receipt = session.append(Message.user("hello"), Message.user("again"), key="k")
        with session.lease(seconds=5) as lease:
            held: Lease = lease
            assert held.fence
        rows: list[SessionInfo] = list(sessions.all(user="u1"))
        assert receipt.version == rows[0].version
        return [message.text for message in session.window(Budget(window=8_000)).messages]


def aside(session: blocking.Session) -> list[str]:
    name: str = session.begin_tangent(at=session.messages()[0].id)
    session.append(Message.user("aside"))
    left: str | None = session.leave_tangent("tail")
    session.change_settings(mcp_enabled=False)
    session.note(f"back from {left}")
    assert session.undo(only="tangent exit") == "tangent exit"
    view = session.conversation(last=5)
    return [name, *(kept.opening for kept in session.tangents()), *view.transcript]


def found(sessions: blocking.SessionManager, words: str) -> list[SearchResult]:
    with suppress(errors.NotFound):
        anew: blocking.Session = sessions.open("nobody", user="u1").reset(system="anew")
        assert anew.info.epoch == 2
    return list(sessions.search(words, limit=5))
