"""A simple model of a conversation: every branch is a plain list of the events up to its tip.

It is slow and obvious on purpose, and knows no entries, numbers or reads. The machine compares sessions and
states with it after every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from turnstate import Message
from turnstate.entry import CANCELLED, INTERRUPTED, LEFT, RAN, UNDONE

GIVEN = (CANCELLED, INTERRUPTED, LEFT, RAN, UNDONE)
"""The results that the core gives for calls without one."""

LONGEST_OPENING = 200


class Words(NamedTuple):
    """What a message says, without its ids."""

    role: str
    text: str
    calls: int
    results: tuple[object, ...]


def words(message: Message) -> Words:
    """Return what a message says."""
    results = tuple(one.result for one in message.tool_results)
    return Words(message.role, message.text, len(message.tool_calls), results)


def is_given(message: Message) -> bool:
    """Return True if a message shows an answer of the core."""
    return bool(message.tool_results) and all(one.result in GIVEN for one in message.tool_results)


def unanswered(messages: list[Message]) -> list[str]:
    """Return the calls of the last round that have no result."""
    answered, calls, has_asked = set[str](), list[str](), False
    for message in reversed(messages):
        if message.role == "user" or (has_asked and message.role == "tool"):
            break
        answered.update(result.tool_call_id for result in message.tool_results)
        if message.role == "assistant":
            has_asked, calls = True, [*(call.id for call in message.tool_calls), *calls]
    return [call for call in calls if call not in answered]


@dataclass(eq=False)
class Event:
    """A message or an operation; one that took an earlier event back has its index in ``undoes``."""

    what: str
    message: Message | None = None
    undoes: int = -1
    left: Branch | None = None  # of an exit: the branch on which the tangent was left
    undone: bool = False  # of an exit
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
    """A branch: the events up to its tip, what created it, and the branch that was the head before."""

    events: list[Event] = field(default_factory=list)
    operation: str = ""
    former: Branch | None = None
    tangent: Tangent | None = None

    def __post_init__(self) -> None:
        self.begun = len(self.events)

    @property
    def messages(self) -> list[Message]:
        """All messages on the path."""
        return [one.message for one in self.events if one.message is not None]

    @property
    def clearing(self) -> int:
        """The index of the newest clearing that was not undone; -1 if there is none."""
        standing = set(range(len(self.events))) - {one.undoes for one in self.events}
        return max((place for place in standing if self.events[place].what == "clear"), default=-1)

    @property
    def shown(self) -> list[Message]:
        """The messages since the last clearing that was not undone."""
        return [one.message for one in self.events[self.clearing + 1 :] if one.message is not None]

    @property
    def is_cut_since_clearing(self) -> bool:
        """Whether it was compacted since the last clearing that was not undone."""
        undone = {one.undoes for one in self.events}
        later = list(enumerate(self.events))[self.clearing + 1 :]
        return any(one.what == "compact" and place not in undone for place, one in later)

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
    def transcript(self) -> list[str]:
        """The lines that people read."""
        lines = list[str]()
        for event in self.events:
            message = event.message
            if event.what == "note":
                lines.append(event.label)
            elif message is not None and message.role == "user":
                lines.append("> " + message.text.replace("\n", "\n> "))
            elif message is not None and message.role == "assistant":
                names = ", ".join(call.name for call in message.tool_calls) or "none"
                lines.append(f"{message.text}\n[Tool uses: {names}]")
        return lines

    @property
    def open_calls(self) -> list[str]:
        """The calls of the last answer that have no result."""
        return unanswered(self.shown)

    @property
    def results(self) -> dict[str, object]:
        """The real results of calls on the path."""
        results = (one for message in self.messages for one in message.tool_results)
        return {one.tool_call_id: one.result for one in results if one.result not in GIVEN}

    @property
    def given_up(self) -> list[str]:
        """The calls that are no longer open and never got a real result."""
        calls = [call.id for message in self.messages for call in message.tool_calls]
        others = {*self.results, *self.open_calls}
        return [call for call in calls if call not in others]

    def newest(self, what: str, default: str) -> str:
        """Return the label of the newest event of a kind on the path."""
        return next((one.label for one in reversed(self.events) if one.what == what), default)

    def count(self, what: str) -> int:
        """Return how many events of a kind are on the path."""
        return sum(one.what == what for one in self.events)

    @property
    def lines(self) -> dict[str, int]:
        """What the line tracker knows about files: the number of lines of each."""
        found = dict[str, int]()
        for path, lines in (one.label.split() for one in self.events if one.what == "lines"):
            found.pop(path, None)
            if lines != "gone":
                found[path] = int(lines)
        return found

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
    def said_in_tangent(self) -> list[Message]:
        """The messages of its tangent that are not answers of the core."""
        begun = self.tangent.begun if self.tangent else 0
        said = [one.message for one in self.events[begun:] if one.message is not None]
        return [message for message in said if not is_given(message)]

    @property
    def newest_reply(self) -> Message:
        """The newest message of the assistant."""
        return next(message for message in reversed(self.messages) if message.role == "assistant")

    @property
    def opening(self) -> str:
        """What the user said first in its tangent."""
        said = (message.text for message in self.said_in_tangent if message.role == "user")
        return " ".join(next(said, "").split())[:LONGEST_OPENING]

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

    @property
    def tail(self) -> list[Words]:
        """What leaving the tangent with its last exchange brings back.

        If the exchange answers results whose calls are not open where the tangent leads to, the question and
        the calls come along. What is pending there is not brought again, and calls without a result get one.
        """
        assert self.tangent is not None
        main, messages = self.tangent.main.messages, [(n, one.message) for n, one in enumerate(self.events)]
        said = [(place, message) for place, message in messages if message is not None]
        replies = [index for index, (_, message) in enumerate(said) if message.role == "assistant"]
        if not replies or said[replies[-1]][0] < self.tangent.begun:
            return []
        end = replies[-1]
        start = replies[-2] + 1 if len(replies) > 1 else 0
        hidden = max((n for n in self._standing_clearings if n < said[end][0]), default=-1)
        calls = said[start - 1] if start else None
        if hidden >= 0 and (calls is None or hidden > calls[0]):
            calls = None
        user = [message for place, message in said[start:end] if place > hidden and message.role != "system"]
        there = set[str]()
        for message in reversed(main):
            if message.role == "assistant":
                break
            there.add(message.id)
        found = [*(message for message in user if message.id not in there), said[end][1]]
        answered = {result.tool_call_id for message in found for result in message.tool_results}
        if calls is not None and not answered <= set(unanswered(main)):
            known = {call.id for call in calls[1].tool_calls}
            question = [message for message in self._question(start - 1) if message.id not in there]
            answers = list[Message]()
            for message in user:
                results = [one for one in message.tool_results if one.tool_call_id in known]
                if message.role == "user":
                    answers.append(message)
                elif results:
                    answers.append(message.replace(tool_results=tuple(results)))
            found = [*question, calls[1], *answers, said[end][1]]
        return _completed(found)

    @property
    def _standing_clearings(self) -> list[int]:
        undone = {one.undoes for one in self.events}
        return [n for n, one in enumerate(self.events) if one.what == "clear" and n not in undone]

    def _question(self, end: int) -> list[Message]:
        """Return the user's messages that opened the turn of a message of the path."""
        found = list[Message]()
        for message in reversed(self.messages[:end]):
            if message.role == "assistant" and found:
                break
            if message.role == "user":
                found.insert(0, message)
        return found


