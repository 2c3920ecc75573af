"""Generated conversations survive every provider and the way back; broken ones cause no crash."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.harness.thoroughness import LONG, runs
from turnstate import formats
from turnstate.message import Message
from turnstate.testing import conversations

COUNT = runs(60, long=2_000)
BROKEN = runs(30, long=500)
CHUNKS = 8 if LONG else 1  # so that several workers can share the work

CHAT = formats.get("openai-chat")
FORMATS = [formats.get(name) for name in formats.names()]
each_chunk = pytest.mark.parametrize("chunk", range(CHUNKS))


def exact(value: Any) -> str:
    """Return JSON in which 1, 1.0 and true differ."""
    return json.dumps(value, sort_keys=True)


def seeds(count: int, chunk: int) -> range:
    return range(chunk, count, CHUNKS)


def assert_it_travels(messages: list[Message], seed: int) -> None:
    document = CHAT.render(messages)
    assert CHAT.validate(document) == [], seed
    at_home = CHAT.parse(document)
    assert formats.same(messages, at_home), seed
    assert exact(CHAT.render(at_home)) == exact(document), seed
    for other in FORMATS:
        rendered = other.render(at_home)
        assert other.validate(rendered) == [], (seed, other.name)
        abroad = other.parse(rendered)
        assert formats.same(at_home, abroad), (seed, other.name)
        assert exact(other.render(abroad)) == exact(rendered), (seed, other.name)
        back = CHAT.render(abroad)
        assert CHAT.validate(back) == [], (seed, other.name)
        assert formats.same(at_home, CHAT.parse(back)), (seed, other.name)


@pytest.mark.req("A8")
@each_chunk
def test_a_generated_conversation_survives_every_provider_and_the_way_back(chunk: int) -> None:
    for seed in seeds(COUNT, chunk):
        assert_it_travels(conversations.valid(seed), seed)


@pytest.mark.req("A8")
@each_chunk
def test_a_generated_conversation_reaches_every_provider_directly(chunk: int) -> None:
    for seed in seeds(COUNT // 2, chunk):
        messages = conversations.valid(seed)
        for provider in FORMATS:
            rendered = provider.render(messages)
            assert provider.validate(rendered) == [], (seed, provider.name)
            assert formats.same(messages, provider.parse(rendered)), (seed, provider.name)


@pytest.mark.req("A8")
@each_chunk
def test_a_broken_conversation_is_written_read_and_judged_without_a_crash(chunk: int) -> None:
    for seed in seeds(BROKEN, chunk):
        messages = conversations.broken(seed)
        for provider in FORMATS:
            rendered = provider.render(messages)
            provider.validate(rendered, request=True)
            back = provider.parse(rendered)
            assert exact(provider.render(back)) == exact(rendered), (seed, provider.name)
            formats.same(messages, back)


@pytest.mark.req("A8")
@pytest.mark.parametrize("fault", conversations.Fault, ids=lambda fault: fault.name)
def test_a_fault_survives_the_way_through_the_provider_that_has_it(fault: conversations.Fault) -> None:
    for seed in range(10):
        broken = conversations.broken_with(seed, fault)
        for provider in FORMATS:
            document = provider.render(broken)
            found = provider.validate(document)
            assert provider.validate(provider.render(provider.parse(document))) == found, (
                seed,
                provider.name,
            )
