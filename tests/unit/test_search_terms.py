"""What a text is found by: words, names whole and in parts, pairs of characters; the line that shows it."""

from __future__ import annotations

import re
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnstate import codec
from turnstate.errors import InputError
from turnstate.message import Message, ToolCallRequest, ToolCallResult
from turnstate.part import ImagePart, TextPart
from turnstate.search_terms import LONGEST_TOKEN, SEARCHED_BYTES, entry_words, query, snippet, words, words_of
from turnstate.testing import conversations

pytestmark = pytest.mark.req("C9")

ALPHABETS = {
    "english": "the quick Brown FOX's 42 e-mails, “dashes” — and…🎉\n\t",
    "code": "get_userName HTTPServer2 __init__ src/a.py x=1;{}\"'\\",
    "european": "Straße ŉ İstanbul ﬁn naïve e\u0301 ΣΟΦΟΣ Ёлка ½ ™ ",
    "japanese": "東京特許許可局のカレー、ﾊﾝｶﾞｸ々〇か゚ 葛\U000e0100。",
    "chinese and korean": "北京大學。서울에서 𠮷 각\u1100\u1161",
    "indic and thai": "हिन्दी नमस्ते தமிழ் ภาษาไทย กัน ខ្មែរ မြန်မာ ",
    "awkward": "\x00\x1b_ \u200b\u200d\u00ad\ufeff\u202e\ufe0f\u0301\u0345\ufdfa\u3099\u0e31\ud800ÅŸ",
}
ANY_TEXT = st.one_of(
    st.text(st.sampled_from("".join(ALPHABETS.values())), max_size=60),
    st.text(max_size=60),
    *(st.text(st.sampled_from(alphabet), max_size=60) for alphabet in ALPHABETS.values()),
)
DENSE_TEXT = st.text(
    st.sampled_from("東京特許局猫𠮷々のカレーはかたーﾊﾟ서울에서ภาษาไทยกันខ្មែរမြန်မာ"), min_size=1, max_size=30
)


def finds(question: str, text: str) -> bool:
    return set(query(question)) <= set(words(text))


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("see src/turnstate/words.py line 12", "turnstate"),
        ("see src/turnstate/words.py line 12", "words.py"),
        ("see src/turnstate/words.py line 12", "src/turnstate"),
        ("write to ada.lovelace@example.org", "lovelace"),
        ("write to ada.lovelace@example.org", "ada.lovelace@example.org"),
        ("it costs 1,234.50 €", "1,234.50"),
        ("it costs 1,234.50 €", "234"),
        ("call user_name_of(x)", "user_name_of"),
        ("call user_name_of(x)", "name"),
        ("call getUserName()", "getUserName"),
        ("call getUserName()", "getusername"),
        ("call getUserName()", "user NAME"),
        ("class HTTPServerError:", "http server error"),
        ("def __init__(self)", "init"),
        ("def __init__(self)", "__init__"),
        ("Die Straße ist lang", "STRASSE"),
        ("Ｆｕｌｌ　Ｗｉｄｔｈ", "full width"),
        ("a so\u00adft hyphen", "soft"),
        ("cafe\u0301", "CAFÉ"),
        ("हिन्दी में", "हिन्दी"),
        ("東京特許許可局", "特許"),
        ("東京特許許可局", "東京特許"),
        ("吾輩は猫である", "猫"),
        ("ﾊﾝｶｸ ｶﾅ", "ハンカク"),
        ("Python入門の本", "python入門"),
        ("我在北京大学学习", "北京"),
        ("서울에서 만나요", "서울"),
        ("ภาษาไทยง่าย", "ไทย"),
    ],
)
def test_a_text_is_found_by(text: str, question: str) -> None:
    assert finds(question, text)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("the users have a name", "user"),
        ("the user has a name", "user_name"),
        ("京都の東", "東京"),
        ("हिन्दी", "हन"),
        ("one two", "one three"),
    ],
)
def test_a_text_is_not_found_by(text: str, question: str) -> None:
    assert not finds(question, text)


