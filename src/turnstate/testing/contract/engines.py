"""What every memory engine promises, as tests that are part of the library: run them on your own engine.

    class TestMyEngine(MemoryContract):
        async def connect(self) -> MemoryEngine:
            return await my_engine.connect(self.address)

        @pytest.fixture(autouse=True)
        def fresh(self, tmp_path):
            self.address = f"{tmp_path}/memory"

``connect`` opens an empty memory and, if a test calls it again, the same one. How well an engine searches is
up to the engine; these tests search for a message by words that it contains.
"""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

from ...memory.port import Evicted, Filter, Listed, MemoryEngine, SessionRecord, User, search
from ...message import Message, ToolCallRequest, ToolCallResult
from ...stores.values import Address
from .scenes import NOW, equal, holds
from .texts import HOSTILE

TIME = "2025-06-15T12:00:00.000Z"
ANN = User("acme", "ann")
RACES = 10

M = TypeVar("M", bound="MemoryContract")


def said(*texts: str, prefix: str = "m") -> list[Message]:
    """Return alternating messages of user and assistant, with the ids m1, m2, …"""
    speak = (Message.user, Message.assistant)
    return [speak[n % 2](text, id=f"{prefix}{n + 1}", timestamp=TIME) for n, text in enumerate(texts)]


def ended(
    messages: list[Message] | AsyncIterable[Message],
    *,
    user: User | None = ANN,
    session: str = "s1",
    key: str = "",
    since: int = NOW,
    tenant: str = "acme",
    summary: str = "",
) -> SessionRecord:
    """Return the record of a session that has ended."""
    return SessionRecord(
        key=key or f"{user.tenant if user else tenant}: end of {session}",
        tenant=user.tenant if user else tenant,
        session=session,
        user=user.id if user else None,
        epoch=1,
        messages=Listed(messages) if isinstance(messages, list) else messages,
        since=since,
        reason="reset",
        started=since,
        ended=since + 1,
        summary=summary,
    )


def left(messages: list[Message], *, user: User = ANN, session: str = "s1", key: str) -> Evicted:
    """Return messages that a cut removed from the window."""
    return Evicted(
        key=key,
        tenant=user.tenant,
        session=session,
        user=user.id,
        epoch=1,
        messages=Listed(messages),
        since=NOW,
    )


def scenario(test: Callable[[M, MemoryEngine], Coroutine[Any, Any, None]]) -> Callable[[M], None]:
    """Turn a coroutine that takes an engine into a plain test method."""

    @wraps(test)
    def run(self: M) -> None:
        async def inside() -> None:
            engine = await self.connect()
            try:
                await test(self, engine)
            finally:
                await engine.close()

        asyncio.run(inside())

    del run.__dict__["__wrapped__"]  # pytest would look for a fixture `engine`
    return run


async def ids(engine: MemoryEngine, user: User, query: str, k: int = 99) -> list[str]:
    """Return the sorted ids of the messages that a search finds."""
    return sorted(hit.message for hit in await engine.search(user, query, k))


