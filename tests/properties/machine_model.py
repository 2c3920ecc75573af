"""A simple model of a conversation: every branch is a plain list of the events up to its tip.

It is slow and obvious on purpose. The machine compares sessions and states with it after every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from turnstate import Message
from turnstate.entry import CANCELLED, LEFT, RAN, UNDONE


@dataclass(eq=False)
class Event:
    """A message or an operation; one that took an earlier event back has its index in ``undoes``."""

    what: str
    message: Message | None = None
    undoes: int = -1
    left: Branch | None = None  # of an exit: the branch on which the tangent was left
    label: str = ""
    files: dict[str, str] = field(default_factory=dict)  # of a checkpoint
    conversation: bool = True  # whether a restore went back in the conversation, too
    has_files: bool = False  # whether a restore changed files: what was there, and what it created
    before: dict[str, str] = field(default_factory=dict)
    created: dict[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Tangent:
    """A tangent: the branch that leaving leads to, and how many events there were when it began."""

    name: str
    main: Branch
    begun: int
    first: Branch | None = None


@dataclass(eq=False)
class Branch:
    """A branch: the events up to its tip, what created it, and the branch that was the head before.

    ``kept`` is True once something was written in it, an event or not: a tangent without is forgotten.
    """

    events: list[Event] = field(default_factory=list)
    operation: str = ""
    former: Branch | None = None
    tangent: Tangent | None = None
    kept: bool = False

    def __post_init__(self) -> None:
        self.begun = len(self.events)

    @property
    def messages(self) -> list[Message]:
        """All messages on the path."""
        return [one.message for one in self.events if one.message is not None]

    @property
    def shown(self) -> list[Message]:
        """The messages since the last clearing that was not undone."""
        standing = set(range(len(self.events)))
        for one in self.events:
            standing.discard(one.undoes)
        clearings = [place for place in standing if self.events[place].what == "clear"]
        later = self.events[max(clearings, default=-1) + 1 :]
        return [one.message for one in later if one.message is not None]

    @property
    def exchanges(self) -> list[list[str]]:
        """The exchanges that are shown, as lists of ids."""
        return self._divided[:-1]

    def newest_exchanges(self, most: int) -> list[list[str]]:
        """Return the newest exchanges that are shown; if some are not, they begin with a turn if possible."""
        exchanges, questions = self.exchanges, {one.id for one in self.messages if one.role == "user"}
        if len(exchanges) <= most:
            return exchanges
        newest = exchanges[-most:]
        turns = (place for place, ids in enumerate(newest) if ids[0] in questions)
        return newest[next(turns, 0) :]

    @property
    def waiting(self) -> list[str]:
        """The messages that are shown and have no answer."""
        return self._divided[-1]

    @property
    def _divided(self) -> list[list[str]]:
        found: list[list[str]] = [[]]
        for message in self.shown:
            found[-1].append(message.id)
            if message.role == "assistant":
                found.append([])
        return found

    @property
    def open_calls(self) -> list[str]:
        """The calls of the last answer that have no result."""
        answered = set[str]()
        for message in reversed(self.shown):
            answered.update(result.tool_call_id for result in message.tool_results)
            if message.role == "user":
                break
            if message.role == "assistant":
                return [call.id for call in message.tool_calls if call.id not in answered]
        return []

    @property
    def results(self) -> dict[str, object]:
        """The real results of calls on the path."""
        given = (CANCELLED, LEFT, RAN, UNDONE)  # answers of the core
        results = (one for message in self.messages for one in message.tool_results)
        return {one.tool_call_id: one.result for one in results if one.result not in given}

    @property
    def given_up(self) -> list[str]:
        """The calls that are no longer open and never got a real result."""
        calls = [call.id for message in self.messages for call in message.tool_calls]
        others = {*self.results, *self.open_calls}
        return [call for call in calls if call not in others]

    def newest(self, what: str, default: str) -> str:
        """Return the label of the newest event of a kind on the path."""
        return next((one.label for one in reversed(self.events) if one.what == what), default)

    @property
    def checkpoints(self) -> list[Event]:
        """The checkpoints on the path."""
        return [one for one in self.events if one.what == "checkpoint"]

    @property
    def restore(self) -> tuple[int, Event] | None:
        """The newest restore on the path that was not undone, and its index."""
        undone = {one.undoes for one in self.events}
        found = [(place, one) for place, one in enumerate(self.events) if one.what == "restore"]
        return next((one for one in reversed(found) if one[0] not in undone), None)

    @property
    def in_its_tangent(self) -> tuple[int, str]:
        """How many answers its tangent has, and what the user said first in it."""
        said = [
            one.message for one in self.events[self.tangent.begun if self.tangent else 0 :] if one.message
        ]
        opening = next((message.text for message in said if message.role == "user"), "")
        return sum(message.role == "assistant" for message in said), opening

    def whole(self, place: int) -> int:
        """Return where a path can end that should end after an event: before its group if calls are open."""
        start, open_calls, answered = -1, set[str](), False
        for number, one in enumerate(self.events[: place + 1]):
            message = one.message
            if message is None:
                continue
            if message.role == "user" or (message.role == "assistant" and (answered or not open_calls)):
                start, open_calls, answered = -1, set(), False
            if message.tool_calls:
                start = number if start < 0 else start
                open_calls |= {call.id for call in message.tool_calls}
            if message.role == "tool" and start >= 0:
                answered = True
                open_calls -= {result.tool_call_id for result in message.tool_results}
        return start if open_calls else place + 1

    def tangent_at(self, place: int) -> Tangent | None:
        """Return the tangent that an event of the path belongs to."""
        tangent = self.tangent
        while tangent is not None and place < tangent.begun:
            tangent = tangent.main.tangent
        return tangent


class Conversation:
    """A conversation with its branches; the head is the current one."""

    def __init__(self) -> None:
        self.head = Branch()
        self.branches = [self.head]
        self.tangents = list[Tangent]()

    def said(self, *messages: Message) -> None:
        """Add messages."""
        self.head.events += [Event("message", message) for message in messages]

    def did(self, event: Event) -> None:
        """Add another event."""
        self.head.events.append(event)
        self.head.kept = True

    def go_back(self, operation: str, branch: Branch, end: int, anchor: int) -> None:
        """Continue on a new branch with the first events of another, in the tangent of the anchor."""
        self._add(Branch(branch.events[:end], operation, self.head, branch.tangent_at(anchor)))

    def begin_tangent(self, name: str, end: int) -> None:
        """Continue aside, after the first events of the head."""
        tangent = Tangent(name, self.head, end)
        tangent.first = Branch(self.head.events[:end], "tangent", self.head, tangent)
        self.tangents.append(tangent)
        self._add(tangent.first)

    def leave_tangent(self) -> None:
        """Go back to where the tangent began."""
        left, tangent = self.head, self.head.tangent
        assert tangent is not None
        self.head = tangent.main
        if not self._forgot(left):
            self.did(Event("exit", left=left))

    def _forgot(self, branch: Branch) -> bool:
        """Forget a tangent in which nothing was written; return True if it is one."""
        if branch.kept or branch.operation != "tangent" or any(one.former is branch for one in self.branches):
            return False
        self.branches.remove(branch)
        self.tangents = [one for one in self.tangents if one.first is not branch]
        return True

    @property
    def under_way(self) -> list[Branch]:
        """The branches of the open tangents, the innermost first."""
        found, branch = list[Branch](), self.head
        while branch.tangent is not None:
            found.append(branch)
            branch = branch.tangent.main
        return found

    @property
    def kept(self) -> dict[str, Branch]:
        """The tangents that were left and lead back to where we are, and where each was left last."""
        names = {one.tangent.name for one in self.under_way if one.tangent}
        bases, found = [self.head, *(one.tangent.main for one in self.under_way if one.tangent)], {}
        while bases:
            base = bases.pop()
            for tangent in self.tangents:
                if tangent.main is base and tangent.name not in names and tangent.first:
                    exits = [one.left for one in base.events[base.begun :] if one.what == "exit"]
                    left = [one for one in exits if one and one.tangent is tangent]
                    found[tangent.name] = left[-1] if left else tangent.first
                    bases.append(found[tangent.name])
        return found

    def reopen(self, name: str) -> None:
        """Enter a tangent again; those that it is not in are left."""
        open_tangents = {one.tangent.name: one for one in self.under_way if one.tangent}
        target = (self.kept | open_tangents)[name]
        around, branch = [target], target
        while branch.tangent is not None:
            branch = branch.tangent.main
            around.append(branch)
        while self.head not in around:
            self.leave_tangent()
        self.head = target

    def undo(self) -> str | None:
        """Undo the newest operation, and return its name; None if there is none."""
        events, place = self.head.events, len(self.head.events)
        while place > self.head.begun:
            one = events[place - 1]
            if one.what in ("clear", "compact", "exit"):
                events.append(Event("undo", undoes=place - 1))
                self.head = one.left or self.head
                return "tangent exit" if one.left else one.what
            place = one.undoes if one.what == "undo" else place - 1
        if self.head.former is None:
            return None
        undone, self.head = self.head, self.head.former
        self._forgot(undone)
        return undone.operation

    def undo_restore(self) -> None:
        """Undo the newest restore on the path, whatever came since."""
        found = self.head.restore
        assert found is not None
        place, restore = found
        if not restore.conversation:
            self.did(Event("restore undone", undoes=place))
            return
        branch = next(one for one in self.branches if restore in one.events[one.begun :])  # by identity
        assert branch.former is not None
        self.head = branch.former

    def _add(self, branch: Branch) -> None:
        self.branches.append(branch)
        self.head = branch