def test_names_stand_whole_and_in_parts_in_order_of_first_appearance() -> None:
    assert words("readFile(max_Bytes) read a file, b FILE") == [
        *("readfile", "read", "file", "max_bytes", "max", "bytes"),
        *("a", "b"),
    ]


def test_a_dense_run_gives_its_pairs_and_its_han_characters() -> None:
    assert words("猫のカフェ") == ["猫の", "のカ", "カフ", "フェ", "猫"]
    assert query("猫のカフェ") == ["猫の", "のカ", "カフ", "フェ"]
    assert query("猫") == ["猫"]


def test_a_run_of_one_character_is_that_character() -> None:
    assert words("の a 가") == ["の", "a", "가"]


def test_a_question_about_a_name_asks_for_the_whole_name() -> None:
    assert query("getUserName of user_name") == ["getusername", "of", "user_name"]


@pytest.mark.parametrize("question", ["", "  \n", "?!… “”", "___", "🎉", "\x00", "\u200d"])
def test_a_question_without_a_word_is_refused(question: str) -> None:
    with pytest.raises(InputError, match="at least one letter or digit"):
        query(question)


def test_only_the_first_hundred_kilobytes_are_searched() -> None:
    within, beyond = "猫 " * (SEARCHED_BYTES // 4 - 2), "needle"
    assert "needle" in words(within[:-20] + beyond)
    assert words(within + " " * 20 + beyond) == ["猫"]
    assert words("x" + "𠮷" * SEARCHED_BYTES) == ["x", "𠮷𠮷", "𠮷"]
    assert words("x " * SEARCHED_BYTES + beyond) == ["x"]


def test_a_blob_is_found_by_its_beginning_and_gives_no_crumbs() -> None:
    blob = "aB3xYz9Qw" * 1000
    assert words(blob) == [blob.lower()[:LONGEST_TOKEN]]
    assert finds(blob, f"data:{blob}")
    assert words("f" * 1000) == ["f" * LONGEST_TOKEN]
    assert words("xxAbCdEfGhIjKlMnOp") == ["xxabcdefghijklmnop"]
    digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    assert words(digest) == [digest]


def test_a_cut_name_does_not_end_with_an_underscore() -> None:
    assert words("a" * (LONGEST_TOKEN - 1) + "_" + "b" * 9)[0] == "a" * (LONGEST_TOKEN - 1)


@given(ANY_TEXT)
@example("ŉ x\u0345 X\u0f73Y 漢\u0301x \ufdfa")
@example("_\u0301 a_\u0301b")
def test_every_text_finds_itself_and_is_found_by_each_of_its_words(text: str) -> None:
    tokens = words(text)
    for token in tokens:
        assert set(query(token)) <= set(tokens)
    if tokens:
        assert finds(text, text)


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_a_text_is_found_by_each_word_of_it_wherever_it_stands(before: str, text: str, after: str) -> None:
    whole = set(words(f"{before} {text} {after}"))
    assert set(words(text)) <= whole


@given(DENSE_TEXT, st.sampled_from(["", "abc", "x ", "é", "。"]), st.sampled_from(["", "z9", " 。", "_"]))
def test_every_two_characters_of_a_dense_run_find_it(run: str, before: str, after: str) -> None:
    normal = unicodedata.normalize("NFKC", run)
    for at in range(len(normal) - 1):
        assert finds(normal[at : at + 2], before + run + after)


@given(ANY_TEXT)
def test_a_token_has_nothing_that_a_store_would_read_as_more_than_a_word(text: str) -> None:
    tokens = words(text)
    assert len(set(tokens)) == len(tokens)
    for token in tokens:
        assert 1 <= len(token) <= LONGEST_TOKEN
        assert not re.search(r"[\s\x00\"'\\]", token)
        assert re.fullmatch("[a-z0-9_]*", "".join(filter(str.isascii, token)))
        assert token.strip("_") == token


@given(st.text(st.characters(min_codepoint=0, max_codepoint=127), max_size=80))
def test_a_word_is_cut_alike_whether_or_not_other_scripts_stand_beside_it(text: str) -> None:
    assert words(text) == [token for token in words(f"{text} é") if token != "é"]
    assert words(text) == words(f"{text} — 🎉")


def test_the_same_text_gives_the_same_tokens_in_every_process() -> None:
    text = "".join(ALPHABETS.values()).replace("\ud800", "")
    code = "import sys; from turnstate.search_terms import words; print(ascii(words(sys.argv[1])))"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code, text.replace("\x00", " ")],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONUTF8": "1"},
        )
        assert done.stdout.strip() == ascii(words(text))