def _completed(messages: list[Message]) -> list[Words]:
    """Return what messages say, with answers for calls that have none when somebody goes on."""
    found, left = list[Words](), set[str]()
    for place, message in enumerate([*messages, None]):
        if message is None or message.role != "tool":
            lacking = [call for call in unanswered(messages[:place]) if call not in left]
            found += [Words("tool", "", 0, (LEFT,)) for _ in lacking]
            left.update(lacking)
        if message is not None:
            found.append(words(message))
    return found


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
        """Go back to where the tangent began; one in which nothing was said leaves no trace."""
        left, tangent = self.head, self.head.tangent
        assert tangent is not None
        self.head = tangent.main
        if left.said_in_tangent:
            self.did(Event("exit", left=left, label=left.opening))

    @property
    def under_way(self) -> list[Branch]:
        """The branches of the open tangents, the innermost first."""
        found, branch = list[Branch](), self.head
        while branch.tangent is not None:
            found.append(branch)
            branch = branch.tangent.main
        return found

    @property
    def kept(self) -> dict[str, tuple[Branch, str]]:
        """The tangents that lead back to where we are: the branch where each was left last, its opening."""
        names = {one.tangent.name for one in self.under_way if one.tangent}
        bases = [self.head, *(one.tangent.main for one in self.under_way if one.tangent)]
        found = dict[str, tuple[Branch, str]]()
        while bases:
            base = bases.pop()
            for tangent in self.tangents:
                if tangent.main is not base or tangent.name in names or tangent.first is None:
                    continue
                exits = [one for one in base.events[base.begun :] if one.what == "exit"]
                mine = [one for one in exits if one.left and one.left.tangent is tangent]
                branch = mine[-1].left if mine else tangent.first
                assert branch is not None
                bases.append(branch)
                if mine or branch.said_in_tangent:
                    found[tangent.name] = branch, (mine[-1].label if mine else "") or branch.opening
        return dict(sorted(found.items()))

    def reopen(self, name: str) -> None:
        """Enter a tangent again; those that it is not in are left."""
        open_tangents = {one.tangent.name: one for one in self.under_way if one.tangent}
        target = open_tangents[name] if name in open_tangents else self.kept[name][0]
        around, branch = [target], target
        while branch.tangent is not None:
            branch = branch.tangent.main
            around.append(branch)
        while self.head not in around:
            self.leave_tangent()
        self.head = target

    def undo(self) -> str | None:
        """Undo the newest operation, and return its name; None if there is none."""
        name, place = self.newest_operation()
        one = self.head.events[place] if place >= 0 else None
        if one is None:
            self.head = self.head.former or self.head
        elif one.left is not None:
            one.undone, self.head = True, one.left
        else:
            self.did(Event("undo", undoes=place))
        return name

    def newest_operation(self) -> tuple[str | None, int]:
        """Return the name of the operation that undo would undo, and the index of its event.

        The index is -1 for the operation that began the branch.
        """
        place = len(self.head.events) - 1
        while place >= self.head.begun:
            one = self.head.events[place]
            if one.what == "exit" and not one.undone:
                return "tangent exit", place
            if one.what in ("clear", "compact"):
                return one.what, place
            place = one.undoes - 1 if one.what == "undo" else place - 1
        return self.head.operation or None, -1

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
