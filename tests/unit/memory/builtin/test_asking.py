from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate.memory.builtin.asking import MOST_QUESTIONS, questions
from turnstate.memory.builtin.courtesies import has_content


def test_the_sentences_that_ask_are_found_among_others() -> None:
    message = (
        "The bus was late again. What did Sam eat for lunch? It rained, of course. And where did we meet?"
    )
    assert questions(message) == ["What did Sam eat for lunch?", "And where did we meet?"]


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        ("昨日は雨でした。妻の誕生日はいつですか？", "妻の誕生日はいつですか？"),
        ("今天好累。我妹妹的电话是多少？谢谢！", "我妹妹的电话是多少？"),
        ("I bought bread. Tell me the name of my dentist. Thanks!", "Tell me the name of my dentist."),
        ("パンを買いました。歯医者の名前を教えてください。", "歯医者の名前を教えてください。"),
        ("We went to the lake. Book the same hotel in Oslo.", "Book the same hotel in Oslo."),
        ("Who wrote to Dr. Seuss and J. K. Rowling?", "Who wrote to Dr. Seuss and J. K. Rowling?"),
    ],
    ids=["Japanese", "Chinese", "request", "Japanese request", "neither", "abbreviations"],
)  # fmt: skip
def test_one_sentence_is_asked(message: str, asked: str) -> None:
    assert questions(message) == [asked]


def test_a_question_that_says_nothing_alone_is_asked_with_the_sentence_before() -> None:
    assert questions("I moved to Porto. When was that?") == ["I moved to Porto. When was that?"]


def test_of_many_questions_the_last_are_asked() -> None:
    many = [f"What is thing number {n}?" for n in range(9)]
    assert questions(" ".join(many)) == many[-MOST_QUESTIONS:]


@given(st.text(max_size=300))
def test_any_text_has_a_bounded_number_of_questions_all_from_it(text: str) -> None:
    found = questions(text)
    assert len(found) <= MOST_QUESTIONS
    assert all(word in text for question in found for word in question.split())


@pytest.mark.parametrize(
    "message",
    ["ok, thanks!", "Yes, please go on.", "Sounds good to me", "How are you?", "👍", "", "...",
     "承知しました。", "ありがとうございます、助かりました。", "はい、お願いします。", "大丈夫ですか？",
     "好的，谢谢！", "没问题，就这样吧。", "嗯嗯", "你好吗？"],
)  # fmt: skip
def test_courtesies_have_no_content(message: str) -> None:
    assert not has_content(message)
    assert questions(message) == []


@pytest.mark.parametrize(
    "message",
    ["boat", "What did I agree to?", "Thanks for the tickets to Oslo!", "I see a lighthouse",
     "猫", "はい、金曜日です。", "私の仕事は？", "好的，周五见医生。", "我的狗", "银行"],
)  # fmt: skip
def test_everything_else_has_content(message: str) -> None:
    assert has_content(message)
    assert questions(message) == [message]
