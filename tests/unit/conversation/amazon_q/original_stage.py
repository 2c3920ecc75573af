"""What the tests of the original's documents share: the example, pieces to build others, a still system."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from turnstate.conversation import ConversationState, amazon_q
from turnstate.sticky import Workspace

EXAMPLE = Path(__file__).parents[4] / "docs/examples/qcli.json"
NOW = 1_761_368_600_000
NOWHERE = Path("/nonexistent")

Document = dict[str, Any]


class Still:
    """A system whose clock stands still, and which has no files."""

    def now(self) -> int:
        return NOW

    def workspace(self) -> Workspace:
        return Workspace(root=NOWHERE, home=NOWHERE)


def example(**changes: Any) -> Document:
    """Return the example, with some fields changed."""
    return {**json.loads(EXAMPLE.read_text()), **changes}


def read(document: Any) -> ConversationState:
    return amazon_q.read(document, os=Still())


def user(content: Document, **changes: Any) -> Document:
    return {
        "additional_context": "",
        "env_context": {"env_state": None},
        "content": content,
        "timestamp": None,
        "images": None,
        **changes,
    }


def prompt(text: str) -> Document:
    return {"Prompt": {"prompt": text}}


def answers(*results: Document) -> Document:
    return {"ToolUseResults": {"tool_use_results": list(results)}}


def result(id: str, *blocks: Document, status: str = "Success") -> Document:
    return {"tool_use_id": id, "content": list(blocks), "status": status}


def response(text: str, message_id: str | None = None) -> Document:
    return {"Response": {"message_id": message_id, "content": text}}


def uses(*calls: Document, text: str = "") -> Document:
    return {"ToolUse": {"message_id": None, "content": text, "tool_uses": list(calls)}}


def use(id: str, name: str = "fs_read", args: Any = None, **changes: Any) -> Document:
    args = {"path": "a"} if args is None else args
    return {"id": id, "name": name, "orig_name": name, "args": args, "orig_args": args, **changes}


def exchange(said: Document, answer: Document, record: Document | None = None) -> Document:
    return {"user": said, "assistant": answer, "request_metadata": record}


def of(*history: Document, **changes: Any) -> Document:
    """Return a document with this history and little else."""
    return {
        "conversation_id": "c-1",
        "next_message": None,
        "history": list(history),
        "valid_history_range": [0, len(history)],
        "transcript": [],
        "tools": {},
        "context_manager": None,
        "context_message_length": None,
        "latest_summary": None,
        "file_line_tracker": {},
        "checkpoint_manager": None,
        "mcp_enabled": True,
        **changes,
    }


def talk(*words: str) -> list[Document]:
    """Return exchanges in which each of these was asked and answered."""
    return [exchange(user(prompt(text)), response(f"answer to {text}")) for text in words]


def record(**changes: Any) -> Document:
    return {**example()["history"][0]["request_metadata"], **changes}
