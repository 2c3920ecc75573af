"""The text of a digest has the most important of what is known, as much as the cap has room for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnstate.context.digest import Digest, digest
from turnstate.context.digest_text import facts, text
from turnstate.context.mentions import Mention, Mentions
from turnstate.context.policy import Policy
from turnstate.context.summary_text import filled
from turnstate.message import Message, ToolCallRequest, ToolCallResult
from turnstate.tokens import counter

TEMPLATE = Policy().summary_template
COUNTER = counter("o200k_base")


def ran(name: str, args: dict[str, Any], result: Any = "done", *, is_error: bool = False) -> list[Message]:
    call = ToolCallRequest(name=name, args=args)
    answer = ToolCallResult(tool_call_id=call.id, result=result, is_error=is_error)
    return [Message.assistant(tool_calls=[call]), Message.tool([answer])]


def told(messages: list[Message], cap: int = 1_000) -> str:
    return text(digest(messages), cap, COUNTER, TEMPLATE)


BUSY = [
    message
    for number in range(30)
    for message in (
        Message.user(f"Please book the tour to valley {number}, it must cost at most ${number + 100}."),
        *ran(
            "book_tour",
            {"user_id": f"user_{number}", "valley": number, "seats": 2},
            json.dumps({"tour_id": f"T-{number}", "guide": {"guide_id": f"G{number % 5}"}}),
        ),
        Message.assistant(f"Booked: the tour starts at {number % 12} o'clock. Anything else?"),
        Message.user("Thank you so much!"),
    )
]


def test_deeds_say_what_was_done_to_what_and_what_was_returned_newest_first() -> None:
    sentence = told(
        [
            *ran("cancel_order", {"order_id": "A1", "reason": "x"}),
            *ran("book_tour", {"user_id": "u7", "seats": 2}, '{"tour_id": "T3", "user_id": "u7"}'),
        ]
    )
    assert (
        "Done, newest first: book_tour user_id u7, seats 2 → tour_id T3; cancel_order order_id A1, reason x."
        in sentence
    )


def test_deeds_in_a_row_share_the_name_if_there_is_no_room_for_their_arguments() -> None:
    cancels = [
        message
        for n in range(12)
        for message in ran("cancel_order", {"order_id": f"A{n}", "why": "x y " * 15})
    ]
    sentence = told(cancels, 80)
    assert "Done, newest first: cancel_order order_id A11, A10, A9, A8" in sentence
    assert sentence.count("cancel_order") == 1


def test_what_only_reads_is_not_done_but_succeeded() -> None:
    sentence = told([*ran("get_order", {"order_id": "A1"}), *ran("cancel_order", {"order_id": "A1"})])
    assert "Done, newest first: cancel_order order_id A1." in sentence
    assert "Succeeded: get_order." in sentence


def test_thanks_and_agreement_are_not_quoted() -> None:
    sentence = told(BUSY)
    assert "Thank you" not in sentence
    assert "at most $129" in sentence


@pytest.mark.parametrize("cap", [60, 100, 200, 400, 800, 1_600])
def test_the_cap_is_used(cap: int) -> None:
    tokens = COUNTER.count(filled(TEMPLATE, told(BUSY, cap))).tokens
    assert cap - max(30, cap // 10) <= tokens <= cap


def test_more_room_never_says_less_about_deeds_and_ids() -> None:
    texts = [told(BUSY, cap) for cap in range(60, 1_600, 70)]
    deeds = [sum(f"user_{number}" in one for number in range(30)) for one in texts]
    assert deeds == sorted(deeds)
    assert deeds[-1] == 30


def test_what_was_asked_after_the_newest_change_is_open() -> None:
    messages = [Message.user("Cancel order A1."), *ran("cancel_order", {"order_id": "A1"})]
    messages += [Message.user("Thanks!"), Message.user("Now refund order A2, please.")]
    assert "Asked since then: “Now refund order A2, please.”." in told(messages)
    later = digest(ran("refund", {"order_id": "A2"}), digest(messages))
    assert "Asked since then" not in text(later, 1_000, COUNTER, TEMPLATE)


def test_failures_of_what_changes_come_before_failures_of_what_reads() -> None:
    messages = [
        *ran("cancel_order", {"order_id": "A1"}, "Error: shipped already"),
        *ran("get_user", {"user_id": "u1"}, "Error: user not found"),
    ]
    assert "Failed: cancel_order on A1, “Error: shipped already”; get_user on u1" in told(messages)


def test_each_key_has_an_id_before_any_has_two() -> None:
    messages = [
        *ran("get", {"user_id": "u1"}),
        *(one for n in range(9) for one in ran("get", {"item_id": f"i{n}"})),
    ]
    assert "Ids: item_id i8; user_id u1." in told(messages, 28)


def test_an_id_that_is_said_elsewhere_is_not_repeated() -> None:
    assert told(ran("cancel_order", {"order_id": "A1"})).count("A1") == 1


def test_facts_are_what_a_models_words_leave_out() -> None:
    messages = [
        Message.user("Only use trains. Cancel order A1, and order A2."),
        *ran("cancel_order", {"order_id": "A1"}),
        *ran("cancel_order", {"order_id": "A2"}, "Error: shipped already"),
    ]
    known = digest(messages)
    every = facts(known, 500, COUNTER, TEMPLATE)
    assert "“Only use trains.”" in every
    assert "Done, newest first: cancel_order order_id A1" in every
    assert "Failed: cancel_order on A2" in every
    words = "The user said: Only use trains. A2 could not be canceled."
    left = facts(known, 500, COUNTER, TEMPLATE, words=words)
    assert "cancel_order order_id A1" in left
    assert "Only use trains" not in left
    assert "Failed" not in left


def test_facts_that_do_not_fit_leave_nothing_half_said() -> None:
    assert facts(digest(BUSY), 3, COUNTER, TEMPLATE) == ""
    assert facts(digest(BUSY), -1, COUNTER, TEMPLATE) == ""


def test_a_digest_of_an_earlier_version_is_told() -> None:
    earlier = {
        "messages": 9,
        "turns": 1,
        "topics": {"first": [["Tidy up.", 1]]},
        "succeeded": {"first": [["read_file", 2]]},
        "failed": {"newest": [[["write_file", "z.py", "read-only"], 1]]},
        "ids": {"first": [[["order_id", "A-17"], 1]]},
    }
    known = Digest.from_json(earlier)
    assert text(known, 200, COUNTER, TEMPLATE) == (
        "9 earlier messages (1 turn) left out. Goal: “Tidy up.”. Failed: write_file on z.py, “read-only”. "
        "Ids: order_id A-17. Succeeded: read_file ×2."
    )
    later = digest(ran("write_file", {"path": "z.py"}), known)
    assert not later.failed
    assert [mention.words for mention in later.done] == [("write_file", "", "path", "z.py")]


def test_odd_deeds_from_outside_are_told_without_a_fault() -> None:
    odd = Mentions(
        newest=tuple(map(Mention, [(), ("a",), ("b", "id 7"), ("c", "", "key"), "d", ("e", "", "k", "“”\n")]))
    )
    known = Digest(messages=1, done=odd, wishes=odd, told=odd, asked=("x",))
    assert "b → id 7" in text(known, 500, COUNTER, TEMPLATE)
