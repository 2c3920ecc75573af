"""The built-in engine on SQLite: bounds, notes, facts and their sources, export, embedders that fail."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec import structs

from tests.harness.postgres_server import execute, fresh_url
from tests.unit.memory.offload import evicted, said, session_record
from turnstate.errors import InputError, InvalidPayload, NewerFormat, StoreDamaged, StoreError, UnknownName
from turnstate.memory import User
from turnstate.memory.builtin import BuiltinEngine, connect, sqlite
from turnstate.memory.builtin.signs import Sign
from turnstate.memory.facts import Source
from turnstate.memory.model_extraction import ModelExtractor
from turnstate.message import Message
from turnstate.stores.postgres.server import target
from turnstate.stores.values import Address
from turnstate.testing import FixedClock, ScriptedModel

pytestmark = pytest.mark.req("F5")

U1, U2 = User("default", "u1"), User("default", "u2")
NEVER = 1 << 50  # milliseconds: after everything that a test forgets


def run(work: Callable[[BuiltinEngine], Awaitable[None]], address: str = "", **settings: Any) -> None:
    async def inside() -> None:
        engine = await connect(address, **settings)
        try:
            await work(engine)
        finally:
            await engine.close()

    asyncio.run(inside())


def test_a_user_has_a_bounded_number_of_turns_and_facts_outlive_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(engine: BuiltinEngine) -> None:
        for number in range(12):
            texts = [f"boat {number} is blue" if number else "I live in Porto.", "I see."]
            await engine.ingest(session_record(said(*texts), session=f"s{number}", key=f"k{number}"))
        ((user, turns, dropped),) = await engine.users("default")
        assert (user, turns + dropped) == (U1, 24)
        assert turns <= 10
        left = {turn.text for turn in await engine.turns(U1, limit=99)}
        assert "I live in Porto." in left
        assert "boat 1 is blue" not in left
        assert "boat 11 is blue" in left
        assert await engine.search(U1, "boat 1", 1) != []

    with caplog.at_level(logging.WARNING):
        run(test, max_documents=10)
    assert "the memory of user u1 is full" in caplog.text


def test_a_fact_with_several_sources_loses_only_the_forgotten_one() -> None:
    async def test(engine: BuiltinEngine) -> None:
        for number in (1, 2):
            messages = said("I live in Porto.", "Nice.", "I love rain." if number == 1 else "Bye.")
            await engine.ingest(session_record(messages, session=f"s{number}", key=f"k{number}"))
        home, rain = sorted(await engine.facts(U1), key=lambda fact: fact.kind)
        assert home.sources == (Source("s1", "m1"), Source("s2", "m1"))
        assert rain.sources == (Source("s1", "m3"),)
        assert await engine.forget(Address("default", "s1")) == 3
        (fact,) = await engine.facts(U1)
        assert (fact.value, fact.sources) == ("Porto", (Source("s2", "m1"),))

    run(test)


@pytest.mark.req("G9")
def test_a_fact_that_stays_is_in_the_words_of_the_sessions_that_stay() -> None:
    async def test(engine: BuiltinEngine) -> None:
        for number, text in enumerate(["I live in Porto with a ferret.", "Well, I LIVE IN PORTO."], 1):
            await engine.ingest(session_record(said(text), session=f"s{number}", key=f"k{number}"))
        await engine.remember(U1, "likes rain and ferrets", session="s1")
        await engine.remember(U1, "likes rain and ferrets", session="s2")
        await engine.forget(Address("default", "s1"))
        facts = {fact.kind: (fact.value, fact.text) for fact in await engine.facts(U1)}
        assert facts["home"] == ("PORTO", "Well, I LIVE IN PORTO.")
        assert facts["note"] == ("likes rain and ferrets", "likes rain and ferrets")
        exported = b"".join([line async for line in engine.export(U1)])
        assert b"with a ferret" not in exported

    run(test)


def test_what_a_forgotten_session_had_ended_holds_again() -> None:
    async def test(engine: BuiltinEngine) -> None:
        for number, city in enumerate(["Porto", "Lisbon", "Faro"], 1):
            at = f"2025-0{number}-01T00:00:00Z"
            messages = [Message.user(f"We moved to {city}.", id="m1", timestamp=at)]
            await engine.ingest(session_record(messages, session=f"s{number}", key=f"k{number}"))
        await engine.forget(Address("default", "s2"))
        facts = {fact.value: fact.ended for fact in await engine.facts(U1)}
        assert facts == {"Porto": "2025-03-01T00:00:00Z", "Faro": None}
        await engine.forget(Address("default", "s3"))
        assert {fact.value: fact.ended for fact in await engine.facts(U1)} == {"Porto": None}
        assert (await engine.profile(U1)).startswith("Home: Porto")

    run(test)


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_what_a_dropped_fact_had_ended_holds_again(database: str) -> None:
    async def test(engine: BuiltinEngine) -> None:
        async def signs() -> list[Sign]:
            rows = await engine._database.rows("turns", owner=1, numbers=[0, 1, 2])
            return [Sign(row[-1]) & (Sign.FACT | Sign.ENDED) for row in sorted(rows)]

        for number, city in enumerate(["Porto", "Lisbon", "Faro"], 1):
            at = f"2025-0{number}-01T00:00:00Z"
            messages = [Message.user(f"We moved to {city}.", id="m1", timestamp=at)]
            await engine.ingest(session_record(messages, session=f"s{number}", key=f"k{number}"))
        ids = {fact.value: fact.id for fact in await engine.facts(U1)}
        assert await signs() == [Sign.ENDED, Sign.ENDED, Sign.FACT]
        assert await engine.drop(U1, ids["Lisbon"])
        facts = {fact.value: fact.ended for fact in await engine.facts(U1)}
        assert facts == {"Porto": "2025-03-01T00:00:00Z", "Faro": None}
        assert await signs() == [Sign.ENDED, Sign.NONE, Sign.FACT]
        assert await engine.drop(U1, ids["Faro"])
        assert {fact.value: fact.ended for fact in await engine.facts(U1)} == {"Porto": None}
        assert (await engine.profile(U1)).startswith("Home: Porto")
        assert await signs() == [Sign.FACT, Sign.NONE, Sign.NONE]
        assert (await engine.search(U1, "Which city do I live in?", 1))[0].session == "s1"
        assert len(await engine.turns(U1, limit=9)) == 3

    if database == "sqlite":
        run(test)
        return
    with fresh_url() as url:
        run(test, url)
        execute(f"DROP SCHEMA IF EXISTS {target(url).schema}_memory CASCADE")


def test_a_turn_keeps_the_sign_of_the_facts_that_are_left() -> None:
    async def test(engine: BuiltinEngine) -> None:
        await engine.ingest(session_record(said("I live in Porto. My favorite color is red.")))
        home, color = sorted(await engine.facts(U1), key=lambda fact: fact.kind)
        assert await engine.drop(U1, home.id)
        assert await engine.facts(U1) == [color]
        ((*_, signs),) = await engine._database.rows("turns", owner=1, numbers=[0])
        assert Sign.FACT in Sign(signs)

    run(test)


@pytest.mark.req("F4")
def test_a_newer_home_supersedes_the_older_and_its_turn_ranks_first() -> None:
    async def test(engine: BuiltinEngine) -> None:
        for number, city in enumerate(["Porto", "Lisbon"]):
            at = f"2025-0{number + 1}-01T00:00:00Z"
            messages = [Message.user(f"We moved to {city} and like it.", id=f"m{number}", timestamp=at)]
            await engine.ingest(session_record(messages, session=f"s{number}", key=f"k{number}"))
        facts = {fact.value: fact.ended for fact in await engine.facts(U1)}
        assert facts == {"Porto": "2025-02-01T00:00:00Z", "Lisbon": None}
        assert [hit.message for hit in await engine.search(U1, "Which city do I live in?", 2)] == ["m1", "m0"]
        assert "Lisbon" in await engine.profile(U1)
        assert "Home: Porto" not in await engine.profile(U1)

    run(test)


@pytest.mark.req("F5")
def test_a_chinese_question_for_the_home_finds_the_turn_that_says_it() -> None:
    async def test(engine: BuiltinEngine) -> None:
        sessions = [
            ["我住在上海，是一名护士。", "OK.", "我的狗叫小黑。", "OK.", "请记住我对花生过敏。", "OK."],
            ["我上个月搬到了北京。", "OK.", "比起咖啡我更喜欢茶。", "OK."],
        ]
        for number, turns in enumerate(sessions, 1):
            at = f"2025-0{number}-01T00:00:00Z"
            messages = [structs.replace(one, timestamp=at) for one in said(*turns)]
            await engine.ingest(session_record(messages, session=f"s{number}", key=f"k{number}"))
        (found, *_) = await engine.search(U1, "我住在哪里？", 3)
        assert found.text == "我住在上海，是一名护士。"

    run(test)


def test_names_before_a_colon_and_names_used_as_addresses_are_authors() -> None:
    async def test(engine: BuiltinEngine) -> None:
        transcript = [
            "Joanna: I painted a boat.",
            "Nate: I painted a train.",
            "Joanna: See you!",
            "Nate: Bye.",
        ]
        messages = [Message.user(text, id=f"m{n}") for n, text in enumerate(transcript)]
        await engine.ingest(session_record(messages))
        assert (await engine.search(U1, "What did Nate paint?", 1))[0].message == "m1"
        assert (await engine.search(U1, "What did Joanna paint?", 1))[0].message == "m0"
        talk = said(
            "I baked bread.",
            "Thanks, Anna! I baked a cake.",
            "Hey Bo!",
            "Hi Anna!",
            "Wow Bo!",
            "Oh Anna, no.",
            "Bye Bo!",
        )
        await engine.ingest(session_record(talk, user="u2", key="k2"))
        assert [hit.role for hit in await engine.search(U2, "What did Anna bake?", 1)] == ["user"]
        assert [hit.role for hit in await engine.search(U2, "What did Bo bake?", 1)] == ["assistant"]

    run(test)


def test_what_the_best_turn_speaks_of_tells_which_others_belong_to_the_matter() -> None:
    texts = [
        "the boat, our boat, needs paint, varnish and brushes",
        "the boat is far away",
        "the boat waits because paint, varnish and brushes are late again this month",
    ]

    async def test(engine: BuiltinEngine) -> None:
        for number, text in enumerate(texts):
            await engine.ingest(session_record(said(text), session=f"s{number}", key=f"k{number}"))
        assert [hit.session for hit in await engine.search(U1, "boat", 3)] == ["s0", "s2", "s1"]

    run(test)


def test_notes_are_found_listed_and_dropped() -> None:
    async def test(engine: BuiltinEngine) -> None:
        fact = await engine.remember(U1, "prefers  window\nseats")
        assert (fact.kind, fact.text) == ("note", "prefers window seats")
        assert (await engine.search(U1, "which seat?", 1))[0].text == "prefers window seats"
        assert await engine.remember(U1, "prefers window seats") != fact  # said again: a source more
        assert len((await engine.facts(U1))[0].sources) == 2
        assert await engine.drop(U2, fact.id) is False
        assert await engine.drop(U1, fact.id) is True
        assert (await engine.facts(U1), await engine.search(U1, "which seat?", 1)) == ([], [])
        for text in ("", " \n", "x" * 2_001):
            with pytest.raises(InputError, match="a note has 1 to"):
                await engine.remember(U1, text)
        with pytest.raises(InputError, match="looks like a password"):
            await engine.remember(U1, "the password of the house is hunter2")
        assert await engine.turns(U1, limit=9) == []

    run(test)


def test_a_note_of_a_session_is_forgotten_with_it_and_counts_as_no_message() -> None:
    async def test(engine: BuiltinEngine) -> None:
        await engine.remember(U1, "likes rain", session="s1")
        assert await engine.forget(Address("default", "s1")) == 0
        assert await engine.facts(U1) == []

    run(test)


def test_what_is_exported_can_be_imported_for_another_user() -> None:
    async def test(engine: BuiltinEngine) -> None:
        await engine.ingest(session_record(said("I live in Porto.", "Nice."), summary="They spoke of Porto."))
        await engine.ingest(session_record(said("I live in Faro."), session="s2", key="k2"))
        await engine.remember(U1, "likes rain")
        lines = [line async for line in engine.export(U1)]
        for _ in range(2):  # importing twice adds nothing
            assert await engine.restore(U2, lines) == 5
        assert [line async for line in engine.export(U2)][1:] == lines[1:]
        assert await engine.facts(U2) == await engine.facts(U1)
        found = [hit.message for hit in await engine.search(U1, "Porto", 9)]
        assert [hit.message for hit in await engine.search(U2, "Porto", 9)] == found
        assert [line async for line in engine.export(User("default", "nobody"))] == []
        fact = lines[-1].replace(b'"sources":[', b'"sources":[],"x":[')
        for bad, error in [
            ([*lines, fact], InvalidPayload),
            ([*lines, b"{"], InvalidPayload),
            ([b'{"kind":"turn"}\n'], InvalidPayload),
            ([b"[]"], InvalidPayload),
            ([lines[0], b"{"], InvalidPayload),
            ([lines[1]], InvalidPayload),
            ([lines[0].replace(b'"version":1', b'"version":2')], NewerFormat),
        ]:
            with pytest.raises(error):
                await engine.restore(User("default", "u3"), bad)
        assert [user.id for user, _, _ in await engine.users("default")] == ["u1", "u2"]

    run(test)


def test_facts_of_an_export_keep_their_sources_though_their_turns_are_gone() -> None:
    async def test(engine: BuiltinEngine) -> None:
        await engine.ingest(session_record(said("I live in Porto.")))
        lines = [line async for line in engine.export(U1)]
        await engine.restore(U2, [line for line in lines if b'"kind":"turn"' not in line])
        await engine.ingest(session_record(said("I live in Porto."), user="u2", session="s2", key="k2"))
        await engine.restore(U2, lines)
        (fact,) = await engine.facts(U2)
        assert set(fact.sources) == {Source("s1", "m1"), Source("s2", "m1")}

    run(test)


def test_a_summary_is_found_and_belongs_to_its_session() -> None:
    async def test(engine: BuiltinEngine) -> None:
        await engine.archive(evicted(said("one", "two")), "They spoke of zeppelins.")
        (hit,) = [one for one in await engine.search(U1, "zeppelins", 9) if one.role == "summary"]
        assert (hit.session, hit.text) == ("s1", "They spoke of zeppelins.")
        assert await engine.forget(Address("default", "s1")) == 2

    run(test)


def test_a_model_adds_facts_and_one_that_fails_leaves_the_delivery_to_be_repeated() -> None:
    fact = {
        "message": 1,
        "kind": "fact",
        "slot": "",
        "value": "owns a boat",
        "text": "Owns a boat.",
        "denies": False,
    }
    reply = json.dumps({"facts": [fact]})
    model = ScriptedModel(ConnectionError("down"), reply)

    async def test(engine: BuiltinEngine) -> None:
        record = session_record(said("The boat of mine is called Una."))
        with pytest.raises(ConnectionError):
            await engine.ingest(record)
        await engine.ingest(record)
        await engine.ingest(record)
        assert model.left == 0
        assert [fact.text for fact in await engine.facts(U1)] == ["Owns a boat."]
        assert len(await engine.turns(U1, limit=9)) == 1

    run(test, extractor=ModelExtractor(model))


def test_facts_that_are_found_late_and_in_any_order_lead_to_their_turns() -> None:
    def fact(message: int, city: str) -> dict[str, Any]:
        common = {"message": message, "kind": "home", "text": city, "denies": False}
        return common | {"slot": city, "value": city}

    found = [fact(number, f"Place{number}") for number in (5, 1, 9, 3)]
    model = ScriptedModel(json.dumps({"facts": found}), json.dumps({"facts": []}))

    async def test(engine: BuiltinEngine) -> None:
        await engine.ingest(session_record(said(*(f"Place{n + 1} it is." for n in range(9)))))
        await engine.ingest(session_record(said("Some town or other."), session="s2", key="k2"))
        hits = [hit.message for hit in await engine.search(U1, "Which town?", 9) if hit.session == "s1"]
        assert set(hits) >= {"m1", "m3", "m5", "m9"}

    run(test, extractor=ModelExtractor(model))


class Letters:
    """An embedder that knows letters, and fails when it is told to."""

    name = "letters"

    def __init__(self) -> None:
        self.down = False
        self.closed = False

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self.down:
            raise ConnectionError("the embedder is down")
        return [[text.lower().count(letter) + 0.1 for letter in "aeioutrn"] for text in texts]

    async def close(self) -> None:
        self.closed = True


def test_an_embedder_finds_by_meaning_and_one_that_fails_costs_only_that() -> None:
    pytest.importorskip("numpy")
    letters = Letters()

    async def test(engine: BuiltinEngine) -> None:
        await engine.ingest(session_record(said("aaaa aaa", "oooo oo")))
        assert [hit.message for hit in await engine.search(U1, "aaaaa", 2)] == ["m1", "m2"]
        letters.down = True
        await engine.ingest(session_record(said("uuuu uu"), session="s2", key="k2"))
        assert [hit.message for hit in await engine.search(U1, "uuuu", 1)] == ["m1"]  # by its words
        assert await engine.search(U1, "uuuuu", 1) == []
        letters.down = False
        await engine.ingest(session_record(said("eeee"), session="s3", key="k3"))
        (hit,) = await engine.search(U1, "uuuuu", 1)  # its vector was made with the next delivery
        assert hit.session == "s2"
        await engine.forget(U1)
        assert await engine.search(U1, "uuuuu", 1) == []

    run(test, embedder=letters)
    assert letters.closed


@pytest.mark.req("G9")
def test_a_dropped_note_leaves_no_vector_in_memory() -> None:
    pytest.importorskip("numpy")

    async def test(engine: BuiltinEngine) -> None:
        fact = await engine.remember(U1, "prefers window seats")
        assert await engine.search(U1, "window", 1) != []
        assert engine._meaning is not None
        assert engine._meaning._cache.get(1) is not None
        assert await engine.drop(U1, fact.id)
        assert engine._meaning._cache.get(1) is None

    run(test, embedder=Letters())


def test_a_turn_that_says_several_things_is_found_by_one_of_them() -> None:
    pytest.importorskip("numpy")

    async def test(engine: BuiltinEngine) -> None:
        turns = [
            "oooooooooooooooooooo. aaaaaaaaaaaaaaaaaaaaaa. tttttttttttttttttttt.",
            "aaaaa ooooo ttttt, all at once",
        ]
        for number, text in enumerate(turns):
            await engine.ingest(session_record(said(text), session=f"s{number}", key=f"k{number}"))
        assert [hit.session for hit in await engine.search(U1, "aaaa", 2)] == ["s0", "s1"]

    run(test, embedder=Letters())


class Meanwhile(Letters):
    """An embedder during whose work something else happens."""

    def __init__(self) -> None:
        super().__init__()
        self.work: Callable[[], Awaitable[None]] | None = None

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self.work is not None:
            work, self.work = self.work, None
            await work()
        return await super().embed(texts)


@pytest.mark.req("F6")
def test_a_search_that_outlives_its_user_finds_nothing_of_the_next(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    slow = Meanwhile()

    async def test(engine: BuiltinEngine) -> None:
        await engine.ingest(session_record(said("green tea", "black tea"), since=1))

        async def replace() -> None:
            await engine.forget(U1)
            await engine.ingest(
                session_record(said("my secret tea", "tea"), user="u2", session="s2", key="k2")
            )

        slow.work = replace
        assert await engine.search(U1, "tea", 9) == []
        assert len(await engine.search(U2, "tea", 9)) == 2

    run(test, str(tmp_path / "memory.db"), embedder=slow)


def test_facts_are_read_while_another_process_writes(tmp_path: Path) -> None:
    path = str(tmp_path / "memory.db")

    async def test(engine: BuiltinEngine) -> None:
        await engine.ingest(session_record(said("I live in Porto.")))
        other = apsw.Connection(path)
        other.execute("BEGIN IMMEDIATE")
        assert (await engine.profile(U1)).startswith("Home: Porto")
        other.close(True)

    run(test, path)


def test_the_file_is_private_its_own_and_named_for_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"

    async def test(engine: BuiltinEngine) -> None:
        assert engine.files == (path,)
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600

    run(test, str(path))
    foreign = tmp_path / "foreign.db"
    apsw.Connection(str(foreign)).execute("CREATE TABLE t (x)")
    newer = tmp_path / "newer.db"
    run(nothing, str(newer))
    apsw.Connection(str(newer)).execute("PRAGMA user_version = 9")
    for place, error, match in [
        (foreign, StoreDamaged, "is a database of another program"),
        (newer, NewerFormat, "has schema 9"),
        (tmp_path / "no" / "m.db", InputError, "does not exist"),
    ]:
        with pytest.raises(error, match=match):
            run(nothing, str(place))


async def nothing(_engine: BuiltinEngine) -> None:
    """Do nothing."""


def test_addresses_that_cannot_be_used_are_refused() -> None:
    for address, error in [
        ("redis://host", InputError),
        ("memory:", InputError),
        ("?max=many", InputError),
        ("?max=0", InputError),
        (f"?max={'9' * 5_000}", InputError),
        ("?color=red", InputError),
        ("?embedder=parrot", UnknownName),
    ]:
        with pytest.raises(error):
            run(nothing, address)

    async def closed() -> None:
        engine = await connect("?max=5")
        await engine.close()
        await engine.close()
        with pytest.raises(StoreError, match="is closed"):
            await engine.search(U1, "tea", 1)

    asyncio.run(closed())


@pytest.mark.req("G9")
def test_after_forgetting_no_byte_is_left_in_any_file(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    clock = FixedClock()

    def left(*words: str) -> list[str]:
        bytes_ = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        return [word for word in words if word.encode() in bytes_]

    async def test(engine: BuiltinEngine, which: str) -> None:
        secret = ["zanzibar", "xylophon", "quokka", "Kilimanjaro", "s-hidden", "m-hidden", "u-hidden"]
        messages = [
            Message.user(f"I live in Kilimanjaro now. A quokka {n} zanzibar xylophone.", id=f"m-hidden{n}")
            for n in range(300)
        ]
        hidden = User("default", "u-hidden")
        record = session_record(
            messages, user="u-hidden", session="s-hidden", key="s-hidden:1", summary="quokka", since=1
        )
        await engine.ingest(record)
        await engine.ingest(session_record(said("tea is here"), since=1))
        ((_, vector),) = await engine._database.rows("vectors_of", owner=1, embedder="letters", numbers=[0])
        assert left(*secret) == secret
        assert any(vector in path.read_bytes() for path in tmp_path.iterdir())
        await engine.forget(hidden if which == "user" else Address("default", "s-hidden"))
        gone = secret if which == "user" else secret[:-1]
        assert left(*gone) == []
        assert not any(vector in path.read_bytes() for path in tmp_path.iterdir())
        assert [hit.text for hit in await engine.search(U1, "tea", 3)] == ["tea is here"]
        await engine.ingest(record)
        assert left(*gone) == []

    for which in ("user", "session"):
        run(partial(test, which=which), str(tmp_path / "memory.db"), clock=clock, embedder=Letters())
        for path in tmp_path.iterdir():
            path.unlink()


@pytest.mark.req("G9")
def test_bytes_that_a_reader_protects_are_reported_and_overwritten_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite, "SCRUB_SECONDS", 0.2)
    path = tmp_path / "memory.db"

    def is_left() -> bool:
        return any(b"zanzibar" in file.read_bytes() for file in tmp_path.iterdir())

    async def test(engine: BuiltinEngine) -> None:
        await engine.ingest(session_record(said("zanzibar")))
        reader = apsw.Connection(str(path))
        reader.execute("BEGIN; SELECT count(*) FROM document").fetchall()
        assert await engine.forget(U1) == 1
        assert is_left()
        assert f"their bytes may be left in {path} and its WAL" in caplog.text
        assert await engine.scrub() is False
        await engine.ingest(session_record(said("tea"), session="s2", key="k2", since=NEVER))
        reader.close(True)
        caplog.clear()
        assert await engine.scrub() is True
        assert not is_left()
        assert caplog.text == ""
        assert [turn.text for turn in await engine.turns(U1, limit=9)] == ["tea"]

    run(test, str(path))


def test_a_session_of_many_messages_is_written_in_parts() -> None:
    async def test(engine: BuiltinEngine) -> None:
        many = said(*(f"word{n} tea" for n in range(700)))
        await engine.ingest(session_record(many))
        assert len(await engine.turns(U1, limit=999)) == 700
        assert (await engine.search(U1, "word650", 1))[0].message == "m651"

    run(test)
