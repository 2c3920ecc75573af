"""Evidence: what single messages, calls and results show, read off by rule and never guessed.

A topic is how a user message begins, in the user's words. A result is a failure when it says so:
by its flag, by an ``error`` in a structured one, or by the word that programs begin errors with (one
widespread format has no flag). Paths and ids are the values of arguments that are named for them.
Tasks are the items of a list with states that a call wrote, or of a list with check boxes in a text;
decisions are lines and arguments that are labeled so. Only beginnings are read, so the cost does not
follow the length of a text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Any, NamedTuple

from msgspec import Struct

from ..ids import CallId
from ..message import Message, ToolCallRequest, ToolCallResult
from ..part import TextPart
from .wording import line

__all__ = [
    "EARLIER",
    "Capacity",
    "Evidence",
    "Mention",
    "Mentions",
    "Outcomes",
    "Words",
    "decisions",
    "folded",
    "ids",
    "is_note",
    "open_tasks",
    "paths",
    "read",
    "reason",
    "topic",
]

TOPIC_CHARS = 200  # a long sentence or two; the next words are mostly details
WHY_CHARS = 100  # the line of an error that names the cause
PATH_CHARS = 160  # longer values under these keys are contents, not names
ID_CHARS = 64  # as long as a digest in hex
TASK_CHARS = 160
MOST_TASKS = 12  # of those that are open at once

EARLIER = ToolCallRequest(id=CallId("call_earlier"), name="an earlier call", args={})
"""Stands for a call that had been cut before its result came."""

_SHORT = 24  # characters of the longest that only agrees or greets
_AT_MOST = 16  # items of a list in one argument
_DEEPEST = 4  # levels of a structured error in which its message is looked for

_PATH_KEYS = frozenset(
    "path paths file files file_path file_paths filepath filename file_name filePath fileName "
    "target target_file notebook_path old_path new_path".split()
)
_DOUBTFUL_KEY = "target"  # names a path only when it looks like one
_ID_ENDINGS = ("_id", "_ids", "Id", "Ids")

_TRACEBACK = "Traceback (most recent call last)"
_ERROR_STARTS = ("Error:", "error:", _TRACEBACK)
_REASON_KEYS = ("message", "error", "detail", "reason", "stderr", "text")

_NOTE_STARTS = ("[Tool result that no open call awaits", "[Tool error that no open call awaits")

_READ_CHARS = 20_000  # of a text in which check boxes and decisions are looked for
_TASK_KEYS = frozenset("todos todo tasks task_list todo_list plan steps items".split())
_TASK_TEXTS = ("content", "title", "text", "task", "step", "description", "subject", "name")
_DONE = frozenset("done complete completed finished closed resolved cancelled canceled skipped".split())
_BOX = re.compile(r"^[ \t]*[-*+][ \t]+\[(?P<done>[ xX])\][ \t]+(?P<task>\S.{0,400})", re.MULTILINE)
_DECIDED = re.compile(
    r"^[ \t>*#-]*(?:decisions?|decided|決定(?:事項)?|决定|決策)\**[ \t]*[:：]\**[ \t]*(?P<what>\S.{0,400})",
    re.MULTILINE | re.IGNORECASE,
)
_DECISION_KEYS = ("decision", "decisions")
_BOXES = ("[ ]", "[x]", "[X]")
_BATCH = 256  # texts and arguments that are searched together
_DECISION_MARKS = ("ecision", "ecided", "ECISION", "ECIDED", "決定", "决定", "決策")

_NO_TOPICS = frozenset(
    """ok|okay|yes|no|yep|nope|sure|thanks|thank you|thx|please|hi|hello|hey|go on|go ahead|continue|proceed
    do it|next|stop|again|yes please|no thanks|great|good|perfect|done|y|n|k
    はい|いいえ|ありがとう|ありがとうございます|続けて|お願いします|了解|好|好的|是|是的|不|谢谢|謝謝|继续|繼續|네|아니요""".replace(
        "\n    ", "|"
    ).split("|")
)
"""What a user says without raising anything."""


class Outcomes(NamedTuple):
    """What became of calls; ``answers`` are the structured results of those that succeeded."""

    succeeded: list[ToolCallRequest]
    failed: list[tuple[ToolCallRequest, ToolCallResult]]
    answers: list[dict[str, Any]]


class Evidence(NamedTuple):
    """What messages show: what the user said, summaries among them, what became of calls.

    ``spoken`` is what user and assistant wrote and what calls that succeeded were given, in order.
    """

    said: list[Message]
    summaries: list[str]
    outcomes: Outcomes
    spoken: list[str | Mapping[str, Any]]


def topic(message: Message) -> str:
    """Return how a user message begins; nothing if it only agrees, greets or shows something."""
    words = line(_first_words(message), TOPIC_CHARS)
    if len(words) < _SHORT and words.strip(" .!?,。！？、").lower() in _NO_TOPICS:
        return ""
    return words


def is_note(message: Message) -> bool:
    """Return True if a user message is a tool result that the view shows as text."""
    return isinstance(message.content, str) and message.content.startswith(_NOTE_STARTS)


def read(messages: Iterable[Message]) -> Evidence:
    """Read messages; the outcomes of calls are in the order of their results.

    A result whose call is not among the messages counts for `EARLIER`; a second result of a call
    says nothing new.
    """
    said: list[Message] = []
    summaries: list[str] = []
    calls: dict[CallId, ToolCallRequest] = {}
    results: dict[CallId, tuple[ToolCallResult, bool]] = {}
    spoken: list[str | Mapping[str, Any]] = []
    for message in messages:
        role, content = message.role, message.content
        if role == "assistant":
            spoken.append(content if type(content) is str else _first_words(message))
            for call in message.tool_calls:
                calls[call.id] = call
        elif role == "tool":
            for result in message.tool_results:
                id = result.tool_call_id
                if id not in results:
                    fails = _fails(result)
                    results[id] = (result, fails)
                    if not fails and id in calls:
                        spoken.append(calls[id].args)
        elif role == "user":
            if not is_note(message):
                said.append(message)
                spoken.append(content if type(content) is str else _first_words(message))
        elif message.kind == "summary":
            summaries.append(message.text)
    return Evidence(said, summaries, _outcomes(calls, results), spoken)


def open_tasks(spoken: Iterable[str | Mapping[str, Any]], before: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the tasks that are open after all this, given those that were open before.

    A list that a call wrote replaces what was known; a check box adds a task, or closes it.
    """
    tasks = list(before)
    for one in _marked(spoken, _BOXES, _TASK_KEYS, sign="["):
        if isinstance(one, str):
            for box in _BOX.finditer(one):
                task = line(box["task"], TASK_CHARS)
                tasks = [known for known in tasks if known != task]
                tasks = [*tasks, task][-MOST_TASKS:] if box["done"] == " " else tasks
        elif (listed := _listed(one)) is not None:
            tasks = listed
    return tuple(tasks)


