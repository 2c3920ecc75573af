"""A model of Anthropic's prompt cache, by its published rules.

A request is a row of blocks: tools, then system, then the content of the messages. At each mark, the cache
writes the prefix that ends there; nothing is written anywhere else. At each mark it also looks for a prefix
that was written before: at the mark itself and at the blocks before it, `LOOK_BACK` positions in all. The
longest one that it finds is read, and the rest is processed again. Entries do not expire here, and no prefix
is too short: what a request finds in this cache is the most that the real one may find.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

LOOK_BACK = 20
MOST_MARKS = 4


class PromptCache:
    def __init__(self) -> None:
        self._entries = set[str]()
        self._seen = set[str]()
        self.sent = self.read = self.possible = 0

    def answer(self, request: dict[str, Any]) -> tuple[int, int]:
        """Return the bytes that are read from the cache, and those that began an earlier request, too."""
        blocks, marks = _blocks(request)
        assert len(marks) <= MOST_MARKS, f"{len(marks)} marks: the service rejects more than {MOST_MARKS}"
        ends, prefixes = _prefixes(blocks)
        found = [
            ends[at]
            for mark in marks
            for at in range(mark, max(-1, mark - LOOK_BACK), -1)
            if prefixes[at] in self._entries
        ]
        shared = [end for end, prefix in zip(ends, prefixes, strict=True) if prefix in self._seen]
        read, possible = max(found, default=0), max(shared, default=0)
        self._entries |= {prefixes[mark] for mark in marks}
        self._seen |= set(prefixes)
        self.sent, self.read, self.possible = self.sent + ends[-1], self.read + read, self.possible + possible
        return read, possible


def _blocks(request: dict[str, Any]) -> tuple[list[str], list[int]]:
    """Return the blocks of a request in the order of the cache, and the numbers of those with a mark."""
    blocks, marks = list[str](), list[int]()
    if "toolConfig" in request or "modelId" in request:
        parts: list[tuple[str, Sequence[dict[str, Any]]]] = [
            ("tools", request.get("toolConfig", {}).get("tools", ())),
            ("system", request.get("system", ())),
        ]
    else:
        system = request.get("system") or ()
        system = [{"type": "text", "text": system}] if isinstance(system, str) else system
        parts = [("tools", request.get("tools", ())), ("system", system)]
    for message in request["messages"]:
        content = message["content"]
        parts.append(
            (message["role"], [{"type": "text", "text": content}] if isinstance(content, str) else content)
        )
    for place, content in parts:
        for block in content:
            if "cachePoint" in block:
                marks.append(len(blocks) - 1)
                continue
            if "cache_control" in block:
                marks.append(len(blocks))
            bare = {key: value for key, value in block.items() if key != "cache_control"}
            blocks.append(f"{place} {json.dumps(bare, sort_keys=True)}")
    return blocks, marks


def _prefixes(blocks: list[str]) -> tuple[list[int], list[str]]:
    """Return for each block the length of the prefix that ends with it, and its hash."""
    ends, prefixes, size, state = list[int](), list[str](), 0, hashlib.blake2b(digest_size=12)
    for block in blocks:
        size += len(block)
        state.update(f"{len(block)} {block}".encode())
        ends.append(size)
        prefixes.append(state.hexdigest())
    return ends, prefixes
