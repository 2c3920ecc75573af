"""LangChain's `trim_messages`, with an exact counter: its windows and its times, as JSON.

This script runs in the peer's environment. The first argument is a file with a long history and with cases to
cut; then every line of input asks for a time or for all windows, and is answered with one line. Every row
says what to count: its texts, with the vocabulary that Turnstate uses, and the fixed tokens of its frame. So
the totals equal Turnstate's, and the peer does not even have to collect the texts. `exact` counts them with
tiktoken whenever the peer asks, as LangChain's users do; `known` looks the number up.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from bench.offline_tiktoken import encoding

_messages = import_module("langchain_core.messages")  # only installed here, so it cannot be type-checked

MODES: dict[str, dict[str, Any]] = {"defaults": {}, "human": {"start_on": "human", "include_system": True}}

ENOUGH, MOST_ROUNDS = 0.5, 101  # seconds and rounds, as for Turnstate

_Count = Callable[[Sequence[Any]], int]


def main() -> None:
    """Print the versions, then answer line by line."""
    given = json.loads(Path(sys.argv[1]).read_text())
    history, (exact, known) = [_message(row) for row in given["history"]], _counts(given["history"])
    known(history)
    _print({name: metadata.version(name) for name in ("langchain-core", "tiktoken")})
    for line in sys.stdin:
        asked = json.loads(line)
        if asked is None:
            _print({mode: [window(case, mode) for case in given["cases"]] for mode in MODES})
        else:
            part = history[asked["start"] :]
            _print({"exact": _median(part, exact, asked), "known": _median(part, known, asked)})


def window(case: dict[str, Any], mode: str) -> list[str]:
    """Return the ids of the messages that the peer keeps of a conversation."""
    exact, _ = _counts(case["rows"])
    messages = [_message(row) for row in case["rows"]]
    kept = _messages.trim_messages(messages, max_tokens=case["limit"], token_counter=exact, **MODES[mode])
    return [message.id for message in kept]


def _counts(rows: list[dict[str, Any]]) -> tuple[_Count, _Count]:
    counted = {row["id"]: (row["frame"], row["texts"]) for row in rows}
    remembered: dict[str, int] = {}
    encode = encoding("o200k_base").encode

    def cost(id: str) -> int:
        frame, texts = counted[id]
        return int(frame + sum(len(encode(text, disallowed_special=())) for text in texts))

    def exact(messages: Sequence[Any]) -> int:
        return sum(cost(message.id) for message in messages)

    def known(messages: Sequence[Any]) -> int:
        if len(remembered) < len(counted):
            remembered.update((id, cost(id)) for id in counted)
        return sum(remembered[message.id] for message in messages)

    return exact, known


def _message(row: dict[str, Any]) -> Any:
    match row["role"]:
        case "user":
            return _messages.HumanMessage(row["content"], id=row["id"])
        case "system":
            return _messages.SystemMessage(row["content"], id=row["id"])
        case "tool":
            return _messages.ToolMessage(row["content"], id=row["id"], tool_call_id=row["call"])
        case _:
            return _messages.AIMessage(row["content"], id=row["id"], tool_calls=row["calls"])


def _median(messages: list[Any], count: _Count, timing: dict[str, int]) -> float:
    spent: list[float] = []
    while len(spent) < timing["rounds"] or (sum(spent) < ENOUGH and len(spent) < MOST_ROUNDS):
        start = time.process_time()
        _messages.trim_messages(messages, max_tokens=timing["limit"], token_counter=count)
        spent.append(time.process_time() - start)
    return statistics.median(spent)


def _print(found: Any) -> None:
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
