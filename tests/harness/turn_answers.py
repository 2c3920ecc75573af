"""A scenario for every store: which answer a turn has, also when its request is repeated by its key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from turnstate import Budget, Message, Session, ToolCallRequest
from turnstate.entry import Usage
from turnstate.errors import Conflict, SessionError
from turnstate.session import Turn

__all__ = ["check_answers"]

BUDGET = Budget(4_000)
CAPITALS = {"k1": ("France?", "Paris."), "k2": ("Spain?", "Madrid."), "k3": ("Italy?", "Rome.")}

Open = Callable[[], Awaitable[Session]]
"""Opens the session as another worker would."""


def turn(session: Session, key: str) -> Turn:
    return session.turn(CAPITALS[key][0], budget=BUDGET, key=key)


async def ask(session: Session, key: str) -> str | None:
    """Send a request under its key as a program does, and return the answer."""
    async with turn(session, key) as asked:
        while await asked.window() is not None:
            call = ToolCallRequest(name="look", args={})
            (made,) = await asked.reply(Message.assistant(None, tool_calls=[call]))
            assert asked.answer is None
            await asked.result(made, "found it")
            assert asked.answer is None
            await asked.window()
            await asked.reply(Message.assistant(CAPITALS[key][1]))
    return asked.answer.text if asked.answer else None


async def check_answers(session: Session, opened: Open) -> None:
    """Check every way in which a request is repeated."""
    for key, (_, capital) in CAPITALS.items():
        assert await ask(session, key) == capital
    other = await opened()
    before = await other.messages()
    for key, (_, capital) in CAPITALS.items():
        assert await ask(other, key) == capital
    assert await other.messages() == before
    async with other.turn(budget=BUDGET) as last:  # without words, after the turn was done
        assert last.answer == before[-1]
    await _check_unfinished(session, opened)
    await other.compact(BUDGET, model=False)
    assert [await ask(other, key) for key in CAPITALS] == [capital for _, capital in CAPITALS.values()]
    france = next(one for one in before if one.text == "Paris.")
    await other.rewind(to=str(france.id))
    again = await opened()  # Madrid is on a branch that was left, and still what k2 was answered
    assert [await ask(again, key) for key in CAPITALS] == [capital for _, capital in CAPITALS.values()]
    assert (await again.messages())[-1] == france
    await again.fork()
    assert await ask(again, "k1") == "Paris."
    fresh = await again.reset()
    assert await fresh.messages() == []


async def _check_unfinished(session: Session, opened: Open) -> None:
    """Check a turn whose process ended, one that paused, and one that the conversation passed by."""
    async with session.turn("Greece?", budget=BUDGET, key="g") as first:
        assert first.answer is None
        second = await opened()
        async with second.turn("Greece?", budget=BUDGET, key="g") as same:  # two workers, one request
            assert same.answer is None
            assert await same.window() is not None
            await first.window()
            paused = Usage(input=1, output=1, details={"stop_reason": "pause_turn"})
            await first.reply(Message.assistant("Let me see."), usage=paused)
            assert first.answer is None
            with pytest.raises(Conflict):
                await same.reply(Message.assistant("Sparta."))
    async with (await opened()).turn("Greece?", budget=BUDGET, key="g") as resumed:
        assert resumed.answer is None
        assert await resumed.window() is not None
        await resumed.reply(Message.assistant("Athens."))
        assert resumed.answer is not None
        assert resumed.answer == (await (await opened()).messages(last=1))[0]
    async with session.turn("Norway?", budget=BUDGET, key="n"):
        pass  # the process ends here, and the user goes on
    async with session.turn("Malta?", budget=BUDGET, key="m"):
        pass
    async with (await opened()).turn("Norway?", budget=BUDGET, key="n") as passed:
        assert (passed.answer, passed.calls) == (None, ())
        assert await passed.window() is None  # what is pending is the turn of Malta
        with pytest.raises(SessionError, match="the turn with the key 'n' is over"):
            await passed.reply(Message.assistant("Oslo."))
    async with (await opened()).turn("Malta?", budget=BUDGET, key="m") as pending:
        await pending.window()
        await pending.reply(Message.assistant("Valletta."))
        assert pending.answer is not None
    async with (await opened()).turn("Norway?", budget=BUDGET, key="n") as passed:
        assert passed.answer is None
