"""For any messages and any cap a digest fits, stays small, and keeps the first request after many cuts."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.thoroughness import examples
from turnstate.context.digest import Digest, carrying, digest
from turnstate.context.digest_text import facts, text
from turnstate.context.policy import Policy
from turnstate.context.summary import Refusal, accepted
from turnstate.context.summary_prompt import request
from turnstate.context.summary_text import filled, label, rendered
from turnstate.message import Message, ToolCallRequest, ToolCallResult
from turnstate.testing import conversations
from turnstate.tokens.counter import Count

TEMPLATES = [
    Policy().summary_template,
    "Summary of previous context: {summary}",
    "これまでの会話の要約: {summary}",
    "{summary}",
]
LARGEST = 30_000  # bytes of JSON: all room full, every character of three bytes


class Fours:
    """One token per four bytes."""

    name = "fours"

    def count(self, text: str) -> Count:
        return Count(-(-len(text.encode()) // 4), "estimated")


class Letters:
    """One token per character: the most expensive counter."""

    name = "letters"

    def count(self, text: str) -> Count:
        return Count(len(text), "estimated")


def clean(told: str) -> bool:
    """Return True if a text is one line without control characters."""
    return not {unicodedata.category(character) for character in told} & {"Cc", "Cs", "Zl", "Zp"}


words = st.text(max_size=400) | st.sampled_from([label(TEMPLATES[0]), "“”", "\n" * 300, "ok", "x" * 5_000])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=8,
)
keys = st.sampled_from("path file paths target id user_id ids error message text other".split())
arguments = st.dictionaries(keys, values, max_size=4)


@st.composite
def groups(draw: st.DrawFn) -> list[Message]:
    call = ToolCallRequest(name=draw(words.filter(bool)), args=draw(arguments))
    result = ToolCallResult(
        tool_call_id=call.id, result=draw(values | arguments), is_error=draw(st.booleans())
    )
    return [Message.assistant(draw(words), tool_calls=[call]), Message.tool([result])]


said = st.builds(Message.user, words).map(lambda message: [message])
kinds: st.SearchStrategy[Any] = st.sampled_from(["prompt", "summary", "foreign"])
systems = st.builds(lambda content, kind: [Message.system(content, kind=kind)], words, kinds)
histories = st.lists(said | groups() | systems, max_size=8).map(
    lambda runs: [one for run in runs for one in run]
)
counters = st.sampled_from([Fours(), Letters()])
templates = st.sampled_from(TEMPLATES)
languages = st.sampled_from(["en", "ja", "zh"])
makers = st.sampled_from([conversations.valid, conversations.broken])


@pytest.mark.req("D2")
@examples(18, long=1_000)
@given(histories, st.integers(-5, 1_500), counters, templates)
def test_the_digest_of_any_messages_fits_any_cap(
    messages: list[Message], cap: int, counter: Any, template: str
) -> None:
    known = digest(messages)
    told = text(known, cap, counter, template)
    assert told == text(digest(messages), cap, counter, template)
    least = text(known, -1, counter, template)
    assert counter.count(filled(template, told)).tokens <= max(
        cap, counter.count(filled(template, least)).tokens
    )
    assert clean(told)
    if label(template):
        assert label(template) not in told
        assert filled(template, told).count(label(template)) == 1


@pytest.mark.req("D3")
@examples(18, long=1_000)
@given(st.lists(histories, min_size=1, max_size=5))
def test_folding_is_bounded_and_counts_everything(cuts: list[list[Message]]) -> None:
    known = Digest()
    for messages in cuts:
        known = digest(messages, known)
        assert len(msgspec.json.encode(known)) < LARGEST
        assert Digest.from_json(known.to_json()) == known
    assert known.messages == sum(map(len, cuts))
    assert known.turns == known.topics.total == sum(one.role == "user" for cut in cuts for one in cut)
    assert known.succeeded.total + known.failed.total <= sum(
        one.role == "tool" for cut in cuts for one in cut
    )


@pytest.mark.req("D3")
@examples(18, long=1_000)
@given(st.tuples(histories, histories, histories), st.booleans())
def test_the_digest_of_three_cuts_keeps_the_first_request(
    cuts: tuple[list[Message], ...], swapped: bool
) -> None:
    known = None
    for number, messages in enumerate(cuts):
        known = digest([Message.user(f"task number {number}"), *messages], known)
        if swapped:
            known = carrying(f"model text {number}", known)
    assert known is not None
    told = text(known, 100_000, Fours(), TEMPLATES[0])
    assert "“task number 0”" in told
    assert not swapped or "model text 2" in told


@examples(18, long=1_000)
@given(makers, st.integers(0, 2**32 - 1), st.integers(20, 800))
def test_the_digest_of_a_generated_conversation_fits(
    kind: Callable[[int], list[Message]], seed: int, cap: int
) -> None:
    messages = kind(seed)
    told = text(digest(messages), cap, Fours(), TEMPLATES[0])
    assert Fours().count(filled(TEMPLATES[0], told)).tokens <= cap
    assert clean(told)


@pytest.mark.req("D4")
@examples(18, long=1_000)
@given(histories, st.text(max_size=600), st.integers(1, 200), st.integers(0, 200), templates)
def test_any_summary_of_a_model_is_refused_or_fits(
    messages: list[Message], written: str, cap: int, replaced: int, template: str
) -> None:
    asked = request(messages, written, cap=cap, focus=written, facts=written)
    verdict = accepted(written, asked, counter=Fours(), replaced_tokens=replaced, template=template)
    if isinstance(verdict, Refusal):
        return
    message = rendered(verdict, template)
    assert Fours().count(message.text).tokens <= min(cap, replaced)
    assert verdict.strip()


@pytest.mark.req("D2")
@examples(18, long=1_000)
@given(histories, words)
def test_no_record_holds_the_mark_that_ends_it(messages: list[Message], previous: str) -> None:
    asked = request(messages, previous, cap=100)
    outside = asked.user.split(f"<{asked.mark}>\n")
    assert all(piece.count(f"\n</{asked.mark}>") == 1 for piece in outside[1:])
    assert asked == request(messages, previous, cap=100)


documents = values.map(json.dumps) | st.sampled_from(
    [
        "[" * 5_000,
        '{"id": "\\ud800"}',
        '{"id": ' + "9" * 5_000 + "}",
        "{" * 30_000,
        '{"a_id": [[[[1]]]]}',
        "\ud800{",
    ]
)


@st.composite
def answered(draw: st.DrawFn) -> list[Message]:
    name = draw(st.sampled_from("book_tour cancel get_user bash run_tests 予約する".split()))
    call = ToolCallRequest(name=name, args=draw(arguments))
    result = ToolCallResult.of(call.id, draw(documents | values))
    return [Message.assistant(draw(words), tool_calls=[call]), Message.tool([result])]


talks = st.lists(said | answered(), max_size=8).map(lambda runs: [one for run in runs for one in run])


@pytest.mark.req("D2")
@examples(18, long=1_000)
@given(st.lists(talks, min_size=1, max_size=3), st.integers(0, 600), counters, languages)
def test_texts_that_claim_to_be_json_are_read_or_left_alone(
    cuts: list[list[Message]], cap: int, counter: Any, language: Any
) -> None:
    known = None
    for messages in cuts:
        known = digest(messages, known)
    assert known is not None
    again = Digest.from_json(json.loads(json.dumps(known.to_json())))
    template = Policy(language=language).summary_template
    told = text(known, cap, counter, template, language=language)
    assert told == text(again, cap, counter, template, language=language)
    assert clean(told)
    beside = facts(known, cap, counter, template, language=language, words=told)
    assert clean(beside)
    assert counter.count(beside).tokens <= cap


@examples(18, long=1_000)
@given(talks, talks)
def test_two_cuts_know_the_deeds_failures_and_wishes_of_one(
    first: list[Message], second: list[Message]
) -> None:
    in_pieces, at_once = digest(second, digest(first)), digest([*first, *second])
    for name in ("done", "failed", "wishes", "ids", "told", "topics"):
        one, other = getattr(in_pieces, name), getattr(at_once, name)
        assert [mention.words for mention in one] == [mention.words for mention in other], name
    assert in_pieces.asked == at_once.asked


@examples(18, long=1_000)
@given(talks, st.integers(60, 300))
def test_a_larger_cap_never_gives_a_shorter_text(messages: list[Message], cap: int) -> None:
    known = digest(messages)
    lengths = [Fours().count(text(known, size, Fours(), "{summary}")).tokens for size in (cap, 3 * cap)]
    assert lengths[0] <= max(lengths[1], 1)
