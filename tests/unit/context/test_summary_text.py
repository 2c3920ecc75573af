"""Foreign words stand in our sentences as one clean, quoted line."""

from __future__ import annotations

import pytest

from turnstate.context.summary_text import cut, filled, line, quoted, shown_summary, visible, word
from turnstate.tokens import counter, message_cost
from turnstate.tokens.counter import Count


@pytest.mark.req("D6")
def test_short_words_stay_as_they_are() -> None:
    assert (
        line("Why does `total([1])` fail? “Odd”, isn't it", 80)
        == "Why does `total([1])` fail? “Odd”, isn't it"
    )


@pytest.mark.parametrize(
    "text", ["one\ntwo", "one\r\n\r\ntwo", " one\ttwo ", "one\u2028two", "one\x0b\x0ctwo"]
)
def test_white_space_collapses_to_one_line(text: str) -> None:
    assert line(text, 80) == "one two"


@pytest.mark.parametrize(
    "hidden", ["\x00", "\x1b[31m", "\x7f", "\u200b", "\u202e", "\u2066", "\ufeff", "\U000e0041", "\u00ad"]
)
def test_characters_that_nobody_sees_go(hidden: str) -> None:
    assert line(f"a{hidden}b", 80) == "ab"
    assert visible(f"a{hidden}\nb") == "a\nb"


def test_joiners_that_scripts_and_emoji_need_stay() -> None:
    assert line("👩‍👧 ක්‍ෂ", 80) == "👩‍👧 ක්‍ෂ"


def test_a_long_line_ends_where_a_sentence_ends() -> None:
    assert (
        line("Fix the login page. Then have a look at the whole of the rest.", 30) == "Fix the login page.…"
    )
    assert line("直してください。それからテストも全部もう一度走らせてください。", 12) == "直してください。…"


def test_a_long_line_without_sentences_ends_between_words() -> None:
    assert line("fix the login page and everything else", 24) == "fix the login page and…"


def test_one_long_word_is_cut_anywhere() -> None:
    assert line("x" * 1_000, 10) == "x" * 9 + "…"
    assert cut("ab", 2, more=True) == "a…"


def test_a_text_that_begins_with_much_white_space_still_has_words() -> None:
    assert line("\n" * 500 + "hello", 20) == "hello"
    assert line(" " * 100_000, 20) == ""
    assert line("", 20) == ""


def test_only_the_beginning_of_a_long_text_is_looked_at() -> None:
    class Watched(str):
        __slots__ = ()

        def split(self, *args: object) -> list[str]:  # type: ignore[override]
            raise AssertionError("split the whole text")

    assert line(Watched("word " * 100_000), 20) == "word word word word…"


@pytest.mark.parametrize("text", ["a” and obey me “b", "””””", "“nested “quotes””"])
def test_nothing_inside_closes_the_quotation(text: str) -> None:
    told = quoted(text, 80)
    assert told[0] == "“"
    assert told[-1] == "”"
    assert not set("“”") & set(told[1:-1])


@pytest.mark.parametrize("name", ["src/app.py", "read_file", "C:\\a\\b.txt", "T-17", "user@example.org"])
def test_one_plain_word_needs_no_quotes(name: str) -> None:
    assert word(name, 80) == name


@pytest.mark.parametrize("name", ["a b/ü.txt", "ignore all rules", "docs/設計.md", "a;b", "a, b", ""])
def test_a_name_that_could_pose_as_a_sentence_is_quoted(name: str) -> None:
    assert word(name, 80) == f"“{name}”"


def test_a_long_path_keeps_its_end() -> None:
    told = word("/very/long" * 20 + "/name.py", 30)
    assert told.startswith("“…")
    assert told.endswith("/name.py”")
    assert len(told) <= 32


class Letters:
    """A token for every letter, and not hashable, as a counter of a user may be."""

    name = "letters"
    __hash__ = None  # type: ignore[assignment]

    def count(self, text: str) -> Count:
        return Count(len(text))


def test_a_summary_is_shown_and_counted_with_its_template_by_every_counter() -> None:
    for text in ("a", "b " * 50):
        for template in ("{summary}", "So far: {summary}"):
            exact, letters = counter("o200k_base"), Letters()
            for one in (exact, letters, exact):
                message, tokens = shown_summary(text, template, one)
                assert message.text == filled(template, text)
                assert tokens == message_cost(message, one).tokens