class _Broken:
    """A source of messages that fails after some of them."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages

    async def __aiter__(self) -> AsyncIterator[Message]:
        for message in self._messages:
            yield message
        raise OSError("the log cannot be read")


class MemoryContract:
    """Everything that a memory engine promises; a subclass opens the engine."""

    async def connect(self) -> MemoryEngine:
        """Open the memory of this test."""
        raise NotImplementedError

    @scenario
    async def test_a_message_is_found_by_its_words_with_where_it_comes_from(
        self, engine: MemoryEngine
    ) -> None:
        await engine.ingest(ended(said("I take tea without milk.", "Noted.", "And coffee with sugar.")))
        (hit,) = [one for one in await engine.search(ANN, "tea milk", 9) if one.message == "m1"]
        holds("tea without milk" in hit.text, "the text of a hit is that of its message")
        equal((hit.session, hit.timestamp), ("s1", TIME), "the session and time of a hit")

    @scenario
    async def test_at_most_k_results_come_back(self, engine: MemoryEngine) -> None:
        await engine.ingest(ended(said(*(f"tea number {n}" for n in range(8)))))
        for k in (0, 1, 3):
            equal(len(await engine.search(ANN, "tea", k)), k, f"results for k={k}")

    @scenario
    async def test_a_filter_holds_whether_the_engine_knows_it_or_not(self, engine: MemoryEngine) -> None:
        await engine.ingest(ended(said("green tea", "black tea"), session="s1"))
        await engine.ingest(ended(said("white tea", prefix="n"), session="s2"))

        async def filtered(**given: Any) -> list[str]:
            hits = await search(engine, ANN, "tea", 9, Filter(**given))
            return sorted(hit.message for hit in hits)

        equal(await filtered(session="s1"), ["m1", "m2"], "one session")
        equal(await filtered(roles=("user",)), [*sorted(await self._said_by_user(engine))], "one role")
        equal(await filtered(since="2025-06-16"), [], "since the day after")
        equal(await filtered(since="2025-06-15", until="2025-06-16"), ["m1", "m2", "n1"], "that day")
        equal(await filtered(until="2025-06-15"), [], "before that day")
        hits = await engine.search(ANN, "tea", 9)
        holds(all(0 <= hit.score <= 1 for hit in hits), "a score is between 0 and 1")

    async def _said_by_user(self, engine: MemoryEngine) -> list[str]:
        """Return the ids of the results that the engine says are of the user."""
        return [hit.message for hit in await engine.search(ANN, "tea", 9) if hit.role == "user"]

    @scenario
    async def test_a_delivery_that_is_repeated_changes_nothing(self, engine: MemoryEngine) -> None:
        messages = said("green tea", "black tea", "white tea")
        await engine.archive(left(messages[:2], key="cut"), "they spoke of tea")
        for _ in range(3):
            await engine.ingest(ended(messages))
            await engine.archive(left(messages[:2], key="cut"), "they spoke of tea")
        found = [one for one in await ids(engine, ANN, "tea") if one in {"m1", "m2", "m3"}]
        equal(found, ["m1", "m2", "m3"], "each message once")

    @scenario
    async def test_deliveries_at_the_same_time_are_one(self, engine: MemoryEngine) -> None:
        record = ended(said("green tea", "black tea"))
        await asyncio.gather(*(engine.ingest(record) for _ in range(RACES)))
        equal(await ids(engine, ANN, "tea"), ["m1", "m2"], "each message once")

    @scenario
    async def test_a_delivery_that_broke_off_is_completed_by_the_next(self, engine: MemoryEngine) -> None:
        messages = said("green tea", "black tea", "white tea")
        try:
            await engine.ingest(ended(_Broken(messages[:2])))
        except OSError:
            pass
        else:
            raise AssertionError("an engine must pass on the failure of its source")
        await engine.ingest(ended(messages))
        equal(await ids(engine, ANN, "tea"), ["m1", "m2", "m3"], "each message once")

    @scenario
    async def test_what_was_acknowledged_is_there_after_reopening(self, engine: MemoryEngine) -> None:
        await engine.ingest(ended(said("green tea")))
        again = await self.connect()
        try:
            equal(await ids(again, ANN, "tea"), ["m1"], "a second engine on the same memory")
        finally:
            await again.close()

    @scenario
    async def test_messages_of_every_kind_are_taken(self, engine: MemoryEngine) -> None:
        call = ToolCallRequest(name="ls", args={"path": "."})
        result = ToolCallResult(tool_call_id=call.id, result=["harbor.txt", {"deep": [None, 0]}])
        messages = [
            Message.user("お茶は牛乳なしで。我喝茶不加奶。 NUL: \0 end", id="m1", timestamp=TIME),
            Message.assistant("", tool_calls=[call], id="m2", timestamp=TIME),
            Message.tool([result], id="m3", timestamp=TIME),
            Message.assistant("word " * 100_000, id="m4", timestamp=TIME),
            Message.user("🙂", id="m5", timestamp=TIME),
        ]
        await engine.ingest(ended(messages))
        holds("m1" in await ids(engine, ANN, "牛乳"), "Japanese words are found")
        holds("m1" in await ids(engine, ANN, "加奶"), "Chinese words are found")
        holds("m4" in await ids(engine, ANN, "word"), "a long message is found")

    @scenario
    async def test_one_user_never_sees_the_words_of_another(self, engine: MemoryEngine) -> None:
        users = [ANN, User("acme", "bob"), User("other", "ann"), User("acme", "ANN"), User("acme", "ann ")]
        users += [User("acme", name) for name in HOSTILE if name and "\0" not in name][:20]
        for number, user in enumerate(dict.fromkeys(users)):
            await engine.ingest(ended(said(f"harbor secret{number}."), user=user, key=f"key {number}"))
        for number, user in enumerate(dict.fromkeys(users)):
            found = await engine.search(user, "harbor", 99)
            equal([one.text for one in found], [f"harbor secret{number}."], f"what {user} finds")
            others = [
                n for n in range(len(users)) if n != number and f"secret{n}." in await engine.profile(user)
            ]
            holds(not others, f"the profile of {user} holds words of others")
        equal(await engine.search(User("acme", "nobody"), "harbor", 9), [], "what a stranger finds")
        equal(await engine.profile(User("acme", "nobody")), "", "the profile of a stranger")

    @scenario
    async def test_a_session_without_a_user_is_in_no_ones_memory(self, engine: MemoryEngine) -> None:
        await engine.ingest(ended(said("harbor"), user=None))
        for name in ("", "None", "null", "no-user"):
            equal(await engine.search(User("acme", name), "harbor", 9), [], f"what {name!r} finds")

    @scenario
    async def test_a_forgotten_session_is_gone_and_others_stay(self, engine: MemoryEngine) -> None:
        await engine.ingest(ended(said("green tea", "black tea"), session="s1"))
        await engine.ingest(ended(said("white tea", prefix="n"), session="s2"))
        other = User("other", "ann")
        await engine.ingest(ended(said("oolong tea"), user=other, session="s1"))
        equal(await engine.forget(Address("acme", "s1")), 2, "the number of messages")
        equal(await ids(engine, ANN, "tea"), ["n1"], "what is left")
        equal(await ids(engine, other, "tea"), ["m1"], "the other tenant's session of the same id")
        equal(await engine.forget(Address("acme", "s1")), 0, "a second time")

    @scenario
    async def test_a_forgotten_user_is_gone_and_others_stay(self, engine: MemoryEngine) -> None:
        bob = User("acme", "bob")
        await engine.ingest(ended(said("green tea", "black tea")))
        await engine.ingest(ended(said("white tea"), user=bob, session="s2"))
        equal(await engine.forget(ANN), 2, "the number of messages")
        equal(await engine.search(ANN, "tea", 9), [], "what is left")
        equal(await engine.profile(ANN), "", "the profile that is left")
        equal(await ids(engine, bob, "tea"), ["m1"], "another user's")
        equal(await engine.forget(ANN), 0, "a second time")

    @scenario
    async def test_what_began_before_it_was_forgotten_is_refused_later(self, engine: MemoryEngine) -> None:
        late = said("green tea", "black tea")
        for whose in (ANN, Address("acme", "s1")):
            await engine.forget(whose)
            await engine.ingest(ended(late, key=f"late {whose}"))
            await engine.archive(left(late, key=f"late cut {whose}"), "tea")
            equal(await engine.search(ANN, "tea", 9), [], f"after {whose} was forgotten")

    @scenario
    async def test_a_session_that_begins_after_the_forgetting_is_remembered(
        self, engine: MemoryEngine
    ) -> None:
        await engine.ingest(ended(said("green tea")))
        await engine.forget(ANN)
        await engine.ingest(ended(said("white tea"), session="s2", since=2 * NOW))
        equal(await ids(engine, ANN, "tea"), ["m1"], "what is remembered")

    @scenario
    async def test_forgetting_and_delivering_at_the_same_time_brings_nothing_back(
        self, engine: MemoryEngine
    ) -> None:
        for number in range(RACES):
            user = User("acme", f"u{number}")
            record = ended(said("green tea", "black tea"), user=user, session=f"s{number}")
            whose = user if number % 2 else Address("acme", f"s{number}")
            await asyncio.gather(engine.ingest(record), engine.forget(whose))
            equal(await engine.search(user, "tea", 9), [], f"race {number}")
