"""What a provider takes although it looks odd: it is valid, comes back as it was, and others take it too."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import pytest

from tests.harness.thoroughness import LONG, rng
from tests.unit.formats.odd_documents import ODD, Odd
from turnstate import codec, formats
from turnstate.errors import TurnstateError
from turnstate.formats.rules.fields import stripped
from turnstate.message import Message

each_document = pytest.mark.parametrize("odd", ODD, ids=lambda odd: f"{odd.provider}: {odd.says}")
each_target = pytest.mark.parametrize("target", formats.names())


def as_request(document: Any, provider: formats.Format) -> Any:
    """Return a document without the fields that only responses hold."""
    fields = import_module(f"turnstate.formats.rules.{provider.name.replace('-', '_')}").DOCUMENT
    whole = {provider.list_key: document} if isinstance(document, list) else document
    rest, _ = stripped(whole, fields)
    return rest[provider.list_key] if isinstance(document, list) else rest


def exact(value: Any) -> str:
    """Write JSON so that 1, 1.0 and true are three things."""
    return json.dumps(value, sort_keys=True)


def parsed(odd: Odd) -> list[Message]:
    return formats.get(odd.provider).parse(odd.document)


@pytest.mark.req("A8")
@each_document
def test_the_provider_takes_it(odd: Odd) -> None:
    assert formats.get(odd.provider).validate(odd.document) == []


@pytest.mark.req("A8")
@each_document
def test_it_comes_back_as_it_was(odd: Odd) -> None:
    before = copy.deepcopy(odd.document)
    rendering = formats.get(odd.provider).rendering(parsed(odd))
    assert exact(rendering.document) == exact(odd.document) == exact(before)
    assert rendering.left_out == ()


@pytest.mark.req("A7", "A8")
@each_document
def test_it_comes_back_as_it_was_from_the_log(odd: Odd) -> None:
    kept = [codec.decode(codec.encode(message)) for message in parsed(odd)]
    assert exact(formats.get(odd.provider).rendering(kept).document) == exact(odd.document)


@pytest.mark.req("A8")
@each_target
@each_document
def test_it_becomes_a_valid_document_of_every_provider_that_says_the_same(odd: Odd, target: str) -> None:
    other = formats.get(target)
    messages = parsed(odd)
    document = other.render(messages)
    assert other.validate(document) == []
    assert formats.same(messages, other.parse(document))


@pytest.mark.req("A8")
@each_target
@each_document
def test_it_says_the_same_when_it_comes_back_from_another_provider(odd: Odd, target: str) -> None:
    own, other = formats.get(odd.provider), formats.get(target)
    abroad = other.parse(other.render(parsed(odd)))
    document = own.render(abroad)
    assert own.validate(document) == []
    assert formats.same(abroad, own.parse(document))


@each_target
@each_document
def test_it_is_translated_with_its_tools_and_tells_what_is_lost(odd: Odd, target: str) -> None:
    source, other = formats.get(odd.provider), formats.get(target)
    rendering = formats.convert(odd.document, source, other)
    assert other.validate(rendering.payload) == []
    names = [tool.name for tool in source.tools(odd.document)]
    if names:
        assert [tool.name for tool in other.tools(rendering.payload)] == names


@each_document
def test_ids_are_the_same_whenever_it_is_read(odd: Odd) -> None:
    assert parsed(odd) == parsed(odd)
    ids = [message.id for message in parsed(odd)]
    assert len(set(ids)) == len(ids)
    calls = [call.id for message in parsed(odd) for call in message.tool_calls]
    assert len(set(calls)) == len(calls)


@each_document
def test_every_result_finds_its_call(odd: Odd) -> None:
    messages = parsed(odd)
    asked = {call.id for message in messages for call in message.tool_calls}
    assert [
        one for message in messages for one in message.tool_results if one.tool_call_id not in asked
    ] == []


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every node of a document but its root."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in items:
        yield (*path, step)
        yield from places(item, (*path, step))


CHANGES = ("missing", "doubled", None, 7, "", "user", {}, [{}])
QUICK = 2  # changes of each node in the quick version, at random


def faults(document: Any, path: tuple[Any, ...], changes: Sequence[Any]) -> Iterator[Any]:
    """Yield copies of a document in which this node is missing, doubled, or of another type."""
    for change in changes:
        broken = copy.deepcopy(document)
        parent = broken
        for step in path[:-1]:
            parent = parent[step]
        if change == "missing":
            del parent[path[-1]]
        elif change != "doubled":
            parent[path[-1]] = change
        elif isinstance(parent, list):
            parent.insert(path[-1], copy.deepcopy(parent[path[-1]]))
        else:
            parent[f"{path[-1]}_too"] = copy.deepcopy(parent[path[-1]])
        yield broken


@pytest.mark.req("A8")
@each_document
def test_with_anything_wrong_anywhere_in_it_it_is_kept_as_it_is_or_refused(odd: Odd) -> None:
    provider = formats.get(odd.provider)
    dice = rng(f"odd {odd}")
    for path in places(odd.document):
        for broken in faults(odd.document, path, CHANGES if LONG else dice.sample(CHANGES, QUICK)):
            provider.validate(broken, request=True)
            provider.tools(broken)
            try:
                messages = provider.parse(broken)
            except TurnstateError:
                continue
            assert not messages or exact(provider.rendering(messages).document) == exact(
                as_request(broken, provider)
            ), path


class Markup(str):
    """Text as template engines return it."""


def disguised(value: Any) -> Any:
    """Return a document whose text is of another type than str."""
    match value:
        case dict():
            return {Markup(key): disguised(item) for key, item in value.items()}
        case list():
            return [disguised(item) for item in value]
        case str():
            return Markup(value)
    return value


@pytest.mark.req("A6", "A8")
@each_document
def test_text_of_a_foreign_string_type_is_read_as_text(odd: Odd) -> None:
    messages = formats.get(odd.provider).parse(disguised(odd.document))
    assert [codec.encode(one) for one in messages] == [codec.encode(one) for one in parsed(odd)]
