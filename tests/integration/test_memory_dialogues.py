"""Forty users say in passing where they moved; it is known later, with its source, until they move again.

Each dialogue has five sessions: the first move among other things, three sessions about anything else, and
a second move. Before the second, "which city?" finds the first city in profile and recall; after it, the
second, and the first is kept with the time of its end. English, Japanese and Chinese.
"""

# ruff: noqa: E501 - a dialogue is a line

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from turnstate import Message
from turnstate.memory import Listed, SessionRecord, User
from turnstate.memory.builtin import BuiltinEngine, connect
from turnstate.memory.facts import Fact

pytestmark = pytest.mark.req("F4", "F5", "F6")


class Move(NamedTuple):
    city: str
    words: str


class Dialogue(NamedTuple):
    first: Move
    second: Move
    question: str
    other: tuple[str, ...]


ENGLISH_OTHER = (
    "Can you help me plan a birthday dinner for eight people?",
    "My bike got a flat tire again, third time this month.",
    "What is a good way to learn the names of stars?",
    "The meeting on Tuesday was long but useful.",
    "Could you shorten this paragraph about trains?",
    "I finished the book about whales and it was wonderful.",
)
JAPANESE_OTHER = (
    "八人分の夕食の献立を考えてくれますか。",
    "自転車がまたパンクしました。",
    "星の名前を覚える良い方法はありますか。",
    "火曜日の会議は長かったけれど役に立ちました。",
    "この文章を短くしてください。",
    "クジラの本を読み終えました。",
)
CHINESE_OTHER = (
    "你能帮我计划八个人的晚餐吗？",
    "我的自行车又爆胎了。",
    "有什么好办法记住星星的名字？",
    "星期二的会议很长，但是很有用。",
    "请把这段话缩短一点。",
    "我读完了那本关于鲸鱼的书。",
)

ENGLISH = [
    (("Porto", "By the way, we finally moved to Porto in March, so mornings are quieter."), ("Lisbon", "We've moved to Lisbon since, last week actually.")),
    (("Oslo", "Sorry for the silence, I relocated to Oslo two weeks ago."), ("Bergen", "I just moved to Bergen for the new job.")),
    (("Denver", "I live in Denver now, since January, and the air is thin."), ("Boulder", "I moved to Boulder over the weekend.")),
    (("Kyoto", "Since the summer I've been living in Kyoto, it's lovely."), ("Osaka", "We moved to Osaka in the end.")),
    (("New York City", "I've just moved to New York City and everything is loud."), ("Boston", "Guess what, I've moved to Boston.")),
    (("Buenos Aires", "We moved to Buenos Aires in May with two suitcases."), ("Montevideo", "I live in Montevideo these days.")),
    (("Kraków", "I'm based in Kraków at the moment, since April."), ("Warsaw", "I relocated to Warsaw yesterday.")),
    (("Cape Town", "We settled in Cape Town last year after the long trip."), ("Durban", "We've recently moved to Durban.")),
    (("Nairobi", "I ended up in Nairobi after all, in February."), ("Mombasa", "I'm living in Mombasa now.")),
    (("the Hague", "In June we moved to the Hague, near the sea."), ("Utrecht", "We moved again, I live in Utrecht.")),
    (("San Diego", "I moved out to San Diego on the first of May."), ("Portland", "I moved up to Portland this month.")),
    (("Edinburgh", "My new flat is in Edinburgh, I got the keys in August."), ("Glasgow", "We moved over to Glasgow.")),
    (("Hanoi", "Hanoi is my home now, since last autumn."), ("Da Nang", "I have moved to Da Nang.")),
    (("Rio de Janeiro", "I moved back to Rio de Janeiro after ten years, in May."), ("Recife", "I then moved to Recife.")),
]  # fmt: skip
JAPANESE = [
    (("大阪", "そういえば、先月大阪に引っ越しました。"), ("京都", "実は先週、京都に引っ越しました。")),
    (
        ("仙台", "3月に夫の転勤で仙台へ引っ越したので、少し忙しいです。"),
        ("札幌", "今年また札幌に移りました。"),
    ),
    (("福岡", "今は福岡に住んでいます。海が近いです。"), ("熊本", "最近、熊本に引っ越しました。")),
    (("名古屋", "去年から名古屋に住んでいて、慣れてきました。"), ("岐阜", "岐阜へ引っ越しました。")),
    (("横浜", "五月に横浜へ引っ越しまして、駅が近くて便利です。"), ("鎌倉", "結局、鎌倉に引っ越しました。")),
    (("神戸", "仕事の都合で神戸に移住しました。"), ("姫路", "姫路に引っ越してきました。")),
    (
        ("広島", "春から広島で暮らす予定でしたが、もう広島に住んでいます。"),
        ("岡山", "岡山に引っ越したばかりです。"),
    ),
    (("金沢", "私は金沢に住んでいます。去年の秋からです。"), ("富山", "富山へ引越しました。")),
    (("ロンドン", "半年前にロンドンに引っ越しました。"), ("パリ", "今度はパリに引っ越しました。")),
    (("長野", "娘が生まれて長野に転居しました。"), ("松本", "今は松本に住んでいます。")),
    (("那覇", "昨年末に那覇へ引っ越し、毎日暖かいです。"), ("石垣", "石垣に移住しました。")),
    (("千葉", "千葉に引っ越して三か月になります。"), ("埼玉", "先日、埼玉に引っ越しました。")),
    (("奈良", "最近奈良に引っ越しました。鹿がいます。"), ("大津", "また大津に引っ越しました。")),
]
CHINESE = [
    (("上海", "对了，我上个月搬到了上海。"), ("杭州", "我上周又搬到了杭州。")),
    (("成都", "我们三月份搬去成都了，很喜欢那里。"), ("重庆", "我们后来搬到重庆了。")),
    (("北京", "我住在北京，已经三年了。"), ("天津", "我现在住在天津。")),
    (("广州", "因为工作，我们去年搬到广州。"), ("深圳", "我刚搬到深圳。")),
    (("西安", "我现在住在西安，从五月开始。"), ("兰州", "我已经搬去兰州了。")),
    (("南京", "今年春天我搬来南京，天气很好。"), ("苏州", "我们最近搬到了苏州。")),
    (("武汉", "我们搬家到武汉了，房子比以前大。"), ("长沙", "我上个月搬到长沙。")),
    (("昆明", "我定居在昆明，已经半年。"), ("大理", "我搬到了大理。")),
    (("厦门", "六月份我搬到厦门，离海很近。"), ("福州", "后来我搬去了福州。")),
    (("青岛", "我家现在住在青岛。"), ("济南", "我们上周搬到济南了。")),
    (("哈尔滨", "去年冬天我搬到了哈尔滨，很冷。"), ("长春", "我现在住在长春。")),
    (("伦敦", "我半年前搬到伦敦工作。"), ("巴黎", "我又搬到了巴黎。")),
    (("香港", "我们决定留下来，搬到香港住了。"), ("澳门", "我最近搬到澳门了。")),
]

