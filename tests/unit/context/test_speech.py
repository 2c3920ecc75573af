"""What sentences say is judged by their words, in three languages."""

from __future__ import annotations

import pytest

from turnstate.context import speech


@pytest.mark.parametrize(
    "text",
    [
        "ok",
        "Thank you so much for your help! That's all I needed.",
        "Yes, please go ahead.",
        "Sounds good, thanks!",
        "ありがとうございます！",
        "はい、お願いします。",
        "承知しました。",
        "谢谢你！",
        "好的，请继续。",
        "  ",
        "👍",
    ],
)
def test_greetings_thanks_and_agreement_say_nothing(text: str) -> None:
    assert speech.says_nothing(text)
    assert speech.weight(text) == 0


@pytest.mark.parametrize(
    "text",
    [
        "Fix the login page.",
        "Yes, use the red one.",
        "夜間バッチを直してください。",
        "请检查配置文件。",
        "R2",
        "はい、東京です。",
    ],
)
def test_everything_else_says_something(text: str) -> None:
    assert not speech.says_nothing(text)
    assert speech.weight(text) > 0


@pytest.mark.parametrize(
    "sentence",
    [
        "It must not cost more than $300.",
        "Only touch files below src.",
        "I would rather leave before noon.",
        "Please do not rename the function.",
        "At most three retries.",
        "Don't change anything yet.",
        "The cheapest one, please.",
        "引数は変更しないでください。",
        "必ず今週中に送ってください。",
        "できれば窓側を希望します。",
        "不要修改公开的接口。",
        "最多只能写入三百行。",
        "我希望之前的设置保持不变。",
    ],
)
def test_what_limits_or_prefers_is_a_wish(sentence: str) -> None:
    assert speech.wishes(f"Hello there, I have a question. {sentence}")[-1] == sentence


@pytest.mark.parametrize(
    "sentence",
    [
        "I don't remember the number.",
        "Don't worry.",
        "The page shows an error.",
        "What is this?",
        "My user id is 17.",
        "夜間バッチが失敗しました。",
        "请检查配置文件。",
    ],
)
def test_what_only_states_or_asks_is_none(sentence: str) -> None:
    assert speech.wishes(sentence) == ()


def test_a_constraint_with_a_number_is_stronger_than_a_preference() -> None:
    ranked = ["It must not cost more than $300.", "I prefer an aisle seat.", "Is there one before noon?"]
    assert sorted(ranked, key=speech.wish_strength, reverse=True) == ranked


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("I found it. The total is $1,016. Would you like to go on?", "The total is $1,016."),
        ("We will retry three times. Let me know if you need anything else!", "We will retry three times."),
        ("Done:\n- **Flight 1:** at 10:00.\n- **Flight 2:** at 12:00.", None),
        ("**Reservation ID: R1**", None),
        ("Which one do you want?", None),
        (
            "三回まで再試行することに決めました。他にご質問はありますか？",
            "三回まで再試行することに決めました。",
        ),
        ("我决定最多重试三次。请告诉我还需要什么。", "我决定最多重试三次。"),
    ],
)
def test_an_answer_tells_its_last_number_or_decision(answer: str, told: str | None) -> None:
    assert speech.told(answer) == ((told,) if told else ())


def test_a_sentence_ends_at_its_mark_and_not_within_a_number() -> None:
    assert speech.sentences("Use Python 3.9. Not 3.8!\n保存する。次へ") == [
        "Use Python 3.9.",
        "Not 3.8!",
        "保存する。",
        "次へ",
    ]


def test_only_the_beginning_of_a_long_text_is_read() -> None:
    text = "word " * 100_000 + "You must stop."
    assert speech.wishes(text) == ()
