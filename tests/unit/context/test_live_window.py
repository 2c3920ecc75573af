"""The chokepoint lets nothing through that a provider would reject."""

from __future__ import annotations

import pytest

from tests.unit.context.scripts import talk
from turnstate.context.live_window import check, check_fit
from turnstate.errors import InvalidConversation


@pytest.mark.parametrize(
    "script", ["", "S", "U", "S U A", "S S U A[x] T[x] A", "U A[x,y] T[y] T[x]", "U A[x] T[x] A[y] T[y] U"]
)
def test_what_every_provider_takes_passes(script: str) -> None:
    check(talk(script))


@pytest.mark.req("C3", "C6")
@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("A", "first message"),
        ("S A U", "first message"),
        ("U A[x]", "without an answer at the end"),
        ("U A[x] U", "without an answer before"),
        ("U A[x,y] T[x] A", "without an answer before"),
        ("U T[x]", "no such call is open"),
        ("U A[x] T[x] T[x]", "no such call is open"),
        ("U A[x] T[y]", "no such call is open"),
        ("U A[x] T[x] U A[x] T[x]", "not unique"),
    ],
)
def test_what_a_provider_would_reject_is_stopped(script: str, says: str) -> None:
    with pytest.raises(InvalidConversation, match=says):
        check(talk(script))


def test_a_window_that_grew_is_walked_from_where_it_grew() -> None:
    messages = talk("U A[x] T[x] A U")
    check(messages, known=3)
    with pytest.raises(InvalidConversation, match="without an answer"):
        check(talk("U A[x] T[x] A U A[y]"), known=5)
    with pytest.raises(InvalidConversation, match="without an answer"):
        check(talk("U A[x,y] T[x] U"), known=3)


@pytest.mark.req("C1")
def test_a_window_that_is_too_long_is_stopped() -> None:
    check_fit(100, 100)
    with pytest.raises(InvalidConversation, match="the window has 101 tokens; its limit is 100"):
        check_fit(101, 100)
