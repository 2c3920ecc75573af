"""Real conversations with an airline's agent: the same document back, and every provider takes them."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from turnstate import formats

DATA = os.environ.get("TURNSTATE_DATA")
COUNT = 100

pytestmark = pytest.mark.req("A8")

if not DATA:
    pytest.skip("TURNSTATE_DATA is not set: the real conversations are elsewhere", allow_module_level=True)

CHAT = formats.get("openai-chat")
OTHERS = [formats.get(name) for name in formats.names() if name != CHAT.name]


@cache
def documents() -> list[Any]:
    lines = (Path(DATA) / "tau-airline-dev.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def exact(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def test_all_of_them_are_there() -> None:
    assert len(documents()) == COUNT


@pytest.mark.parametrize("number", range(COUNT))
def test_a_real_conversation_is_valid_and_comes_back_as_it_was(number: int) -> None:
    line = documents()[number]
    for document in (line, line["messages"]):
        assert CHAT.validate(document) == []
        assert exact(CHAT.rendering(CHAT.parse(document)).document) == exact(document)


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.name)
@pytest.mark.parametrize("number", range(COUNT))
def test_a_real_conversation_goes_to_another_provider_and_back(number: int, other: formats.Format) -> None:
    messages = CHAT.parse(documents()[number]["messages"])
    rendered = other.render(messages)
    assert other.validate(rendered) == []
    abroad = other.parse(rendered)
    assert formats.same(messages, abroad)
    assert exact(other.render(abroad)) == exact(rendered)
    back = CHAT.render(abroad)
    assert CHAT.validate(back) == []
    assert formats.same(messages, CHAT.parse(back))


def test_ids_repeat_across_batches_in_a_quarter_of_them_and_become_unique_elsewhere() -> None:
    repeating = 0
    for line in documents():
        made = [call["id"] for message in line["messages"] for call in message.get("tool_calls") or ()]
        repeating += len(set(made)) < len(made)
        rendered = formats.get("anthropic").render(CHAT.parse(line["messages"]))
        blocks = [one for wire in rendered["messages"] for one in wire["content"] if isinstance(one, dict)]
        used = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert len(set(used)) == len(used) == len(made)
    assert repeating > COUNT // 10
