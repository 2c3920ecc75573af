"""Names, prompts and notes that every store keeps as they are."""

from __future__ import annotations

from typing import Any

import pytest

from turnstate.errors import InputError, TooLarge
from turnstate.session.names import LARGEST_META, LONGEST, checked, checked_meta, checked_prompt

pytestmark = pytest.mark.req("A6")


@pytest.mark.parametrize(
    "name", ["u1", " ", "a/b?c#d%e", "'; DROP TABLE session; --", "日本", "\n\u202e", "x" * LONGEST]
)
def test_any_other_text_is_a_name(name: str) -> None:
    assert checked(name, "a user") == name


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * (LONGEST + 1), 5, None, b"u1", ["u1"], True])
def test_what_cannot_be_kept_is_refused_by_what_it_is(name: Any) -> None:
    with pytest.raises(InputError, match="a user"):
        checked(name, "a user")


def test_a_title_may_be_empty() -> None:
    assert checked("", "a title", empty=True) == ""
    with pytest.raises(InputError, match="a title must have at most 500 characters, not 501"):
        checked("x" * 501, "a title", empty=True)
    with pytest.raises(InputError, match="a user must have 1 to 500 characters, not 0"):
        checked("", "a user")


@pytest.mark.parametrize("text", ["", "You help.", "\0", "x" * 10_000])
def test_a_prompt_may_say_anything(text: str) -> None:
    assert checked_prompt(text) == text


@pytest.mark.parametrize("text", ["\ud800", 5, None, b"You help."])
def test_a_prompt_is_text(text: Any) -> None:
    with pytest.raises(InputError):
        checked_prompt(text)


def test_meta_is_a_copy() -> None:
    given = {"list": [1, {"deep": None}]}
    kept = checked_meta(given)
    given["list"].append(2)
    assert kept == {"list": [1, {"deep": None}]}


@pytest.mark.parametrize(
    "meta", [[], "text", None, {"n": float("nan")}, {1: "key"}, {"s": "\ud800"}, {"o": object()}]
)
def test_meta_is_a_json_object(meta: Any) -> None:
    with pytest.raises(InputError):
        checked_meta(meta)


def test_meta_has_a_size() -> None:
    assert checked_meta({"text": "x" * (LARGEST_META - 20)})
    with pytest.raises(TooLarge, match="bytes"):
        checked_meta({"text": "x" * LARGEST_META})
