"""A simple model of a conversation: every branch is a plain list of the events up to its tip.

It is slow and obvious on purpose. Sessions and states are compared with it after every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from turnstate import Message
from turnstate.entry import CANCELLED, LEFT


@dataclass
class Event:
    """A message or an operation; ``undoes`` is the index of an earlier event."""

    what: str
    message: Message | None = None
    undoes: int = 0
    tangent: Any = None


@dataclass
class BranchModel:
    """A branch: the events up to its tip, where its own part starts, and where undoing it leads."""

    events: list[Event] = field(default_factory=list)
    operation: str = ""
    former: BranchModel | None = None
    parent: BranchModel | None = None

    def __post_init__(self) -> None:
        self.begun = len(self.events)

    @property
    def messages(self) -> list[Message]:
        """All messages on the path."""
        return [one.message for one in self.events if one.message is not None]

    @property
    def cleared(self) -> int:
        """The number of messages at the last clear that was not undone."""
        clearings = dict[int, int]()
        said = 0
        for place, one in enumerate(self.events):
            said += one.message is not None
            if one.what == "clear":
                clearings[place] = said
            elif one.what == "revert":
                clearings.pop(one.undoes, None)
        return max(clearings.values(), default=0)

    @property
    def exchanges(self) -> list[list[str]]:
        """The exchanges since the last clear, as lists of ids."""
        found, waiting = list[list[str]](), list[str]()
        for message in self.messages[self.cleared :]:
            waiting.append(message.id)
            if message.role == "assistant":
                found.append(waiting)
                waiting = []
        return found

    @property
    def waiting(self) -> list[str]:
        """The messages without an answer."""
        shown = [message.id for message in self.messages[self.cleared :]]
        return shown[sum(map(len, self.exchanges)) :]

    @property
    def open_calls(self) -> list[str]:
        """The calls of the last answer that have no result."""
        answered = set[str]()
        for message in reversed(self.messages[self.cleared :]):
            answered.update(result.tool_call_id for result in message.tool_results)
            if message.role == "user":
                break
            if message.role == "assistant":
                return [call.id for call in message.tool_calls if call.id not in answered]
        return []

    @property
    def given_up(self) -> list[str]:
        """The calls that are no longer open and never got a real result."""
        results = [one for message in self.messages for one in message.tool_results]
        real = {one.tool_call_id for one in results if one.result not in (CANCELLED, LEFT)}
        calls = [call.id for message in self.messages for call in message.tool_calls]
        return [call for call in calls if call not in real and call not in self.open_calls]

    @property
    def tangent(self) -> BranchModel | None:
        """The tangent that this branch belongs to."""
        line: BranchModel | None = self
        while line is not None and line.operation != "tangent":
            line = line.parent
        return line


@dataclass
class Conversation:
    """A conversation with its branches; the head is the current one."""

    head: BranchModel = field(default_factory=BranchModel)

    def said(self, *messages: Message) -> None:
        """Add messages."""
        self.head.events += [Event("message", message) for message in messages]

    def did(self, what: str) -> None:
        """Add something that can be undone."""
        self.head.events.append(Event(what))

    def branch(self, operation: str) -> None:
        """Continue from here on a new branch."""
        self.head = BranchModel(self.head.events[:], operation, former=self.head, parent=self.head)

    def branch_after(self, operation: str, named: int, kept: int) -> None:
        """Continue on a new branch that keeps some messages: it ends after `named`, or before its calls."""
        happened, parent = self.head.events, self.head
        places = [place for place, one in enumerate(happened) if one.message is not None]
        anchor = places[named] if kept == named + 1 else places[kept]
        while parent.parent is not None and anchor < parent.begun:
            parent = parent.parent
        end = anchor + 1 if kept == named + 1 else anchor
        self.head = BranchModel(happened[:end], operation, former=self.head, parent=parent)

    def leave(self) -> BranchModel:
        """Leave the current tangent."""
        left, tangent = self.head, self.head.tangent
        assert tangent is not None
        assert tangent.former is not None
        self.head = tangent.former
        return left

    def undo(self) -> str | None:
        """Undo the newest operation, and return its name; None if there is none."""
        happened, place = self.head.events, len(self.head.events)
        while place > self.head.begun:
            one = happened[place - 1]
            if one.what in ("clear", "compact"):
                happened.append(Event("revert", undoes=place - 1))
                return one.what
            if one.what == "tangent exit":
                happened.append(Event("taken up", undoes=place - 1))
                self.head = one.tangent
                return one.what
            place = one.undoes if one.what in ("revert", "taken up") else place - 1
        if self.head.operation in ("fork", "rewind", "tangent") and self.head.former is not None:
            name, self.head = self.head.operation, self.head.former
            return name
        return None
