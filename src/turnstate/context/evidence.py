"""Evidence: what individual messages, calls and results show, extracted by rule and never guessed.

A topic is the beginning of a user message, in the user's words. A result is a failure if it says so: by its
flag, by an ``error`` key in a structured result, or by the word that programs begin errors with (one
widespread format has no flag). Paths and ids are the values of arguments with such names. Tasks are the items
of a list with states that a call wrote, or of a list with checkboxes in a text. Decisions are lines and
arguments that are labeled as such. Only the beginning of a text is read, so the cost does not grow with its
length.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ..ids import CallId
from ..message import Message, ToolCallRequest, ToolCallResult
from ..part import TextPart
from .summary_text import line

TOPIC_CHARS = 200  # a long sentence or two; what follows is mostly details
WHY_CHARS = 100  # the line of an error that names the cause
PATH_CHARS = 160  # longer values under these keys are contents, not names
ID_CHARS = 64  # as long as a digest in hex
TASK_CHARS = 160
MOST_TASKS = 12  # open tasks that are kept
NAME_CHARS = 64  # the longest tool name that a provider accepts

Spoken = str | Mapping[str, Any]
"""The text that a user or an assistant wrote, or the arguments of a call that succeeded."""

EARLIER = ToolCallRequest(id=CallId("call_earlier"), name="an earlier call", args={})
"""Stands for a call that was cut before its result arrived."""

_SHORT = 24  # characters of the longest message that only agrees or greets
_AT_MOST = 16  # items of a list in one argument
_DEEPEST = 4  # levels of a structured error that are searched for its message

_PATH_KEYS = frozenset(
    "path paths file files file_path file_paths filepath filename file_name filePath fileName "
    "target target_file notebook_path old_path new_path".split()
)
_DOUBTFUL_KEY = "target"  # names a path only if its value looks like one
_ID_ENDINGS = ("_id", "_ids", "Id", "Ids")

_TRACEBACK = "Traceback (most recent call last)"
_ERROR_STARTS = ("Error:", "error:", _TRACEBACK)
_REASON_KEYS = ("message", "error", "detail", "reason", "stderr", "text")

_NOTE_STARTS = ("[Tool result that no open call awaits", "[Tool error that no open call awaits")

_READ_CHARS = 20_000  # of a text that are searched for checkboxes and decisions
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

_LISTS = (
    *("said", "summaries", "succeeded", "failed", "files"),
    *("ids", "answered_ids", "decided", "tasks"),
)

_NO_TOPICS = frozenset(
    """ok|okay|yes|no|yep|nope|sure|thanks|thank you|thx|please|hi|hello|hey|go on|go ahead|continue|proceed
    do it|next|stop|again|yes please|no thanks|great|good|perfect|done|y|n|k
    はい|いいえ|ありがとう|ありがとうございます|続けて|お願いします|了解|好|好的|是|是的|不|谢谢|謝謝|继续|繼續|네|아니요""".replace(
        "\n    ", "|"
    ).split("|")
)
"""What users say without raising a topic."""


class Evidence:
    """What messages show, read in order; later messages can be added.

    ``said`` holds user messages; ``succeeded`` names of calls; ``failed`` names, files and reasons; ``ids``
    the ids in arguments, ``answered_ids`` those in results; ``tasks`` texts and arguments that may contain a
    task list. A result whose call is not among the messages is attributed to `EARLIER`, and a second result
    of a call is ignored.
    """

    def __init__(self) -> None:
        self.messages = 0
        self.said = list[Message]()
        self.summaries = list[str]()
        self.succeeded = list[str]()
        self.failed = list[tuple[str, str, str]]()
        self.files = list[str]()
        self.ids = list[tuple[str, str]]()
        self.answered_ids = list[tuple[str, str]]()
        self.decided = list[str]()
        self.tasks = list[Spoken]()
        self._calls = dict[CallId, ToolCallRequest]()
        self._answered = set[CallId]()

    def read(self, messages: Sequence[Message]) -> Evidence:
        """Read the next messages; outcomes of calls are in the order of their results.

        A cut may remove a hundred thousand messages, so each kind of evidence is read in one pass over all.
        """
        self.messages += len(messages)
        self.said += [message for message in messages if message.role == "user" and not is_note(message)]
        self.summaries += [message.text for message in messages if message.kind == "summary"]
        self._calls.update([(call.id, call) for message in messages for call in message.tool_calls])
        results = [result for message in messages for result in message.tool_results]
        marked = self._read_outcomes(self._unread(results)) if results else {}
        self._read_marked(_spoken(messages, marked))
        return self

    def _unread(self, results: list[ToolCallResult]) -> list[ToolCallResult]:
        """Return the first result of each call."""
        calls = {result.tool_call_id for result in results}
        if len(calls) == len(results) and self._answered.isdisjoint(calls):  # nearly always
            self._answered |= calls
            return results
        first = list[ToolCallResult]()
        for result in results:
            if result.tool_call_id not in self._answered:
                self._answered.add(result.tool_call_id)
                first.append(result)
        return first

    def _read_outcomes(self, results: list[ToolCallResult]) -> dict[CallId, Mapping[str, Any]]:
        """Read the outcomes of calls; return the arguments that may contain tasks and decisions."""
        calls = self._calls
        failed = [one for one in results if one.is_error or _says_error(one.result)]
        if failed:
            self.failed += [_failure(calls.get(one.tool_call_id, EARLIER), one) for one in failed]
            failures = set(map(id, failed))
            results = [one for one in results if id(one) not in failures]
        done = [calls.get(one.tool_call_id, EARLIER) for one in results]
        self.succeeded += [call.name[:NAME_CHARS] for call in done]
        args = _Objects([call.args for call in done])
        self.files += args.paths()
        self.ids += args.ids()
        self.answered_ids += ids([value for one in results if type(value := one.result) is dict])
        if not args.are_marked:
            return {}
        return {call.id: call.args for call in done if _fields(tuple(call.args)).is_marked}

    def _read_marked(self, spoken: list[Spoken]) -> None:
        """Collect what may contain tasks and decisions; a fast substring search rules out most texts."""
        for first in range(0, len(spoken), _BATCH):
            batch = spoken[first : first + _BATCH]
            texts = "\n".join([one for one in batch if type(one) is str])
            others = any(type(one) is not str for one in batch)
            if others or ("[" in texts and any(box in texts for box in _BOXES)):
                self.tasks += _marked(batch, _BOXES, _TASK_KEYS)
            if others or any(mark in texts for mark in _DECISION_MARKS):
                self.decided += decisions(batch)

    def __add__(self, later: Evidence) -> Evidence:
        """Return the evidence of both, as if their messages were read one after the other."""
        both = Evidence()
        both.messages = self.messages + later.messages
        for name in _LISTS:
            getattr(both, name).extend(getattr(self, name))
            getattr(both, name).extend(getattr(later, name))
        return both


def topic(message: Message) -> str:
    """Return the beginning of a user message; empty if it only agrees, greets or shows something."""
    words = line(_first_words(message), TOPIC_CHARS)
    if len(words) < _SHORT and words.strip(" .!?,。！？、").lower() in _NO_TOPICS:
        return ""
    return words


def is_note(message: Message) -> bool:
    """Return True if a user message is a tool result that the view shows as text."""
    return isinstance(message.content, str) and message.content.startswith(_NOTE_STARTS)


def open_tasks(spoken: Iterable[Spoken], before: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the tasks that are open at the end, given those that were open before.

    A list that a call wrote replaces the known tasks; a checkbox adds a task or closes it.
    """
    tasks = list(before)
    for one in _marked(spoken, _BOXES, _TASK_KEYS):
        if isinstance(one, str):
            for box in _BOX.finditer(one):
                task = line(box["task"], TASK_CHARS)
                tasks = [known for known in tasks if known != task]
                tasks = [*tasks, task][-MOST_TASKS:] if box["done"] == " " else tasks
        elif (listed := _listed(one)) is not None:
            tasks = listed
    return tuple(tasks)


