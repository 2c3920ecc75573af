"""Every provider accepts the window of any document that can be read, whatever is wrong with it."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.harness.thoroughness import examples
from tests.properties.conversation_strategies import conversations, mutations
from turnstate import codec, formats
from turnstate.context import Budget, StateManager
from turnstate.errors import ContextOverflow, TurnstateError
from turnstate.message import Message
from turnstate.testing import conversations as written

pytestmark = pytest.mark.req("A8")

FORMATS = [formats.get(name) for name in formats.names()]
MANAGER = StateManager()
BUDGETS = (Budget.UNLIMITED, Budget(2_000))
each_format = pytest.mark.parametrize("provider", FORMATS, ids=lambda provider: provider.name)

IDS = ("", "x" * 60, "x" * 90, "not an id!", "通話", "a", "call_0")
NAMES = ("", "n" * 65, "n" * 130, "look around!", "通話", "a.b")
ID_KEYS = ("id", "tool_call_id", "call_id", "tool_use_id", "toolUseId")


def exact(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def misnamed(value: Any, rng: Random, *, often: float) -> Any:
    """Replace ids and names by ones that providers reject, and some ids by the same one."""
    if isinstance(value, list):
        return [misnamed(item, rng, often=often) for item in value]
    if not isinstance(value, dict):
        return value
    changed = {key: misnamed(item, rng, often=often) for key, item in value.items()}
    for key in changed.keys() & {*ID_KEYS, "name"}:
        if isinstance(changed[key], str) and rng.random() < often:
            changed[key] = rng.choice(NAMES if key == "name" else IDS)
    return changed


def assert_accepted(provider: formats.Format, messages: list[Message]) -> None:
    for budget in BUDGETS:
        try:
            window = MANAGER.window(messages, budget)
        except ContextOverflow:
            continue
        if all(message.role == "system" for message in window.messages):
            continue  # nobody has spoken yet: there is nothing to send
        for target in FORMATS:
            violations = target.validate(target.render(window.messages))
            assert violations == [], f"{provider.name} to {target.name}: {violations[0]}"


@each_format
@examples(8, long=600)
@given(data=st.data(), seed=st.integers(0, 500))
def test_the_window_of_a_document_with_something_wrong_is_accepted(
    provider: formats.Format, data: st.DataObject, seed: int
) -> None:
    sound = data.draw(st.booleans())
    messages = written.valid(seed, turns=1) if sound else written.broken(seed, turns=1)
    document = data.draw(mutations(provider.render(messages)))
    try:
        parsed = provider.parse(document)
    except TurnstateError:
        assume(False)
    assert_accepted(provider, parsed)


@each_format
@examples(8, long=600)
@given(seed=st.integers(0, 2_000), often=st.sampled_from([0.1, 0.5, 1.0]))
def test_the_window_of_a_document_with_bad_ids_and_names_is_accepted(
    provider: formats.Format, seed: int, often: float
) -> None:
    rng = Random(seed)
    messages = written.valid(seed, turns=2) if seed % 2 else written.broken(seed, turns=2)
    document = misnamed(provider.render(messages), rng, often=often)
    try:
        parsed = provider.parse(document)
    except TurnstateError:
        assume(False)
    assert_accepted(provider, parsed)


@each_format
@examples(5, long=400)
@given(one=conversations(), other=conversations(salt=b"other"))
def test_two_documents_in_one_conversation_are_accepted(
    provider: formats.Format, one: list[Message], other: list[Message]
) -> None:
    parsed = [provider.parse(provider.render(messages)) for messages in (one, other, one)]
    assert_accepted(provider, [message for messages in parsed for message in messages])


@each_format
@examples(5, long=400)
@given(messages=conversations())
def test_the_window_of_a_sound_document_is_rendered_as_it_was(
    provider: formats.Format, messages: list[Message]
) -> None:
    document = provider.render(messages)
    parsed = provider.parse(document)
    window = MANAGER.window(parsed, Budget.UNLIMITED)
    assume([message.id for message in window.messages] == [message.id for message in parsed])
    assert exact(provider.render(window.messages)) == exact(document)


@each_format
@examples(4, long=300)
@given(data=st.data(), seed=st.integers(0, 500))
def test_a_window_that_grew_is_the_window_of_the_whole(
    provider: formats.Format, data: st.DataObject, seed: int
) -> None:
    document = data.draw(mutations(provider.render(written.valid(seed, turns=1))))
    try:
        messages = provider.parse(document)
    except TurnstateError:
        assume(False)
    tally, window = MANAGER.tally([], Budget.UNLIMITED), None
    for message in messages:
        tally.add(message)
        window = MANAGER.window(tally, Budget.UNLIMITED, previous=window)
    if window is not None:
        whole = MANAGER.window(messages, Budget.UNLIMITED)
        assert codec.dump(window.messages) == codec.dump(whole.messages)
