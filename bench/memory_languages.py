"""Memories in Chinese and Japanese with questions, and plain BM25 over pairs of characters beside them.

Two kinds: diaries of MemDaily, each between 25 days of other people's chats from MemoryBank, read from the
folder of TURNSTATE_DATA; and dialogues of our own with an assistant, in ``bench/dialogues``. Of the latter,
the second of each language is set aside: it was not looked at when the ranking was tuned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from turnstate import Message

from .memory_dialogues import data_folder

HAYSTACK = 25
"""Days of chats around a diary."""

OWN = Path(__file__).parent / "dialogues"


class Asked(NamedTuple):
    """A question, its category, and the messages that contain the answer."""

    text: str
    kind: str
    evidence: frozenset[str]


class Memory(NamedTuple):
    """Sessions of messages, and questions about them."""

    name: str
    sessions: list[list[Message]]
    queries: list[Asked]


def diaries() -> list[Memory]:
    """Return the diaries of MemDaily in their haystacks, or an empty list if the files do not exist."""
    folder = data_folder("memdaily-dev.json")
    if folder is None:
        return []
    chats = json.loads((folder / "memorybank-cn-dev.json").read_text("utf-8"))
    days = [(user, day, said) for user, found in chats.items() for day, said in found.items()]
    return [
        _diary(one, [days[(number * 7 + n) % len(days)] for n in range(HAYSTACK)])
        for number, one in enumerate(json.loads((folder / "memdaily-dev.json").read_text("utf-8")))
    ]


def _diary(document: dict[str, Any], around: list[tuple[str, str, Any]]) -> Memory:
    sessions = [
        [
            message
            for place, said in enumerate(chat)
            for message in _exchange(said, f"{user} {day} {place}", day)
        ]
        for user, day, chat in around
    ]
    diary = [
        Message.user(one["text"], id=str(one["mid"]), timestamp=_time(one["time"]))
        for one in document["messages"]
    ]
    sessions.insert(HAYSTACK // 2, diary)
    kind = document["kind"].split("_")[1]
    queries = [
        Asked(one["question"], kind, frozenset(map(str, one["evidence"]))) for one in document["questions"]
    ]
    return Memory(f"{document['kind']} {document['tid']}", sessions, queries)


def _exchange(said: dict[str, str], name: str, day: str) -> Iterator[Message]:
    yield Message.user(said["query"], id=f"{name} user", timestamp=f"{day}T12:00:00Z")
    yield Message.assistant(said["response"], id=f"{name} assistant", timestamp=f"{day}T12:00:00Z")


def _time(text: str) -> str:
    year, month, day, hour, minute = re.findall(r"\d+", text)
    return f"{year}-{month}-{day}T{hour}:{minute}:00Z"


def own_dialogues() -> list[Memory]:
    """Return our own dialogues, two for each language."""
    return [_own(path) for path in sorted(OWN.glob("*.txt"))]


def is_own(memory: Memory) -> bool:
    """Return True if a memory is a dialogue of our own."""
    return "-" in memory.name


def is_set_aside(memory: Memory) -> bool:
    """Return True if a dialogue of our own was not looked at when the ranking was tuned."""
    return memory.name.endswith("-2")


_LINE = re.compile(r"(user|assistant|\?)(?: \[(\w+)\])?[:]? (.*)")


def _own(path: Path) -> Memory:
    sessions, queries, day = list[list[Message]](), list[Asked](), ""
    for number, line in enumerate(path.read_text("utf-8").splitlines()):
        if line.startswith("# "):
            day = line[2:]
            sessions.append([])
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"{path.name}, line {number + 1}: {line!r}")
        role, mark, text = found.groups()
        if role == "?":
            queries.append(Asked(text, path.stem.split("-")[0], frozenset([mark])))
        else:
            speak = Message.user if role == "user" else Message.assistant
            sessions[-1].append(speak(text, id=mark or str(number), timestamp=f"{day}T12:00:00Z"))
    return Memory(path.stem, sessions, queries)


_DENSE = re.compile("[\u3041-\u30ff\u3400-\u9fff]+")
_WORD = re.compile(r"[a-z0-9]+")


def pairs(text: str) -> list[str]:
    """Return the pairs of characters of a text, and its Latin words and numbers."""
    runs = _DENSE.findall(text)
    return [
        *("".join(pair) for run in runs for pair in pairwise(run)),
        *(run for run in runs if len(run) == 1),
        *_WORD.findall(text.lower()),
    ]
