"""What users say of themselves becomes claims, in three languages; what they do not say does not."""

from __future__ import annotations

import asyncio

import pytest

from turnstate.memory.facts import Said
from turnstate.memory.rules import RuleExtractor, claims_in

pytestmark = pytest.mark.req("F4", "F5")

Found = tuple[str, str, str]

SAID: dict[str, list[Found]] = {
    # English
    "I love skateboarding.": [("preference", "", "skateboarding")],
    "My name is Anna Berg and I work at Siemens.": [
        ("name", "name", "Anna Berg"),
        ("work", "employer", "Siemens"),
    ],
    "Hi, I'm Tom.": [("name", "name", "Tom")],
    "Please call me Liz.": [("name", "name", "Liz")],
    "We finally moved to Porto in March, it's great.": [("home", "home", "Porto")],
    "I've just relocated to New York City for work.": [("home", "home", "New York City")],
    "I moved back to the Netherlands last year!": [("home", "home", "the Netherlands")],
    "I'm living in Kraków these days": [("home", "home", "Kraków")],
    "Actually, I live in Rio de Janeiro now.": [("home", "home", "Rio de Janeiro")],
    "I work as a nurse.": [("work", "job", "nurse")],
    "I'm a software engineer.": [("work", "job", "software engineer")],
    "my dog Rex loves it": [("relation", "name of dog", "Rex")],
    "I have a cat named Mia.": [("relation", "name of cat", "Mia")],
    "My birthday is on May 3.": [("date", "date of birthday", "May 3")],
    "My favorite color is dark green.": [("preference", "favorite color", "dark green")],
    "I really love hiking in the mountains and my wife hates it": [
        ("preference", "", "hiking in the mountains")
    ],
    "I'm allergic to peanuts.": [("preference", "", "allergic to peanuts")],
    "I take my tea without milk.": [("preference", "takes tea", "without milk")],
    "Please always answer in German.": [("preference", "", "always answer in German")],
    "We decided to use PostgreSQL for the backend.": [("decision", "", "use PostgreSQL for the backend")],
    "Remember that the staging server is called heron.": [("note", "", "the staging server is called heron")],
    "I need to renew my passport before June.": [("task", "", "renew my passport before June")],
    # Japanese
    "私の名前は田中花子です。": [("name", "name", "田中花子")],
    "先月大阪に引っ越しました。": [("home", "home", "大阪")],
    "3月に夫の転勤で仙台へ引っ越した。": [("home", "home", "仙台")],
    "今は福岡に住んでいます。": [("home", "home", "福岡")],
    "東京電力で働いています。": [("work", "employer", "東京電力")],
    "犬はポチといいます。": [("relation", "name of 犬", "ポチ")],
    "好きな色は青です。": [("preference", "favorite 色", "青")],
    "コーヒーが大好きです": [("preference", "", "コーヒー")],
    "卵アレルギーがあります。": [("preference", "", "アレルギー: 卵")],
    "来週から週二回走ることにしました。": [("decision", "", "来週から週二回走る")],
    "誕生日は5月3日です。": [("date", "date of 誕生日", "5月3日")],
    # Chinese
    "我叫王小明。": [("name", "name", "王小明")],
    "我上个月搬到了上海。": [("home", "home", "上海")],
    "我们三月份搬去成都了，很喜欢那里。": [("home", "home", "成都")],
    "我住在北京，已经三年了。": [("home", "home", "北京")],
    "我在腾讯工作。": [("work", "employer", "腾讯")],
    "我是一名老师。": [("work", "job", "老师")],
    "我是护士。": [("work", "job", "护士")],
    "我叫小明，是一名记者。": [("name", "name", "小明"), ("work", "job", "记者")],
    "我住在上海，是一名护士。": [("home", "home", "上海"), ("work", "job", "护士")],
    "我听说他来了，是一名老师。": [],
    "我的狗叫旺财。": [("relation", "name of 狗", "旺财")],
    "我最喜欢的颜色是蓝色。": [("preference", "favorite 颜色", "蓝色")],
    "我对花生过敏。": [("preference", "", "过敏: 花生")],
    "我们决定用PostgreSQL。": [("decision", "", "用PostgreSQL")],
    "记住，测试服务器叫苍鹭。": [("note", "", "测试服务器叫苍鹭")],
    "我的生日是5月3日。": [("date", "date of 生日", "5月3日")],
}

NOT_SAID = [
    "Do I live in Portland?",
    "I was moving the couch.",
    "I moved on.",
    "I live in a small town.",
    "I love it",
    "Moving to Kyoto next month would be nice.",
    "The server moved to Frankfurt.",
    "大阪に引っ越したいです。",
    "どこに住んでいますか？",
    "你住在哪里？",
    "x" * 500 + " I live in Porto.",
]

SECRETS = [
    "My password is hunter2, remember that.",
    "Remember that my key sk-abcdefgh12345678 works.",
    "Remember that my card is 4111 1111 1111 1111.",
    "Remember that the token is ghp_0123456789abcdefghij0123456789abcdef.",
    "Remember postgresql://me:hunter2@host/db as the address.",
    "パスワードはhunter2です、覚えておいてください。",
    "我的密码是123456，记住。",
]


def said(text: str, role: str = "user", author: str = "user") -> Said:
    return Said("m1", role, author, "2025-06-15T12:00:00Z", text)


def found(text: str) -> list[Found]:
    return [(claim.kind, claim.slot, claim.value) for claim in claims_in(said(text)) if not claim.denies]


def test_what_is_said_is_found() -> None:
    assert {text: found(text) for text in SAID} == SAID


def test_what_is_not_said_is_not_found() -> None:
    assert {text: found(text) for text in NOT_SAID} == {text: [] for text in NOT_SAID}


def test_nothing_that_looks_like_a_secret_becomes_a_fact() -> None:
    assert {text: claims_in(said(text)) for text in SECRETS} == {text: [] for text in SECRETS}


def test_that_something_is_no_longer_so_is_found() -> None:
    for text, value in [
        ("I don't live in Berlin anymore.", "Berlin"),
        ("I no longer live in Berlin.", "Berlin"),
        ("I'm not living in Berlin.", "Berlin"),
        ("もう大阪には住んでいません。", "大阪"),
        ("我已经不住在北京了。", "北京"),
    ]:
        (claim,) = claims_in(said(text))
        assert (claim.denies, claim.kind, claim.value) == (True, "home", value)
    assert claims_in(said("I no longer livin Berlin.")) == []


def test_only_the_user_is_believed_and_each_claim_names_its_message() -> None:
    talk = [
        said("I live in Porto."),
        said("I live in Lisbon.", role="assistant", author="assistant"),
        said("I live in Faro.", role="tool", author="tool"),
    ]
    (claim,) = asyncio.run(RuleExtractor().claims(talk))
    assert (claim.value, claim.message, claim.text) == ("Porto", "m1", "I live in Porto.")


def test_a_named_author_is_the_subject_of_the_claim() -> None:
    (claim,) = claims_in(said("I live in Porto.", author="Joanna"))
    assert (claim.slot, claim.text) == ("Joanna: home", "Joanna: I live in Porto.")