DIALOGUES = [
    *(Dialogue(Move(*a), Move(*b), "Which city do I live in?", ENGLISH_OTHER) for a, b in ENGLISH),
    *(Dialogue(Move(*a), Move(*b), "私はどの街に住んでいますか？", JAPANESE_OTHER) for a, b in JAPANESE),
    *(Dialogue(Move(*a), Move(*b), "我住在哪个城市？", CHINESE_OTHER) for a, b in CHINESE),
]


def session(number: int, part: int, *texts: str) -> SessionRecord:
    """Return a session of a user, a month after the one before."""
    messages = list[Message]()
    for place, text in enumerate(texts):
        at = f"2025-0{part}-15T12:00:{place * 2:02}Z"
        messages.append(Message.user(text, id=f"u{number}-{part}-{place}", timestamp=at))
        messages.append(
            Message.assistant("Understood, thank you.", id=f"a{number}-{part}-{place}", timestamp=at)
        )
    return SessionRecord(
        key=f"{number}-{part}",
        tenant="t",
        session=f"s{number}-{part}",
        user=f"user {number}",
        epoch=1,
        messages=Listed(messages),
        since=1,
        reason="end",
        started=1,
        ended=2,
        summary="",
    )


async def home(engine: BuiltinEngine, user: User) -> dict[str, Fact]:
    return {fact.value: fact for fact in await engine.facts(user) if fact.kind == "home"}


async def check(engine: BuiltinEngine, number: int, dialogue: Dialogue) -> None:
    first, second, question, other = dialogue
    user = User("t", f"user {number}")
    await engine.ingest(session(number, 1, other[0], first.words, other[1]))
    for part in (2, 3, 4):
        await engine.ingest(session(number, part, other[part], other[part + 1]))
    facts = await home(engine, user)
    assert list(facts) == [first.city], first.words
    assert [source.message for source in facts[first.city].sources] == [f"u{number}-1-1"]
    assert f"Home: {first.city}" in await engine.profile(user)
    assert first.city in (await engine.search(user, question, 3))[0].text
    await engine.ingest(session(number, 5, other[2], second.words))
    facts = await home(engine, user)
    assert facts[first.city].ended == "2025-05-15T12:00:02Z", second.words
    assert (facts[second.city].ended, facts[second.city].said[:7]) == (None, "2025-05")
    profile = await engine.profile(user)
    assert f"Home: {second.city}" in profile
    assert f"Home: {first.city}" not in profile
    assert (await engine.search(user, question, 3))[0].message == f"u{number}-5-1", question


def test_there_are_forty_dialogues() -> None:
    assert len(DIALOGUES) == 40


def test_where_somebody_lives_is_known_and_superseded() -> None:
    async def test() -> None:
        engine = await connect("")
        failed = list[str]()
        for number, dialogue in enumerate(DIALOGUES):
            try:
                await check(engine, number, dialogue)
            except AssertionError as error:
                failed.append(f"{dialogue.first.words} / {dialogue.second.words}: {error}"[:300])
        await engine.close()
        assert failed == []

    asyncio.run(test())
