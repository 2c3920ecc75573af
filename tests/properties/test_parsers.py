"""A parser that has read other versions of a document reads the next one as a fresh parser does."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.thoroughness import examples
from tests.properties.conversation_strategies import mutations
from tests.unit.formats.broken_documents import BROKEN
from tests.unit.formats.odd_documents import ODD
from turnstate import Fitted, codec, fit, fitted, formats
from turnstate.errors import TurnstateError
from turnstate.formats import Format, Parser
from turnstate.testing import conversations

FORMATS = [formats.get(name) for name in formats.names()]
each_format = pytest.mark.parametrize("provider", FORMATS, ids=lambda provider: provider.name)

OWN_ID = "call_" + "0" * 12 + "7" + "0" * 3 + "8" + "0" * 15
"""An id of Turnstate's own: a call that has it keeps it, and so does a result."""

EDITS = ["append", "append", "append", "insert", "remove", "move", "change", "shape", "beside"]


def documents(provider: Format) -> list[Any]:
    """List documents that are usual, odd or wrong, some with Turnstate's own id in place of another."""
    listed = [one.document for one in [*ODD, *BROKEN] if one.provider == provider.name]
    listed += [provider.render(conversations.valid(seed, turns=2)) for seed in range(4)]
    return listed + [renamed(document, {"a": OWN_ID, "b": ""}) for document in listed]


def renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: renamed(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [renamed(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


def listed(document: Any, provider: Format) -> list[Any]:
    items = document.get(provider.list_key) if isinstance(document, dict) else document
    return items if isinstance(items, list) else []


def outcome(read: Any, document: Any) -> list[bytes] | tuple[type, str]:
    """Return messages as JSON, in which 1, 1.0 and true differ, or the error."""
    try:
        return [codec.encode(message) for message in read(document)]
    except TurnstateError as error:
        return type(error), str(error)


class Edited:
    """A document that is edited, in place, as a program's list of messages is."""

    def __init__(self, provider: Format, data: st.DataObject) -> None:
        self.draw, self.provider = data.draw, provider
        known = documents(provider)
        self.items = st.sampled_from([item for one in known for item in listed(one, provider)])
        self.others = st.sampled_from([one for one in known if isinstance(one, dict)])
        self.document: Any = deepcopy(self.draw(st.sampled_from(known)))

    def edit(self) -> None:
        items = listed(self.document, self.provider)
        place = self.draw(st.integers(0, len(items)))
        match self.draw(st.sampled_from(EDITS)):
            case "append":
                items.append(deepcopy(self.draw(self.items)))
            case "insert":
                items.insert(place, deepcopy(self.draw(self.items)))
            case "remove":
                del items[place : place + 1]
            case "move" if items:
                items.insert(place, items.pop(self.draw(st.integers(0, len(items) - 1))))
            case "change":
                items[place : place + 1] = [self.draw(mutations(one)) for one in items[place : place + 1]]
            case "shape":
                is_list = isinstance(self.document, list)
                self.document = {self.provider.list_key: items} if is_list else items
            case "beside" if isinstance(self.document, dict):
                self.document = {**deepcopy(self.draw(self.others)), self.provider.list_key: items}


@pytest.mark.req("A8")
@each_format
@examples(25, long=4_000)
@given(data=st.data())
def test_a_parser_reads_an_edited_document_as_if_it_were_new(provider: Format, data: st.DataObject) -> None:
    parser, edited = provider.parser(), Edited(provider, data)
    for _ in range(data.draw(st.integers(2, 8))):
        assert outcome(parser.parse, edited.document) == outcome(provider.parse, edited.document)
        edited.edit()


@each_format
@examples(10, long=1_000)
@given(data=st.data())
def test_a_document_is_made_to_fit_as_if_there_were_no_previous_one(
    provider: Format, data: st.DataObject
) -> None:
    edited = Edited(provider, data)
    previous: Fitted | None = None
    for _ in range(data.draw(st.integers(2, 5))):
        budget = data.draw(st.sampled_from([100, 300, 10_000]))
        fresh = fitting(edited.document, budget, provider)
        result = fitting(edited.document, budget, provider, previous)
        assert told(result) == told(fresh)
        if isinstance(result, Fitted):
            assert fit(edited.document, budget, format=provider.name, previous=previous) == result.payload
            previous = result
        edited.edit()


def fitting(
    document: Any, budget: int, provider: Format, previous: Fitted | None = None
) -> Fitted | TurnstateError:
    try:
        return fitted(document, budget, format=provider.name, previous=previous)
    except TurnstateError as error:
        return error


def told(result: Fitted | TurnstateError) -> bytes:
    """Return all that a result says, as JSON, in which 1, 1.0 and true differ."""
    if isinstance(result, TurnstateError):
        return repr(result).encode()
    return msgspec.json.encode([result.payload, result.to_json()])


@each_format
def test_a_parser_reads_every_prefix_of_every_document_as_if_it_were_new(provider: Format) -> None:
    for document in documents(provider):
        parser, items = provider.parser(), listed(document, provider)
        for end in range(len(items) + 1):
            prefix = (
                {**document, provider.list_key: items[:end]} if isinstance(document, dict) else items[:end]
            )
            assert outcome(parser.parse, prefix) == outcome(provider.parse, prefix)


@each_format
def test_a_longer_document_reuses_the_messages_of_the_shorter_one(provider: Format) -> None:
    document = provider.render(conversations.valid(3, turns=6))
    items, parser = document[provider.list_key], provider.parser()
    first = parser.parse(deepcopy({**document, provider.list_key: items[:-1]}))
    second = parser.parse(document)
    kept = first[:-1] if provider.name == "openai-responses" else first  # there the last one may go on
    assert all(one is other for one, other in zip(kept, second, strict=False))


def test_a_result_that_came_before_its_call_is_written_anew_when_the_call_comes() -> None:
    gemini, parser = formats.get("gemini"), Parser(formats.get("gemini"))  # type: ignore[arg-type]
    answer = {"functionResponse": {"id": OWN_ID, "name": "look", "response": {"output": "fog"}}}
    call = {"functionCall": {"id": OWN_ID, "name": "look", "args": {}}}
    document = [{"role": "user", "parts": [answer]}]
    (orphan,) = parser.parse(document)
    assert orphan.native is not None
    assert orphan.native.edits  # without its call, we would not know the name
    document.append({"role": "model", "parts": [call]})
    assert parser.parse(document) == gemini.parse(document)
    assert parser.parse(document)[0] != orphan


def test_values_that_python_takes_for_equal_are_read_anew() -> None:
    chat = formats.get("openai-chat")
    parser = chat.parser()
    for weight in (1, 1.0, True, "1", 0.0, -0.0):
        document = [{"role": "user", "content": "hi", "weight": weight}]
        assert outcome(parser.parse, document) == outcome(chat.parse, document)


def test_what_is_not_json_is_refused_in_every_version_and_forgotten() -> None:
    chat, good = formats.get("openai-chat"), [{"role": "user", "content": "hi"}]
    parser = chat.parser()
    first = parser.parse(good)
    for bad in (b"hi", float("nan"), "\ud800", {1: 2}, {"a": {3}}, ("a", object())):
        for document in ([*good, {"role": "user", "content": bad}], {"messages": good, "model": bad}, bad):
            refused = outcome(parser.parse, document)
            assert refused == outcome(chat.parse, document)
            assert isinstance(refused, tuple)
    assert parser.parse(good)[0] is first[0]
