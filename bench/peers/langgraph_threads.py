"""LangGraph conversations on any saver: one checkpoint per step, with the whole channel of messages in it.

That is what an agent's graph stores after each step. Only the checkpoint is written here. A graph also stores
the writes of the step, with an fsync of their own, and merges the new messages into the channel; both are
left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bench.peers.service import Row

_messages: Any = import_module("langchain_core.messages")  # only installed here, so it cannot be type-checked
_checkpoints: Any = import_module("langgraph.checkpoint.base")


class Thread:
    """An open conversation, with its channel in memory as in a graph."""

    def __init__(self, saver: Any, session: str) -> None:
        self._saver = saver
        self._config: Any = {"configurable": {"thread_id": session, "checkpoint_ns": ""}}
        self._channel, self._step = list[Any](), 0

    async def write(self, messages: Sequence[Any]) -> None:
        """Add messages to the channel and store all of it."""
        self._channel += messages
        self._step += 1
        version = {"messages": f"{self._step:032}"}
        checkpoint = _checkpoints.empty_checkpoint() | {
            "channel_values": {"messages": self._channel},
            "channel_versions": version,
        }
        metadata = {"source": "loop", "step": self._step, "parents": {}}
        self._config = await self._saver.aput(self._config, checkpoint, metadata, version)

    async def read(self, count: int) -> int:
        """Load the newest checkpoint, which contains everything; `count` has no effect."""
        found = await self._saver.aget_tuple(self._config)
        self._channel = found.checkpoint["channel_values"]["messages"]
        return len(self._channel)


def messages(row: Row) -> list[Any]:
    """Convert one of our messages to LangChain messages; a tool message becomes one per result."""
    match row["role"]:
        case "user":
            return [_messages.HumanMessage(_text(row.get("content")), id=row["id"])]
        case "tool":
            return [_result(row["id"], place, one) for place, one in enumerate(row["tool_results"])]
        case _:
            text, calls = _text(row.get("content")), [_call(one) for one in row.get("tool_calls", ())]
            return [_messages.AIMessage(text, id=row["id"], tool_calls=calls)]


def _call(call: Row) -> Row:
    return {"id": call["id"], "name": call["name"], "args": call["args"]}


def _result(id: str, place: int, result: Row) -> Any:
    return _messages.ToolMessage(
        _text(result["result"]), id=f"{id}.{place}", tool_call_id=result["tool_call_id"]
    )


def _text(content: Any) -> str:
    """Return a string unchanged, an empty string for None, and anything else as JSON."""
    if content is None:
        return ""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
