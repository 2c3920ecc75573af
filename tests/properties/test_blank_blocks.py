"""Blank text anywhere in a valid document changes nothing in what is sent."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.thoroughness import examples
from tests.properties.conversation_strategies import conversations
from turnstate import Budget, StateManager, formats
from turnstate.context.fit import fit
from turnstate.message import Message

pytestmark = pytest.mark.req("A8", "P4")

BLANK = {"anthropic": lambda text: {"type": "text", "text": text}, "bedrock": lambda text: {"text": text}}


def block_lists(document: dict[str, Any]) -> Iterator[list[Any]]:
    """Yield every list of blocks that holds something: prompts, messages, and results within them."""
    if isinstance(document.get("system"), list):
        yield document["system"]
    for message in document["messages"]:
        if isinstance(message["content"], list):
            yield message["content"]
            for block in message["content"]:
                result = block.get("toolResult", block)
                if "text" not in result and isinstance(result.get("content"), list) and result["content"]:
                    yield result["content"]


@examples(25, long=1_500)
@given(
    messages=conversations(),
    name=st.sampled_from(sorted(BLANK)),
    places=st.lists(
        st.tuples(st.integers(0), st.integers(0), st.sampled_from(["\n\n", " ", "\t", ""])), min_size=1
    ),
)
def test_blank_text_anywhere_is_left_out_and_nothing_else_changes(
    messages: list[Message], name: str, places: list[tuple[int, int, str]]
) -> None:
    format = formats.get(name)
    document = format.render(messages)
    assert format.validate(document) == []
    before = StateManager().window(format.parse(document), Budget.UNLIMITED).render(name)
    blanked = copy.deepcopy(document)
    lists = [one for one in block_lists(blanked) if one]
    for which, place, text in places if lists else ():
        chosen = lists[which % len(lists)]
        chosen.insert(place % (len(chosen) + 1), BLANK[name](text))
    read = format.parse(blanked)
    assert format.render(read) == blanked
    window = StateManager().window(read, Budget.UNLIMITED)
    assert window.render(name) == before
    assert format.validate(fit(blanked, 1_000_000, format=name)) == []
