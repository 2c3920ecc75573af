"""A chat that is killed at any moment goes on with `--continue`: nothing is lost, and nothing done twice."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.faults.fork_server import Died, ForkServer, Worker
from tests.harness.chat_model import ChatModel
from tests.harness.thoroughness import report, rng, runs
from turnstate import Budget, SessionManager, formats
from turnstate.message import Message

SCRIPT = [
    "where is the lamp",
    "run echo 1 >> ran.txt",
    "/tangent",
    "an aside",
    "/tangent leave",
    "write notes.txt",
    "/compact",
    "slow 12",
    "/checkpoint save here",
    "run echo 2 >> ran.txt",
    "/fork other",
    "the last question",
]
MOST_EVENTS = 25
LONGEST_PAUSE = 0.06
"""Seconds after an event within which a chat is killed."""

DONE = "/model"
"""Its output says that the line before it is done."""


@pytest.fixture(scope="module")
def model() -> Iterator[ChatModel]:
    with ChatModel() as serving:
        yield serving


def is_done(event: Any) -> bool:
    return event["event"] == "output" and "window" in event["text"]


class Kills:
    """A script that is run by chats that are killed, and what they told."""

    def __init__(self, fork_server: ForkServer, folder: Path, model: ChatModel, plant: str) -> None:
        self._fork_server, self._folder, self._plant = fork_server, folder, plant
        self._arguments = ["--model", model.address, "--allow", "*", "--no-memory"]
        self._told = dict[str, str]()
        self._left = list(SCRIPT)
        (folder / "work").mkdir(parents=True)

    def run(self, dice: Random | None) -> int:
        """Kill chats at random moments until the script is done; return the number of kills.

        Without dice, chats with a planted bug die by themselves.
        """
        kills = 0
        while self._left:
            kills += self._live(dice)
            asyncio.run(self._check())
        with self._started() as worker:  # whatever the last one left is finished
            worker.type(DONE)
            while not is_done(worker.hear()):
                pass
        asyncio.run(self._check_end())
        return kills

    def _started(self) -> Worker:
        known = ["--continue"] if self._session_exists() else []
        return self._fork_server.chat(self._folder, *known, *self._arguments, plant=self._plant)

    def _session_exists(self) -> bool:
        return bool(asyncio.run(self._sessions()))

    def _live(self, dice: Random | None) -> bool:
        """Run a chat until so many events, or the end of the script; return False for the latter."""
        events, killed = dice.randrange(1, MOST_EVENTS) if dice else sys.maxsize, True
        with self._started() as worker:
            try:
                while self._left and events > 0:
                    events -= self._line(worker, events)
                killed = bool(self._left)
                time.sleep(dice.uniform(0, LONGEST_PAUSE) if dice else 0)
            except Died:
                said = (self._folder / "errors.txt").read_text()
                if not self._plant or "Traceback" in said:
                    raise AssertionError(f"the chat ended by itself: {said[-2_000:]}") from None
            for event in worker.kill():
                self._hear(event)
        return killed

    def _line(self, worker: Worker, events: int) -> int:
        """Send a line, and listen until it is done or so many events were heard; return how many."""
        worker.type(self._left[0])
        worker.type(DONE)
        for number in range(events):
            event = worker.hear()
            self._hear(event)
            if is_done(event):
                del self._left[0]
                return number + 1
        return events

    def _hear(self, event: Any) -> None:
        if event["event"] == "reply":
            message = event["message"]
            self._told[message["id"]] = message.get("content") or ""
        repeated = self._left and self._left[0].startswith("/")  # a command that was done may be refused now
        assert event["event"] != "error" or repeated, event

    async def _sessions(self) -> list[str]:
        path = self._folder / "home" / "turnstate.db"
        if not path.exists():
            return []
        async with SessionManager.open(f"sqlite:///{path}") as sessions:
            return [one.id async for one in sessions.all()]

    async def _messages(self) -> dict[str, Message]:
        """Return the messages of all branches, after checking that the next request would be valid."""
        found = dict[str, Message]()
        async with SessionManager.open(f"sqlite:///{self._folder}/home/turnstate.db") as sessions:
            (id,) = await self._sessions()
            session = await sessions.open(id)
            for branch in await session.branches():
                found |= {str(one.id): one for one in await session.messages(branch=branch.id)}
            if found:
                window = await session.preview(Budget(200_000, output=1_000))
                chat = formats.get("openai-chat")
                assert chat.validate(chat.render(window.messages)) == []
        return found

    async def _check(self) -> None:
        """Check that everything that was told is in the log, and that nothing ran twice."""
        if not await self._sessions():
            assert not self._told
            return
        messages = await self._messages()
        for id, text in self._told.items():
            assert id in messages, f"the answer {text!r} was told and is lost"
            assert (messages[id].text or "") == text
        said = Counter(one.text for one in messages.values() if one.role == "user")
        assert all(count == 1 for count in said.values()), said
        while self._left and self._left[0] in said:  # saved before it was killed: the next chat answers it
            del self._left[0]
        ran = self._folder / "work" / "ran.txt"
        numbers = ran.read_text().split() if ran.exists() else []
        assert len(numbers) == len(set(numbers)), "a command ran twice"

    async def _check_end(self) -> None:
        messages = await self._messages()
        said = {one.text for one in messages.values() if one.role == "user"}
        assert said == {line for line in SCRIPT if not line.startswith("/")}
        answered = " ".join(one.text for one in messages.values() if one.role == "assistant")
        for line in ("where is the lamp", "an aside", "the last question"):
            assert f"You said: {line}" in answered, f"{line!r} was never answered"
        assert "word11" in answered


@pytest.mark.req("P2", "G6")
def test_a_chat_killed_at_random_moments_goes_on(
    fork_server: ForkServer,
    folder: Path,
    model: ChatModel,
    record_property: Callable[[str, object], None],
) -> None:
    dice, kills, number = rng("chat kills"), 0, 0
    while kills < runs(5, long=100):
        number += 1
        kills += Kills(fork_server, folder / str(number), model, "").run(dice)
    report(record_property, "chats killed", kills=kills, runs=number)


CAUGHT = {"hasty": "told and is lost", "lazy": "never answered"}


@pytest.mark.parametrize("plant", CAUGHT)
def test_a_planted_bug_of_a_chat_is_caught(
    plant: str, fork_server: ForkServer, folder: Path, model: ChatModel
) -> None:
    with pytest.raises(AssertionError, match=CAUGHT[plant]):
        Kills(fork_server, folder / plant, model, plant).run(None)
