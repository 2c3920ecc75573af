"""Texts as passages, and what an embedder gets to see of a turn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnstate.memory.builtin.meaning import MOST, passages


def test_a_text_has_a_passage_for_each_thing_that_it_says() -> None:
    for single in ("", "I moved to Porto.", "Oh! Really? Yes."):
        assert passages(single) == []
    assert passages(
        "We moved to Porto in March. Oh no!\nMy dog is called Rex. [image: a dog on a beach]"
    ) == [
        "We moved to Porto in March. Oh no!",
        "My dog is called Rex.",
        "[image: a dog on a beach]",
    ]
    assert passages("先月から大阪に住んでいるんですよ。犬の名前はポチといいます、よろしく。") == [
        "先月から大阪に住んでいるんですよ。",
        "犬の名前はポチといいます、よろしく。",
    ]


@given(st.lists(st.text("ab .!?\n", min_size=1, max_size=40), max_size=60).map(" ".join))
def test_passages_are_few_and_lose_nothing(text: str) -> None:
    found = passages(text)
    assert len(found) <= MOST
    assert not found or "".join(" ".join(found).split()) == "".join(text.split())
