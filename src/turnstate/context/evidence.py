"""Evidence: what messages, calls and results show, extracted by rule and never guessed.

A topic is the beginning of a user message, in the user's words. What calls did is read by `deeds`, and only
for as many as a digest can hold. Tasks are the items of a list with states that a call wrote, or of a list
with checkboxes in a text. Decisions are lines and arguments that are labeled as such. Only the beginning of
a text is read, so the cost does not grow with its length."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..ids import CallId
from ..message import Message, ToolCallRequest, ToolCallResult
from ..part import TextPart
from . import deeds, speech
from .deeds import NAME_CHARS, Deed
from .speech import READ_CHARS, SAID_CHARS, says_nothing
from .summary_text import line

TASK_CHARS = 160
MOST_TASKS = 12  # open tasks that are kept

Spoken = str | Mapping[str, Any]
"""The text that a user or an assistant wrote, or the arguments of a call that succeeded."""

EARLIER = ToolCallRequest(id=CallId("call_earlier"), name="an earlier call", args={})
"""Stands for a call that was cut before its result arrived."""

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
_MARKED_KEYS = _TASK_KEYS.union(_DECISION_KEYS)
_AT_MOST = 16  # items of a list in one argument
_BOXES = ("[ ]", "[x]", "[X]")
_BATCH = 256  # texts and arguments that are searched together
_DECISION_MARKS = ("ecision", "ecided", "ECISION", "ECIDED", "決定", "决定", "決策")

_LISTS = ("said", "summaries", "succeeded", "outcomes", "answers", "decided", "tasks")


class Outcome:
    """A call with its result, and the number of user messages before it; it is read when needed."""

    __slots__ = ("_deed", "_named", "_why", "call", "failed", "result", "said")

    def __init__(self, call: ToolCallRequest, result: ToolCallResult, said: int, *, failed: bool) -> None:
        self.call, self.result, self.said, self.failed = call, result, said, failed
        self._deed: Deed | None = None
        self._why: str | None = None
        self._named: Named | None = None

    def after(self, said: int) -> Outcome:
        """Return the outcome as it is with so many more user messages before it."""
        moved = Outcome(self.call, self.result, self.said + said, failed=self.failed)
        moved._deed, moved._why, moved._named = self._deed, self._why, self._named
        return moved

    @property
    def only_read(self) -> bool:
        """True if the call changed nothing, or only wrote the list of tasks."""
        return _listed(self.call.args) is not None or deeds.only_reads(
            self.call.name, deeds.command_of(self.call)
        )

    @property
    def deed(self) -> Deed:
        """What was done to what."""
        if self._deed is None:
            self._deed = deeds.deed(self.call)
        return self._deed

    @property
    def why(self) -> str:
        """Why the call failed."""
        if self._why is None:
            self._why = deeds.reason(self.result)
        return self._why

    @property
    def named(self) -> Named:
        """The paths and ids that call and result name."""
        if self._named is None:
            args, result = self.call.args, self.result.result
            self._named = Named(deeds.paths(args), deeds.ids(args), deeds.ids(result))
        return self._named


class Named(NamedTuple):
    """The paths and ids in the arguments of a call, and the ids in its result."""

    paths: Sequence[str]
    given: Sequence[tuple[str, str]]
    answered: Sequence[tuple[str, str]]


class Evidence:
    """What messages show, read in order; later messages can be added.

    ``said`` holds user messages; ``answers`` texts of the assistant that end a turn; ``outcomes`` the calls
    with their results, ``succeeded`` the names of those that did not fail; ``tasks`` texts and arguments that
    may contain a task list. A result whose call is not among the messages is attributed to `EARLIER`, and a
    second result of a call is ignored.
    """

    def __init__(self) -> None:
        self.messages = 0
        self.said = list[Message]()
        self.summaries = list[str]()
        self.succeeded = list[str]()
        self.outcomes = list[Outcome]()
        self.answers = list[str]()
        self.decided = list[str]()
        self.tasks = list[Spoken]()
        self._calls = dict[CallId, ToolCallRequest]()
        self._answered = set[CallId]()

    def read(self, messages: Sequence[Message]) -> Evidence:
        """Read the next messages; outcomes of calls are in the order of their results.

        A cut may remove a hundred thousand messages, so only what every message needs is done here.
        """
        self.messages += len(messages)
        marked = dict[CallId, Mapping[str, Any]]()
        for message in messages:
            if message.role == "user":
                if not is_note(message):
                    self.said.append(message)
            elif message.role == "system":
                if message.kind == "summary":
                    self.summaries.append(message.text)
            else:
                if message.tool_calls:
                    self._calls.update((call.id, call) for call in message.tool_calls)
                elif message.role == "assistant" and message.content:
                    self.answers.append(_first_words(message)[-READ_CHARS:])
                for result in message.tool_results:
                    if result.tool_call_id not in self._answered:
                        self._read_outcome(result, marked)
        self._read_marked(_spoken(messages, marked))
        return self

    def _read_outcome(self, result: ToolCallResult, marked: dict[CallId, Mapping[str, Any]]) -> None:
        """Read the outcome of a call; keep the arguments that may contain tasks and decisions."""
        self._answered.add(result.tool_call_id)
        call = self._calls.get(result.tool_call_id, EARLIER)
        failed = deeds.failed(call, result)
        self.outcomes.append(Outcome(call, result, len(self.said), failed=failed))
        if not failed:
            self.succeeded.append(call.name[:NAME_CHARS])
            if not _MARKED_KEYS.isdisjoint(call.args):
                marked[call.id] = call.args

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
        before = len(self.said)
        both.outcomes[len(self.outcomes) :] = [one.after(before) for one in later.outcomes]
        return both


def topics(message: Message) -> tuple[str, ...]:
    """Return the beginning of a user message; nothing if it only agrees, greets or shows something."""
    words = _first_words(message)
    return () if says_nothing(words[:READ_CHARS]) else (line(words, SAID_CHARS),)


def wishes(message: Message) -> tuple[str, ...]:
    """Return the sentences of a user message that limit or prefer something."""
    return speech.wishes(_first_words(message)[:READ_CHARS])


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
            yield from (line(found["what"], SAID_CHARS) for found in _DECIDED.finditer(one))
            continue
        for key in _DECISION_KEYS:
            if key in one:
                yield from (line(what, SAID_CHARS) for what in _items(one[key]) if type(what) is str and what)


def _first_words(message: Message) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    words = (part.text for part in content or () if isinstance(part, TextPart))
    return next((text for text in words if text and not text.isspace()), "")


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
