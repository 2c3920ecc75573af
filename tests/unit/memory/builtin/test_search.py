"""Searches in small memories: what is asked, what is left out, and what scores and filters mean."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from turnstate import Message
from turnstate.errors import InputError
from turnstate.memory import Evicted, Filter, Listed, Recollection, SessionRecord, User
from turnstate.memory.builtin import connect
from turnstate.memory.port import FILTERED_FROM, search
from turnstate.stores.values import Address

ANN = User("t", "ann")
PREAMBLE = "The kettle took forever and the toast was burned. My umbrella was at home next to the door. " * 5


def found(
    texts: Sequence[str], question: str, k: int = 9, *, day: str = "2025-06-15", **given: Any
) -> list[Recollection]:
    """Return what a search finds in a memory of these texts of the user, each with an id of its number."""

    async def test() -> list[Recollection]:
        engine = await connect("", clock=lambda: 1_750_000_000_000)  # June 15, 2025
        for number, text in enumerate(texts):
            said = Message.user(text, id=str(number), timestamp=f"{day}T12:00:00Z")
            await engine.ingest(record([said], f"s{number}"))
        try:
            return await engine.search(ANN, question, k, where=Filter(**given))
        finally:
            await engine.close()

    return asyncio.run(test())


def record(messages: list[Message], session: str = "s") -> SessionRecord:
    return SessionRecord(
        key=session,
        tenant="t",
        session=session,
        user="ann",
        epoch=1,
        messages=Listed(messages),
        since=1,
        reason="end",
        started=1,
        ended=2,
        summary="",
    )


def texts(hits: list[Recollection]) -> list[str]:
    return [hit.text for hit in hits]


LIFE = [
    "My dentist is Dr. Costa.",
    "The kettle is new.",
    "I left the umbrella on the train.",
    "We eat toast on Sundays.",
]


def test_a_long_preamble_does_not_hide_the_question() -> None:
    alone = found(LIFE, "Who is my dentist?")
    assert texts(alone)[0] == LIFE[0]
    assert found(LIFE, f"{PREAMBLE}Who is my dentist?") == alone


def test_each_question_of_a_message_is_answered() -> None:
    assert set(texts(found(LIFE, "Who is my dentist? And where is my umbrella?", 2))) == {LIFE[0], LIFE[2]}


def test_nothing_is_found_for_a_message_without_content() -> None:
    assert found(["ok, thanks!", *LIFE], "ok, thanks!") == []


def test_turns_without_content_and_repeated_texts_take_no_places() -> None:
    said = ["Our boat is called Merle.", "ok, great!", "Our boat is called Merle.", "A red boat."]
    hits = texts(found(said, "What is our boat called?"))
    assert sorted(hits) == ["A red boat.", "Our boat is called Merle."]


def test_a_word_that_occurs_more_often_than_there_are_turns_is_found() -> None:
    assert texts(found(["row row row your boat, gently down the stream", "row on"], "Whose boat?"))[:1] == [
        "row row row your boat, gently down the stream"
    ]


def test_a_score_is_between_0_and_1_and_higher_the_more_of_the_question_is_found() -> None:
    (all_words, *_), (half, *_) = (found(LIFE, q) for q in ("dentist Costa", "dentist xylophone"))
    assert 0 < half.score < all_words.score < 1
    assert texts(found(LIFE, "dentist xylophone", min_score=(half.score + all_words.score) / 2)) == []


@pytest.mark.parametrize(
    "question", ["What happened yesterday?", "What did I do on June 14?", "昨日は何をしましたか。"]
)
def test_a_date_alone_leads_to_the_turns_of_that_day(question: str) -> None:
    async def test() -> list[str]:
        engine = await connect("", clock=lambda: 1_750_000_000_000)
        for day in range(1, 29):
            said = Message.user(f"Item {day} is done.", id=str(day), timestamp=f"2025-06-{day:02}T12:00:00Z")
            await engine.ingest(record([said], f"s{day}"))
        hits = await engine.search(ANN, question, 1)
        await engine.close()
        return texts(hits)

    assert asyncio.run(test()) == ["Item 14 is done."]


def test_a_turn_is_found_by_the_day_that_it_speaks_of() -> None:
    said = ["Yesterday the roof was repaired.", "Nothing new here."]
    assert texts(found(said, "What was done on June 14?", day="2025-06-15"))[:1] == said[:1]


def test_related_words_are_found_in_japanese_and_chinese() -> None:
    assert texts(found(["先週ギターを買いました。", "電車が遅れました。"], "どんな楽器を持っていますか。"))[
        :1
    ] == ["先週ギターを買いました。"]
    assert texts(found(["我家养了一只猫咪。", "火车晚点了。"], "我有什么宠物？"))[:1] == [
        "我家养了一只猫咪。"
    ]


class Plain:
    """An engine that knows no filters."""

    def __init__(self, hits: list[Recollection]) -> None:
        self.hits, self.asked = hits, 0

    async def search(self, user: User, query: str, k: int) -> list[Recollection]:
        self.asked = k
        return self.hits[:k]

    async def archive(self, evicted: Evicted, summary: str) -> None: ...
    async def ingest(self, record: SessionRecord) -> None: ...
    async def profile(self, user: User) -> str:
        return ""

    async def forget(self, whose: User | Address) -> int:
        return 0

    async def close(self) -> None: ...


def test_results_of_an_engine_without_filters_are_filtered() -> None:
    hits = [
        Recollection(
            text=str(n), session=f"s{n % 2}", message=str(n), timestamp=f"2025-06-{n + 10}", score=n / 10
        )
        for n in range(9)
    ]
    engine = Plain(hits)

    def ids(k: int = 9, **given: Any) -> list[str]:
        return [hit.message for hit in asyncio.run(search(engine, ANN, "q", k, Filter(**given)))]

    assert ids(2, session="s1") == ["1", "3"]
    assert engine.asked == 2 * FILTERED_FROM
    assert ids(since="2025-06-16", until="2025-06-18") == ["6", "7"]
    assert ids(min_score=0.7) == ["7", "8"]
    assert ids(roles=("assistant",)) == []
    assert len(ids(3)) == 3 == engine.asked


@pytest.mark.parametrize(
    "bad", [{"since": "soon"}, {"until": 3}, {"min_score": 2}, {"min_score": "x"}, {"roles": "user"}], ids=str
)
def test_a_filter_of_wrong_values_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Filter(**bad)


class LastFirst:
    """A reranker that prefers long texts, or fails."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.asked, self.is_closed = fails, list[str](), False

    async def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        self.asked.append(question)
        if self.fails:
            raise ConnectionError("no route")
        return [len(text) / 1_000 for text in texts]

    async def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("fails", [False, True], ids=["it answers", "it fails"])
def test_a_reranker_takes_a_second_look_and_may_fail(fails: bool) -> None:
    async def test(reranker: LastFirst | None) -> list[Recollection]:
        engine = await connect("", reranker=reranker)
        said = [
            Message.user(f"Our boat is red{' and old' * n}.", id=str(n), timestamp="2025-06-15T12:00:00Z")
            for n in range(4)
        ]
        await engine.ingest(record(said))
        hits = await engine.search(ANN, "It rains. What color is our boat?", 2)
        await engine.close()
        return hits

    reranker = LastFirst(fails=fails)
    hits, plain = asyncio.run(test(reranker)), asyncio.run(test(None))
    assert reranker.asked == ["What color is our boat?"]
    assert reranker.is_closed
    assert hits == plain if fails else [hit.message for hit in hits] == ["3", "2"]
    assert fails or [hit.score for hit in hits] == [len(hit.text) / 1_000 for hit in hits]