def decisions(spoken: Iterable[str | Mapping[str, Any]]) -> Iterator[str]:
    """Yield what was decided: lines and arguments that are labeled as decisions."""
    for one in _marked(spoken, _DECISION_MARKS, _DECISION_KEYS):
        if isinstance(one, str):
            yield from (line(found["what"], TOPIC_CHARS) for found in _DECIDED.finditer(one))
            continue
        for key in _DECISION_KEYS:
            if key in one:
                yield from (
                    line(what, TOPIC_CHARS) for what in _items(one[key]) if type(what) is str and what
                )


def paths(arguments: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the paths that the arguments of calls name."""
    return [
        one
        for args in arguments
        for key in args
        if key in _PATH_KEYS
        for one in _items(args[key])
        if type(one) is str and 0 < len(one) <= PATH_CHARS and (key != _DOUBTFUL_KEY or _looks_like_path(one))
    ]


def ids(values: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the ids that arguments and structured results name, each with its key there."""
    keys: set[str] = set().union(*values)
    wanted = {key for key in keys if key == "id" or key.endswith(_ID_ENDINGS)}
    if not wanted:
        return []
    return [
        (key[:ID_CHARS], str(one))
        for fields in values
        for key in fields
        if key in wanted
        for one in _items(fields[key])
        if type(one) is int or (type(one) is str and 0 < len(one) <= ID_CHARS)
    ]


def reason(result: ToolCallResult) -> str:
    """Return why a call failed, in the words of its result: at most a few levels down, one line."""
    value = result.result
    for _ in range(_DEEPEST):
        if isinstance(value, dict):
            value = next((value[key] for key in _REASON_KEYS if value.get(key)), "")
        elif isinstance(value, list | tuple):
            value = next(iter(value), "")
    if not isinstance(value, str):
        return "" if value is None or isinstance(value, dict | list | tuple) else str(value)[:WHY_CHARS]
    if value.startswith(_TRACEBACK):
        return _first_line(value[-2 * WHY_CHARS :].strip().rpartition("\n")[2])
    return _first_line(value[: 2 * WHY_CHARS])


@lru_cache(maxsize=256)
def _first_line(beginning: str) -> str:
    """Return the first line; agents tend to fail the same way again and again."""
    return line(beginning.strip().partition("\n")[0], WHY_CHARS)


def _first_words(message: Message) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    words = (part.text for part in content or () if isinstance(part, TextPart))
    return next((text for text in words if text and not text.isspace()), "")


def _outcomes(
    calls: Mapping[CallId, ToolCallRequest], results: Mapping[CallId, tuple[ToolCallResult, bool]]
) -> Outcomes:
    succeeded, failed, answers = found = Outcomes([], [], [])
    for id, (result, fails) in results.items():
        call = calls.get(id, EARLIER)
        if fails:
            failed.append((call, result))
        else:
            succeeded.append(call)
            if type(result.result) is dict:
                answers.append(result.result)
    return found


def _fails(result: ToolCallResult) -> bool:
    value = result.result
    if result.is_error:
        return True
    if type(value) is str:
        return value.startswith(_ERROR_STARTS)
    return type(value) is dict and bool(value.get("error"))


def _marked(
    spoken: Iterable[str | Mapping[str, Any]], marks: Sequence[str], keys: Collection[str], *, sign: str = ""
) -> Iterator[str | Mapping[str, Any]]:
    """Yield the beginnings of texts that may hold one of the marks, and arguments with one of the keys.

    Few do. Whether any of a batch does is told at the speed of C, and faster by a `sign` that all marks have.
    """
    given, wanted = iter(spoken), frozenset(keys)
    while batch := list(islice(given, _BATCH)):
        joined = "\n".join([one for one in batch if type(one) is str])
        is_marked = sign in joined and any(mark in joined for mark in marks)
        if not is_marked and wanted.isdisjoint(
            chain.from_iterable([one for one in batch if type(one) is dict])
        ):
            continue
        for one in batch:
            if type(one) is not str:
                if not wanted.isdisjoint(one):
                    yield one
            elif is_marked and any(mark in (start := one[:_READ_CHARS]) for mark in marks):
                yield start


def _listed(args: Mapping[str, Any]) -> list[str] | None:
    """Return the open tasks of a list with states; None if the arguments hold no such list."""
    for items in (args[key] for key in args if key in _TASK_KEYS):
        if type(items) is list and items and all(type(item) is dict for item in items):
            tasks = [(_task(item), _is_done(item)) for item in items]
            if all(task and done is not None for task, done in tasks):
                return [task for task, done in tasks if not done][:MOST_TASKS]
    return None


def _task(item: Mapping[str, Any]) -> str:
    texts = (item[key] for key in _TASK_TEXTS if type(item.get(key)) is str)
    return line(next(texts, ""), TASK_CHARS)


def _is_done(item: Mapping[str, Any]) -> bool | None:
    """Return True if a task is done, None if it does not say."""
    for key in ("status", "state"):
        if type(item.get(key)) is str:
            return item[key].strip().lower() in _DONE
    flags = (item[key] for key in ("done", "completed", "complete") if type(item.get(key)) is bool)
    return next(flags, None)


def _items(value: Any) -> Sequence[Any]:
    return value[:_AT_MOST] if type(value) is list else (value,)


def _looks_like_path(text: str) -> bool:
    return "://" not in text and any(mark in text for mark in "/\\.")


# Mentions: what came up, how often, in bounded room.


class Capacity(NamedTuple):
    """How many of the first and of the newest things are kept."""

    first: int
    newest: int


Words = str | tuple[str, ...]
"""A topic, a tool or a file; or several words that belong together, such as an id and what it is called."""


class Mention(Struct, frozen=True, array_like=True):
    """Something that came up, and how often."""

    words: Words
    times: int = 1

    @property
    def parts(self) -> tuple[str, ...]:
        """The words one by one; a single one is a tuple of one."""
        return (self.words,) if isinstance(self.words, str) else self.words


class Mentions(Struct, frozen=True, omit_defaults=True):
    """The first things in the order in which they came up, the newest by when they came up last."""

    first: tuple[Mention, ...] = ()
    newest: tuple[Mention, ...] = ()
    others: int = 0

    def __iter__(self) -> Iterator[Mention]:
        yield from self.first
        yield from self.newest

    def __bool__(self) -> bool:
        return bool(self.first or self.newest or self.others)

    @property
    def total(self) -> int:
        """How often anything was mentioned."""
        return sum(mention.times for mention in self) + self.others

    def some(self, most: int) -> tuple[list[Mention], int]:
        """Return at most that many, oldest and newest, and how often the others were mentioned."""
        known = list(self)
        if len(known) > most:
            old = min(len(self.first), (most + 2) // 3)
            known = known[:old] + known[len(known) - (most - old) :]
        return known, self.total - sum(mention.times for mention in known)


def folded(earlier: Mentions, came_up: Sequence[Words], room: Capacity, *, unread: int = 0) -> Mentions:
    """Fold what comes up now into what came up before; `unread` more are only counted."""
    times = Counter(came_up)
    first = {mention.words: mention.times for mention in earlier.first[: room.first]}
    for words in islice(times, room.first):
        if len(first) < room.first:
            first.setdefault(words, 0)
    first = {words: count + times[words] for words, count in first.items()}
    newest = {mention.words: mention.times for mention in earlier.newest}
    for words in reversed(_latest(came_up, most=min(len(times), room.first + room.newest))):
        newest[words] = newest.pop(words, 0) + times[words]
    kept = {words: count for words, count in newest.items() if words not in first}
    kept = dict(list(kept.items())[-room.newest :])
    total = earlier.total + len(came_up) + unread
    others = total - sum(first.values()) - sum(kept.values())
    return Mentions(_mentions(first), _mentions(kept), others)


def _latest(came_up: Sequence[Words], *, most: int) -> list[Words]:
    """Return the things that came up last, newest first, reading back no further than needed."""
    found: dict[Words, None] = {}
    for words in reversed(came_up):
        if len(found) == most:
            break
        found[words] = None
    return list(found)


def _mentions(counted: dict[Words, int]) -> tuple[Mention, ...]:
    return tuple(Mention(words, times) for words, times in counted.items())