def test_an_entry_is_found_by_the_words_of_the_message_in_it() -> None:
    def answer(result: object) -> Message:
        return Message.tool([ToolCallResult(tool_call_id="c1", result=result)])

    def call(**fields: object) -> Message:
        return Message.assistant("look", tool_calls=[ToolCallRequest(name="read_file", **fields)])  # type: ignore[arg-type]

    odd = [
        Message.user([TextPart(text="two parts"), ImagePart(url="https://x.test/y.png")]),
        Message.user(""),
        call(args={"path": "a\nb/ü_x.py", "n": 1.5, "deep": [{"k": None}]}),
        call(args={}, raw="not {json"),
        *map(answer, ["a\nb", "", 0, None, [], {"a": ["ü", 1e9]}, ["x", {"y": "camelCase"}]]),
        answer(
            [{"type": "text", "text": "said in a part"}, {"type": "image", "url": "https://x.test/z.png"}]
        ),
        Message.user("long " * 100_000),
    ]
    generated = [message for seed in range(50) for message in conversations.valid(seed)]
    for message in [*odd, *generated]:
        assert entry_words("message", codec.encode(message)) == words_of(message), message


@pytest.mark.parametrize(
    ("needle", "question"),
    [
        ("Straße", "STRASSE"),
        ("getUserName", "user"),
        ("ﾊﾝｶｸ", "ハンカク"),
        ("東京特許許可局", "許可"),
        ("e\u0301tude", "étude"),
        ("so\u00adft", "soft"),
        ("snake_case", "case"),
    ],
)
@pytest.mark.parametrize(
    "filler", ["plain words ", "ﬁne ½ Ｗｉｄｅ ", "日本語の文。", "x\u00ad\u200b\n\r\x1b\t"]
)
def test_a_snippet_shows_the_match_in_the_text_as_written(needle: str, question: str, filler: str) -> None:
    shown = snippet(f"{filler * 40} {needle} {filler * 40}", query(question))
    assert needle in shown
    assert len(shown) == 80
    assert shown[0] == shown[-1] == "…"


def test_a_snippet_prefers_the_word_alone_to_the_word_inside_another() -> None:
    text = "catalogue " * 30 + "the cat sat " + "catalogue " * 30
    assert "the cat sat" in snippet(text, query("cat"))


def test_a_snippet_without_a_match_is_the_beginning() -> None:
    assert snippet("one two three", ["four"]) == "one two three"
    assert snippet("word " * 50, ["four"], width=12) == "word word w…"
    assert snippet("word " * 50, [], width=12) == "word word w…"


def test_a_snippet_at_the_end_of_the_text_fills_the_line() -> None:
    assert snippet("word " * 50 + "end", ["end"], width=12) == "…rd word end"


def test_a_snippet_takes_terms_literally() -> None:
    assert "a.b" in snippet("axb " * 40 + "a.b", ["a.b"], width=10)


@given(ANY_TEXT, st.lists(ANY_TEXT, max_size=3), st.integers(0, 60))
def test_a_snippet_is_one_line_that_fits(text: str, terms: list[str], width: int) -> None:
    shown = snippet(text, terms, width)
    assert len(shown) <= width
    assert shown == " ".join(shown.splitlines())
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
