"""Work grows with the conversation, not with its square: counted in calls of functions, not in seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from turnstate import formats
from turnstate.message import Message

SMALL, LARGE = 15, 60
AT_MOST = 1.3  # times as much work for each message, when there are four times as many

CHAT, RESPONSES = formats.get("openai-chat"), formats.get("openai-responses")
FORMATS = [formats.get(name) for name in formats.names()]


def made(id: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "look", "arguments": '{ "at": 1 }'}}


def calls(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [made(id) for id in ids]}


def answers(*ids: str) -> list[dict[str, Any]]:
    return [{"role": "tool", "tool_call_id": id, "content": "fog"} for id in ids]


ASK = {"role": "user", "content": "Look."}


def rounds(size: int) -> list[Message]:
    return CHAT.parse([ASK, *(wire for _ in range(size) for wire in (calls("call_0"), *answers("call_0")))])


def wide_batch(size: int) -> list[Message]:
    ids = [f"call_{place}" for place in range(size)]
    return CHAT.parse([ASK, calls(*ids), *answers(*reversed(ids))])


def same_role(size: int) -> list[Message]:
    return CHAT.parse([ASK] * size + [{"role": "assistant", "content": "Fog."}] * size)


def late_answers(size: int) -> list[Message]:
    ids = [f"call_{place}" for place in range(size)]
    return CHAT.parse([ASK, *(wire for id in ids for wire in (calls(id), ASK)), *answers(*ids)])


def orphans(size: int) -> list[Message]:
    return CHAT.parse([ASK, *answers(*["zz"] * size)])


def hosted_items(size: int) -> list[Message]:
    items = [{"type": "web_search_call", "id": f"ws_{place}", "status": "completed"} for place in range(size)]
    return RESPONSES.parse([ASK, *items])


def marked_blocks(size: int) -> list[Message]:
    blocks = [{"type": "text", "text": "Look.", "cache_control": {"type": "ephemeral"}}] * size
    return formats.get("anthropic").parse([{"role": "user", "content": blocks}])


def work(action: Callable[[], Any]) -> int:
    """Count the calls that an action makes, those of built-in functions included."""
    count = 0

    def counting(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counting)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


def all_there_is(conversation: Callable[[int], list[Message]], provider: formats.Format, size: int) -> int:
    def action() -> None:
        messages = conversation(size)
        document = provider.render(messages)
        provider.validate(document, request=True)
        provider.render(provider.parse(document))
        formats.same(messages, messages)

    return work(action)


@pytest.mark.parametrize("provider", FORMATS)
@pytest.mark.parametrize(
    "conversation",
    [rounds, wide_batch, same_role, late_answers, orphans, hosted_items, marked_blocks],
)
def test_work_grows_with_the_conversation(
    conversation: Callable[[int], list[Message]], provider: formats.Format
) -> None:
    small, large = (all_there_is(conversation, provider, size) for size in (SMALL, LARGE))
    assert large / LARGE <= AT_MOST * small / SMALL


def test_a_planted_square_is_caught() -> None:
    def square(size: int) -> int:
        return work(lambda: [len(str(place)) for _ in range(size) for place in range(size)])

    assert square(LARGE) / LARGE > AT_MOST * square(SMALL) / SMALL
