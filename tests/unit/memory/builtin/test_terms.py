from __future__ import annotations

from turnstate.memory.builtin.terms import MAX_TEXT, terms


def test_words_become_stems_and_common_words_are_left_out() -> None:
    assert terms("Where did we move? We moved twice, moving is a pain.") == [
        "move",
        "move",
        "twice",
        "move",
        "pain",
    ]
    assert terms("Café CAFÉ cafe") == ["cafe", "cafe", "cafe"]
    assert terms("") == terms("  \n") == terms("the of and") == []


def test_a_word_is_found_by_its_other_forms_in_japanese_and_chinese() -> None:
    for text, question in [
        ("先月大阪に引っ越しました", "いつ引っ越したの"),
        ("猫を飼っています", "猫の名前は"),
        ("我养了一只猫", "我的猫叫什么"),
        ("我上个月搬到了上海", "什么时候搬的"),
    ]:
        assert set(terms(text)) & set(terms(question)), (text, question)


def test_grammar_alone_is_nothing_to_find() -> None:
    assert terms("ですます") == terms("のですか") == terms("了吗") == []


def test_long_texts_and_long_words_are_bounded() -> None:
    assert len(terms("word " * MAX_TEXT)) <= MAX_TEXT // 5 + 1
    assert all(len(term) <= 40 for term in terms("x" * 500 + " " + "ﬁ" * 300))
