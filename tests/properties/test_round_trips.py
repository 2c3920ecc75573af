"""Any conversation survives every provider and the way back; any other document is read or refused."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.thoroughness import examples
from tests.properties.conversation_strategies import conversations, json_values, mutations
from turnstate import codec, formats
from turnstate.errors import TurnstateError
from turnstate.formats.rules.fields import stripped
from turnstate.message import Message
from turnstate.testing import conversations as written

FORMATS = [formats.get(name) for name in formats.names()]
each_format = pytest.mark.parametrize("provider", FORMATS, ids=lambda provider: provider.name)
any_format = st.sampled_from(FORMATS)


def as_request(document: Any, provider: formats.Format) -> Any:
    """Return a document without the fields that only responses hold."""
    fields = import_module(f"turnstate.formats.rules.{provider.name.replace('-', '_')}").DOCUMENT
    whole = {provider.list_key: document} if isinstance(document, list) else document
    rest, _ = stripped(whole, fields)
    return rest[provider.list_key] if isinstance(document, list) else rest


def exact(value: Any) -> str:
    """Return JSON in which 1, 1.0 and true differ."""
    return json.dumps(value, sort_keys=True)


@pytest.mark.req("A6", "A8")
@examples(15, long=1_200)
@given(messages=conversations())
def test_a_conversation_survives_every_provider(messages: list[Message]) -> None:
    for provider in FORMATS:
        payload = provider.render(messages)
        for document in (
            payload,
            provider.rendering(messages).document,
        ):  # an object; OpenAI also takes a list
            assert provider.validate(document) == [], provider.name
            back = provider.parse(document)
            assert formats.same(messages, back), provider.name
            assert exact(provider.rendering(back).document) == exact(document), provider.name


@pytest.mark.req("A8")
@examples(10, long=800)
@given(messages=conversations(), provider=any_format)
def test_a_conversation_survives_two_providers(messages: list[Message], provider: formats.Format) -> None:
    between = provider.parse(provider.render(messages))
    for other in FORMATS:
        document = other.render(between)
        assert other.validate(document) == [], other.name
        assert formats.same(between, other.parse(document)), other.name


@pytest.mark.req("A8")
@examples(8, long=600)
@given(messages=conversations(), more=conversations(salt=b"more"), provider=any_format)
def test_a_session_can_go_on_elsewhere_and_come_back(
    messages: list[Message], more: list[Message], provider: formats.Format
) -> None:
    begun = provider.parse(provider.render(messages))
    session = begun + [message for message in more if message.role != "system"]
    for other in FORMATS:
        document = other.render(session)
        assert other.validate(document) == [], other.name
        assert formats.same(session, other.parse(document)), other.name


@pytest.mark.req("A8")
@examples(8, long=600)
@given(messages=conversations(), provider=any_format)
def test_the_same_messages_give_the_same_bytes(messages: list[Message], provider: formats.Format) -> None:
    again = [codec.decode(codec.encode(message)) for message in messages]
    one, other = provider.rendering(messages), provider.rendering(again)
    assert json.dumps(one.payload) == json.dumps(other.payload)
    assert one.left_out == other.left_out
    assert provider.parse(one.payload) == provider.parse(other.payload)


@pytest.mark.req("A8")
@examples(8, long=600)
@given(messages=conversations(), provider=any_format, data=st.data())
def test_any_messages_in_any_order_can_be_rendered(
    messages: list[Message], provider: formats.Format, data: st.DataObject
) -> None:
    native = provider.parse(provider.render(messages))
    kept = data.draw(st.lists(st.sampled_from(native), max_size=len(native)))
    for other in FORMATS:
        document = other.render(kept)
        other.validate(document, request=True)
        other.parse(document)


@each_format
@examples(5, long=400)
@given(payload=json_values)
def test_any_json_is_read_or_refused_and_always_judged(provider: formats.Format, payload: Any) -> None:
    assert provider.validate(payload, request=True)
    for garbage in (
        payload,
        [payload],
        {provider.list_key: payload},
        {provider.list_key: [payload, payload]},
    ):
        provider.validate(garbage, request=True)
        provider.tools(garbage)
        assert_read_or_refused(provider, garbage)


@pytest.mark.req("A8")
@each_format
@examples(25, long=2_000)
@given(data=st.data(), seed=st.integers(0, 200))
def test_a_document_with_something_wrong_is_kept_as_it_is_or_refused(
    provider: formats.Format, data: st.DataObject, seed: int
) -> None:
    document = data.draw(mutations(provider.render(written.valid(seed, turns=1))))
    provider.validate(document, request=True)
    provider.tools(document)
    assert_read_or_refused(provider, document)


def assert_read_or_refused(provider: formats.Format, document: Any) -> None:
    try:
        messages = provider.parse(document)
    except TurnstateError:
        return
    if messages:  # without any, there is nothing to keep the fields of a request with
        assert exact(provider.rendering(messages).document) == exact(as_request(document, provider))
    for other in FORMATS:
        rendered = other.render(messages)
        other.validate(rendered)
        other.parse(rendered)
    assert formats.same(messages, messages)