def decisions(spoken: Iterable[Spoken]) -> Iterator[str]:
    """Yield the decisions: lines and arguments that are labeled as such."""
    for one in _marked(spoken, _DECISION_MARKS, _DECISION_KEYS):
        if isinstance(one, str):
            yield from (line(found["what"], TOPIC_CHARS) for found in _DECIDED.finditer(one))
            continue
        for key in _DECISION_KEYS:
            if key in one:
                yield from (
                    line(what, TOPIC_CHARS) for what in _items(one[key]) if type(what) is str and what
                )


def paths(arguments: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the paths that the arguments of calls name."""
    return _Objects(arguments).paths()


def ids(values: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the ids that arguments and structured results name, each with its key."""
    return _Objects(values).ids()


class _Objects:
    """JSON objects grouped by their keys: the tools of a conversation use only a few sets of keys."""

    def __init__(self, values: Sequence[Mapping[str, Any]]) -> None:
        self._values, self._keys = values, list(map(tuple, values))
        self._fields = {keys: _fields(keys) for keys in set(self._keys)}

    @property
    def are_marked(self) -> bool:
        """True if any of the objects may contain tasks or decisions."""
        return any(fields.is_marked for fields in self._fields.values())

    def paths(self) -> list[str]:
        return [
            one
            for key, one in self._under({keys: fields.paths for keys, fields in self._fields.items()})
            if type(one) is str
            and 0 < len(one) <= PATH_CHARS
            and (key != _DOUBTFUL_KEY or _looks_like_path(one))
        ]

    def ids(self) -> list[tuple[str, str]]:
        return [
            (key[:ID_CHARS], str(one))
            for key, one in self._under({keys: fields.ids for keys, fields in self._fields.items()})
            if type(one) is int or (type(one) is str and 0 < len(one) <= ID_CHARS)
        ]

    def _under(self, wanted: Mapping[tuple[str, ...], tuple[str, ...]]) -> list[tuple[str, Any]]:
        """Return the values under wanted keys, each with its key; of a list, its first items."""
        if not any(wanted.values()):
            return []
        found = [
            (key, value[key])
            for value, keys in zip(self._values, self._keys, strict=True)
            for key in wanted[keys]
        ]
        if not any(type(value) is list for _, value in found):
            return found
        return [(key, one) for key, value in found for one in _items(value)]


class _Fields(NamedTuple):
    """The keys of an object that name paths and ids, and whether any key holds tasks or decisions."""

    paths: tuple[str, ...]
    ids: tuple[str, ...]
    is_marked: bool


@lru_cache(maxsize=256)
def _fields(keys: tuple[str, ...]) -> _Fields:
    return _Fields(
        tuple(key for key in keys if key in _PATH_KEYS),
        tuple(key for key in keys if key == "id" or key.endswith(_ID_ENDINGS)),
        is_marked=any(key in _TASK_KEYS or key in _DECISION_KEYS for key in keys),
    )


def reason(result: ToolCallResult) -> str:
    """Return why a call failed, as one line from its result, searched at most a few levels deep."""
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
    """Return the first line; cached, since agents tend to fail the same way again and again."""
    return line(beginning.strip().partition("\n")[0], WHY_CHARS)


def _first_words(message: Message) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    words = (part.text for part in content or () if isinstance(part, TextPart))
    return next((text for text in words if text and not text.isspace()), "")


def _says_error(value: Any) -> bool:
    if type(value) is str:
        return value.startswith(_ERROR_STARTS)
    return type(value) is dict and bool(value.get("error"))


def _failure(call: ToolCallRequest, result: ToolCallResult) -> tuple[str, str, str]:
    on = paths([call.args])
    return call.name[:NAME_CHARS], on[0] if on else "", reason(result)


def _spoken(messages: Sequence[Message], marked: Mapping[CallId, Mapping[str, Any]]) -> list[Spoken]:
    """Return what user and assistant wrote, and marked arguments at the position of their results."""
    if not marked:
        return [_first_words(message) for message in messages if message.content and _speaks(message)]
    spoken = list[Spoken]()
    for message in messages:
        if message.content and _speaks(message):
            spoken.append(_first_words(message))
        spoken += [marked[id] for one in message.tool_results if (id := one.tool_call_id) in marked]
    return spoken


def _speaks(message: Message) -> bool:
    return message.role == "assistant" or (message.role == "user" and not is_note(message))


def _marked(spoken: Iterable[Spoken], marks: Sequence[str], keys: Collection[str]) -> Iterator[Spoken]:
    """Yield the beginnings of texts that contain one of the marks, and arguments with one of the keys."""
    for one in spoken:
        if type(one) is not str:
            if any(key in keys for key in one):
                yield one
        elif any(mark in (start := one[:_READ_CHARS]) for mark in marks):
            yield start


def _listed(args: Mapping[str, Any]) -> list[str] | None:
    """Return the open tasks of a list with states; None if the arguments contain no such list."""
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
    """Return True if a task is done, None if its state is unknown."""
    for key in ("status", "state"):
        if type(item.get(key)) is str:
            return item[key].strip().lower() in _DONE
    flags = (item[key] for key in ("done", "completed", "complete") if type(item.get(key)) is bool)
    return next(flags, None)


def _items(value: Any) -> Sequence[Any]:
    return value[:_AT_MOST] if type(value) is list else (value,)


def _looks_like_path(text: str) -> bool:
    return "://" not in text and any(mark in text for mark in "/\\.")
