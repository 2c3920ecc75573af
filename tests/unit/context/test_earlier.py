from __future__ import annotations

from typing import Any

import pytest
from cases import each

from turnstate import Message, TextPart
from turnstate.context import Budget, Policy, StateManager
from turnstate.context.fit import parted, recorded

pytestmark = pytest.mark.req("D1", "D3", "P4")

TEMPLATE = Policy().summary_template
SUMMARY = TEMPLATE.replace("{summary}", "They spoke of ships.")
HELLO = Message.user("Hello again.")


def test_a_summary_of_its_own_is_taken_out_of_the_head() -> None:
    prompt = Message.system("Be brief.")
    assert parted([prompt, Message.system(SUMMARY), HELLO], TEMPLATE) == (
        [prompt, HELLO],
        "They spoke of ships.",
    )


def test_a_summary_behind_the_prompt_is_taken_off_it() -> None:
    both = Message.system([TextPart(text="Be brief."), TextPart(text=SUMMARY)])
    (prompt, hello), text = parted([both, HELLO], TEMPLATE)
    assert (prompt.text, hello, text) == ("Be brief.", HELLO, "They spoke of ships.")


def test_several_are_one() -> None:
    messages = [Message.system(SUMMARY), Message.system(SUMMARY.replace("ships", "sails")), HELLO]
    assert parted(messages, TEMPLATE) == ([HELLO], "They spoke of ships. They spoke of sails.")


def test_what_a_summary_carried_is_not_nested() -> None:
    text = "Earlier summary: “9 earlier messages left out.”. 4 earlier messages left out."
    _, found = parted([Message.system(TEMPLATE.replace("{summary}", text)), HELLO], TEMPLATE)
    assert found == "9 earlier messages left out. 4 earlier messages left out."


@each(
    "messages",
    [
        [Message.user(SUMMARY)],
        [HELLO, Message.system(SUMMARY)],
        [Message.system(f"Never write {SUMMARY}"), HELLO],
        [Message.system(""), HELLO],
        [Message.system("Be brief."), HELLO],
        [],
    ],
)
def test_nothing_else_is_taken_for_a_summary(messages: list[Message]) -> None:
    assert parted(messages, TEMPLATE) == (messages, "")


def test_a_template_that_says_next_to_nothing_finds_nothing() -> None:
    assert parted([Message.system("Note: be brief."), HELLO], "Note: {summary}")[1] == ""


def test_an_earlier_summary_stands_in_the_window_as_it_was() -> None:
    manager = StateManager()
    tally = manager.tally([HELLO], Budget(1_000))
    window = manager.window(
        tally, Budget(1_000), decisions=recorded("They spoke of ships.", tally, manager.policy, 1_000)
    )
    assert [message.text for message in window.messages] == [SUMMARY, "Hello again."]
    assert window.decisions == ()


def test_without_a_summary_or_a_message_nothing_is_recorded() -> None:
    manager = StateManager()
    some, none = manager.tally([HELLO], Budget(1_000)), manager.tally([], Budget(1_000))
    assert recorded("", some, manager.policy, 1_000) == ()
    assert recorded("They spoke of ships.", none, manager.policy, 1_000) == ()


@each("language", ["en", "ja", "zh"])
def test_a_summary_in_any_language_of_ours_is_found_under_any_other(language: Any) -> None:
    written = Policy(language=language).summary_template.replace("{summary}", "They spoke of ships.")
    for other in ("en", "ja", "zh"):
        template = Policy(language=other).summary_template
        assert parted([Message.system(written), HELLO], template) == ([HELLO], "They spoke of ships.")


def test_what_a_summary_carried_is_not_nested_in_any_language() -> None:
    text = "以前の要約：“船の話。”。以前のメッセージ4件を省略。"
    _, found = parted([Message.system(TEMPLATE.replace("{summary}", text)), HELLO], TEMPLATE)
    assert found == "船の話。 以前のメッセージ4件を省略。"
