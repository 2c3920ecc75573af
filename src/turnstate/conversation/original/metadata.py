"""What is known of a request: the original's record of ids, times and sizes, as a usage entry and back.

A record that came from the original is kept whole, as the details. One of our own is written with what it
knows, and with what can be told from the answer; the rest is zero, empty or null.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ...entry import Usage
from ...message import Message

__all__ = ["of_answer", "of_summary", "read"]

COMPACT = "Compact"

_BLANK: dict[str, Any] = {
    "request_id": None,
    "message_id": "",
    "request_start_timestamp_ms": 0,
    "stream_end_timestamp_ms": 0,
    "time_to_first_chunk": None,
    "time_between_chunks": [],
    "user_prompt_length": 0,
    "response_size": 0,
    "chat_conversation_type": None,
    "tool_use_ids_and_names": [],
    "model_id": None,
    "message_meta_tags": [],
}
_NULLABLE = {name for name, value in _BLANK.items() if value is None}
_REQUIRED = _BLANK.keys() - _NULLABLE


def read(document: dict[str, Any]) -> Usage:
    """Read a record."""
    return Usage(model=document.get("model_id") or "", details=document)


def of_answer(usage: Usage, prompt_bytes: int, answer: Message, written: dict[str, Any]) -> dict[str, Any]:
    """Write the record of a request that was answered; `written` is the answer as the original has it."""
    if usage.details.keys() >= _REQUIRED:
        return dict(usage.details)
    moment = int(datetime.fromisoformat(answer.timestamp).timestamp() * 1000)
    calls = written.get("tool_uses", [])
    return {
        **_BLANK,
        "message_id": written["message_id"] or str(answer.id),
        "request_start_timestamp_ms": max(0, moment),
        "stream_end_timestamp_ms": max(0, moment),
        "user_prompt_length": prompt_bytes,
        "response_size": len(written["content"].encode()),
        "chat_conversation_type": "ToolUse" if calls else "NotToolUse",
        "tool_use_ids_and_names": [[call["id"], call["name"]] for call in calls],
        "model_id": usage.model or None,
    }


def of_summary(text: str, id: str, model: str) -> dict[str, Any]:
    """Write the record of a summary that the original did not make."""
    known = {"message_id": id, "response_size": len(text.encode()), "model_id": model or None}
    return {**_BLANK, **known, "message_meta_tags": [COMPACT]}
