"""Agent conversations generated from a seed: any number of them, and always the same ones.

`valid` returns a conversation that every provider accepts once it is rendered: the user speaks first, and
every call is answered once, directly after its batch and before anyone else speaks. `broken` returns one that
no provider accepts as it is, `broken_with` one with a single fault that you name. All are pure functions of
their arguments: ids and times are derived from the position, and nothing reads the clock, so the seed that a
failing test prints is enough to reproduce the failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random

from ..errors import InputError
from ..message import Message, ToolCallResult
from ..part import Content
from . import samples
from .faults import Fault, plant
from .samples import MessageStamp, huge_output, stamp

__all__ = ["Fault", "broken", "broken_with", "huge_output", "long_turn", "many", "valid"]

_MOST_FAULTS = 5
_TURNS = (1, 2, 3, 4, 5, 6, 8, 12)
_TURN_WEIGHTS = (20, 20, 20, 15, 10, 8, 5, 2)
_ROUNDS = (0, 1, 2, 3, 4)
_ROUND_WEIGHTS = (30, 30, 20, 12, 8)
_CALLS = (1, 2, 3, 4, 5, 6)
_CALL_WEIGHTS = (50, 20, 12, 8, 6, 4)
_HEADS = (0, 1, 2)
_HEAD_WEIGHTS = (35, 55, 10)

_Plan = list[Sequence[int]]
"""The number of calls per batch of each turn: ``[[2, 1], []]`` is a turn of two batches, then one of none."""


def valid(seed: int, *, turns: int | None = None) -> list[Message]:
    """Return a conversation that every provider accepts."""
    rng = _rng(seed)
    return _written(seed, rng, _plan(rng, turns))


def broken(seed: int, *, turns: int | None = None) -> list[Message]:
    """Return a conversation with one to five faults; if two exclude each other, the later one wins."""
    rng = _rng(seed)
    faults = rng.sample(list(Fault), rng.randint(1, _MOST_FAULTS))
    return _faulty(seed, rng, faults, turns)


def broken_with(seed: int, fault: Fault, *, turns: int | None = None) -> list[Message]:
    """Return a conversation with exactly this fault."""
    return _faulty(seed, _rng(seed), [fault], turns)


def many(
    count: int, *, seed: int = 0, kind: Callable[[int], list[Message]] = valid
) -> Iterator[list[Message]]:
    """Yield ``count`` conversations, starting at ``seed``."""
    return (kind(seed + i) for i in range(count))


def long_turn(seed: int, rounds: int) -> list[Message]:
    """Return one question, followed by many rounds of one call and one result."""
    draft = _Draft(seed, _rng(seed))
    draft.user(samples.question(draft.rng))
    for _ in range(rounds):
        draft.round(1)
    return draft.messages


class _Draft:
    """A conversation in progress."""

    def __init__(self, seed: int, rng: Random) -> None:
        self.messages: list[Message] = []
        self.rng = rng
        self._salt = str(seed).encode()
        self._dialect = self._any_dialect()

    def system(self) -> None:
        self.messages.append(Message.system(samples.prompt(self.rng), kind="foreign", **self._stamp()))

    def user(self, content: Content) -> None:
        self.messages.append(Message.user(content, **self._stamp()))

    def assistant(self) -> None:
        self.messages.append(Message.assistant(samples.answer(self.rng), **self._stamp()))

    def round(self, calls: int) -> None:
        """Append calls of the assistant, and their results in any order."""
        rng = self.rng
        if rng.random() < 0.1:  # the session moved on to another provider
            self._dialect = self._any_dialect()
        said = rng.choice((None, None, "", samples.answer(rng)))
        at = len(self.messages)
        requests = [samples.call(rng, self._dialect, at, place, self._salt) for place in range(calls)]
        self.messages.append(Message.assistant(said, tool_calls=requests, **self._stamp()))
        results = [samples.result(rng, request) for request in requests]
        if rng.random() < 0.5:
            rng.shuffle(results)
        for piece in _pieces(rng, results):
            self.messages.append(Message.tool(piece, **self._stamp()))

    def _any_dialect(self) -> samples.Dialect:
        return self.rng.choice(tuple(samples.DIALECTS.values()))

    def _stamp(self) -> MessageStamp:
        return stamp(len(self.messages), self._salt)


def _rng(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - repeatable is the point


def _plan(rng: Random, turns: int | None) -> _Plan:
    if turns is not None and turns < 1:
        raise InputError(f"a conversation has at least one turn, not {turns}")
    count = turns or _weighted(rng, _TURNS, _TURN_WEIGHTS)
    rounds = rng.choices(_ROUNDS, _ROUND_WEIGHTS, k=count)
    return [rng.choices(_CALLS, _CALL_WEIGHTS, k=each) for each in rounds]


def _written(seed: int, rng: Random, plan: _Plan) -> list[Message]:
    draft = _Draft(seed, rng)
    for _ in range(_weighted(rng, _HEADS, _HEAD_WEIGHTS)):
        draft.system()
    for i, batches in enumerate(plan):
        if i and rng.random() < 0.05:
            draft.system()
        _write_turn(draft, rng, batches)
    return draft.messages


def _write_turn(draft: _Draft, rng: Random, batches: Iterable[int]) -> None:
    draft.user(samples.attachment(rng) if rng.random() < 0.05 else samples.question(rng))
    if rng.random() < 0.08:
        draft.user(samples.question(rng))
    for calls in batches:
        draft.round(calls)
    if rng.random() < 0.85:
        draft.assistant()


def _faulty(seed: int, rng: Random, faults: Iterable[Fault], turns: int | None) -> list[Message]:
    plan = _plan(rng, turns)
    plan[rng.randrange(len(plan))] = (rng.randint(2, 6), rng.randint(2, 6))  # room for every fault
    messages = _written(seed, rng, plan)
    for fault in sorted(faults, key=list(Fault).index):  # what trims the start comes first
        messages = plant(messages, fault, rng)
    return messages


def _weighted(rng: Random, values: Sequence[int], weights: Sequence[int]) -> int:
    return rng.choices(values, weights)[0]


def _pieces(rng: Random, results: list[ToolCallResult]) -> Iterator[list[ToolCallResult]]:
    """Split the results of a batch into one or several tool messages."""
    while results:
        size = len(results) if rng.random() < 0.5 else rng.randint(1, len(results))
        yield results[:size]
        results = results[size:]
