from __future__ import annotations

import pytest

from tests.acceptance.cli_program import on_a_terminal, turnstate
from tests.acceptance.kept_sessions import make, opened, work

pytestmark = pytest.mark.req("P3")


def test_messages_are_found_by_their_words_the_newest_first(url: str) -> None:
    first = make(url, "The disk is full.")
    make(url, "The disk is empty.")
    second = make(url, "Is the FULL disk gone?")
    code, out, err = turnstate("search", "full", "disk")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line.split()[1] for line in lines[::2]] == [second, first]
    assert [line.split()[3] for line in lines[::2]] == ["user", "user"]
    assert lines[1::2] == ["  Is the FULL disk gone?", "  The disk is full."]


def test_json_has_a_line_a_message(url: str) -> None:
    id, message = work(url, "No space left on device")
    (found,) = turnstate("search", "space left", "--json").objects
    assert found == {
        "session": id,
        "id": message.id,
        "seq": 3,
        "role": "tool",
        "timestamp": message.timestamp,
        "snippet": "No space left on device",
    }


def test_a_snippet_is_one_line_around_the_match(url: str) -> None:
    make(url, "before\n" * 100 + "the needle\n" + "after\n" * 100)
    (found,) = turnstate("search", "needle", "--json").objects
    assert "the needle" in found["snippet"]
    assert len(found["snippet"]) <= 100
    assert found["snippet"].startswith("…")


def test_japanese_is_found(url: str) -> None:
    make(url, "東京の天気を調べて")
    assert turnstate("search", "天気").code == 0


@pytest.mark.req("G4")
def test_only_ones_own_are_found(url: str) -> None:
    mine = make(url, "the secret", user="anna")
    make(url, "the secret", user="bob")
    make(url, "the secret", tenant="acme", user="anna")
    assert [hit["session"] for hit in turnstate("search", "secret", "--user", "anna", "--json").objects] == [
        mine
    ]


def test_nothing_found_exits_with_1(url: str) -> None:
    make(url, "hello")
    assert turnstate("search", "goodbye") == (1, "", "turnstate: nothing found\n")


def test_more_than_the_limit_is_told(url: str) -> None:
    make(url, *["again"] * 5)
    code, out, err = turnstate("search", "again", "--limit", 3)
    assert (code, len(out.splitlines())) == (0, 6)
    assert err == "turnstate: showing the newest 3; --limit N shows more\n"


@pytest.mark.parametrize("words", [[], ["!?"]])
def test_no_words_are_bad_usage(url: str, words: list[str]) -> None:
    make(url)
    code, out, err = turnstate("search", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_the_match_stands_out_on_a_terminal_and_nothing_acts_on_it(url: str) -> None:
    make(url, "a \x1b[31m full disk")
    code, _, seen = on_a_terminal("search", "Full")
    assert code == 0
    assert "\x1b[1mfull\x1b[0m disk" in seen
    assert "\x1b[31m" not in seen
    assert "\x1b[1m" not in on_a_terminal("search", "full", NO_COLOR="1").err


def test_what_was_destroyed_is_not_found(url: str) -> None:
    id = make(url, "the secret")
    with opened(url) as sessions:
        sessions.destroy(id)
    assert turnstate("search", "secret").code == 1
