"""What the window of a session contains, what it leaves out and why, and what a prompt cache can reuse.

The window is the one that the session would send next; nothing is written. Decisions come from the log,
and requests are replayed from it, so the report needs no model. Usage that a provider reported is shown
next to the replay and is marked as reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from .. import catalog
from ..context.policy import Budget
from ..context.view import in_force
from ..context.window import Window
from ..entry import Cut, Decision, Mask, Revert, SettingsChange, Summary, Usage
from ..errors import UnknownName
from ..log.fold import Fold
from ..log.path import entries_of, path_to, rows_forwards
from ..log.records import counter_of
from ..log.replay import PathEntry, Request, replayed
from ..message import Message
from ..plain_text import counted
from ..session import Session, SessionManager
from ..stores.port import Log
from ..stores.values import SessionRow
from ..tokens import counter
from .entry_lines import cut_reason

CATEGORIES = {
    "system": "system",
    "bootstrap": "facts about the user",
    "tools": "tools",
    "context": "sticky files",
    "memory": "memory",
    "summary": "summary",
    "short_term": "short term",
    "immediate": "immediate",
    "free": "free",
}
"""The categories of a window in the order in which they are sent, with their display names."""


class Decided(Struct, frozen=True, kw_only=True):
    """A decision in the log: its number, the time of the message before it, what was decided, and why.

    ``holds`` is False if it was reverted, or if a later cut replaced it for every budget.
    """

    seq: int
    at: str
    what: str
    why: str
    holds: bool


class ContextReport(Struct, frozen=True, kw_only=True):
    """The next window of a session by category, the decisions behind it, and its last requests.

    ``limit`` is None if no budget is known; then nothing is free. ``left_out`` counts the messages that
    the summary replaces.
    """

    session: str
    title: str
    counter: str
    limit: int | None
    limit_from: str
    tokens: int
    usage: dict[str, int]
    messages: int
    left_out: int
    summary: str
    hidden: tuple[str, ...]
    reduced: tuple[str, ...]
    repairs: tuple[str, ...]
    due: tuple[str, ...]
    decisions: tuple[Decided, ...]
    requests: tuple[Request, ...]

    @property
    def reuse(self) -> float | None:
        """The share of the last requests' tokens that a prompt cache can reuse; None if there are none."""
        known = [one for one in self.requests if one.reused is not None]
        sent = sum(one.tokens for one in known)
        return sum(one.reused or 0 for one in known) / sent if sent else None

    @property
    def cached(self) -> float | None:
        """The share of input tokens that providers read from a cache; None if no usage was reported."""
        reports = [one.reported for one in self.requests if one.reported and one.reported.input]
        sent = sum(one.input for one in reports)
        return sum(one.cached for one in reports) / sent if sent else None

    @property
    def cost(self) -> float | None:
        """What the last requests cost, as far as it is known; None if nothing is."""
        costs = [catalog.cost(one.reported) for one in self.requests if one.reported]
        known = [one.amount for one in costs if one is not None]
        return sum(known) if known else None

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON."""
        return {
            "session": self.session,
            "title": self.title,
            "counter": self.counter,
            "limit": self.limit,
            "limit_from": self.limit_from,
            "tokens": self.tokens,
            "usage": self.usage,
            "messages": self.messages,
            "left_out": self.left_out,
            "summary": self.summary,
            "hidden": list(self.hidden),
            "reduced": list(self.reduced),
            "repairs": list(self.repairs),
            "due": list(self.due),
            "decisions": [
                {"seq": one.seq, "at": one.at, "what": one.what, "why": one.why, "holds": one.holds}
                for one in self.decisions
            ],
            "requests": [_request_json(one) for one in self.requests],
            "reuse": self.reuse,
            "cached": self.cached,
            "cost": self.cost,
        }


async def read_context(
    sessions: SessionManager,
    row: SessionRow,
    *,
    budget: Budget | None = None,
    model: str | None = None,
    last: int = 10,
) -> ContextReport:
    """Return the report on a session under a budget; by default the one that it was last used with."""
    path = await read_path(sessions.store, row)
    return await context_of(sessions, row, path, budget=budget, model=model, last=last)


async def context_of(
    sessions: SessionManager,
    row: SessionRow,
    path: list[PathEntry],
    *,
    budget: Budget | None = None,
    model: str | None = None,
    last: int = 10,
) -> ContextReport:
    """Return the report on a session whose path has been read."""
    session = await sessions.open(row.id)
    fold, decisions = _folded(path)
    budget, source = _budget(path, fold, budget, model)
    window = await _window(session, path, budget or Budget.UNLIMITED)
    limit, report = budget.limit if budget else None, window.report
    start = counter(row.counter)
    usage = {name: report.usage.get(name, 0) for name in CATEGORIES}
    return ContextReport(
        session=row.id,
        title=row.title,
        counter=(counter_of(fold.model) if fold.model else start).name,
        limit=limit,
        limit_from=source,
        tokens=window.tokens,
        usage=usage if limit is not None else {**usage, "free": 0},
        messages=len(window.messages),
        left_out=_left_out(fold, window.view.cut),
        summary=window.view.summary or "",
        hidden=report.hidden,
        reduced=report.reduced,
        repairs=tuple(f"{repair.text} ({repair.id})" for repair in report.repairs),
        due=report.events,
        decisions=tuple(_decided(fold, decisions)),
        requests=tuple(replayed(path, start, sessions.policy, limit=limit, last=last)),
    )


async def read_path(log: Log, row: SessionRow) -> list[PathEntry]:
    """Read the rows from the root to the head with their entries."""
    spans = await path_to(log, row.address, row.head)
    rows = [one async for one in rows_forwards(log, row.address, spans)]
    return list(zip(rows, await entries_of(rows), strict=True))


async def _window(session: Session, path: list[PathEntry], budget: Budget) -> Window:
    """Return the next window, with the tools and sticky files that the log knows of."""
    if any(isinstance(entry, SettingsChange) for _, entry in path):
        state = await session.conversation()
        return await session.preview(budget, tools=state.tool_specs, context=state.sticky())
    return await session.preview(budget)


def _budget(
    path: list[PathEntry], fold: Fold, given: Budget | None, model: str | None
) -> tuple[Budget | None, str]:
    """Return the budget and its source: the caller, the last request or decision, or a model."""
    if given is not None:
        return given, "given"
    for _, entry in reversed(path):
        if isinstance(entry, Usage) and entry.limit:
            return Budget(entry.limit), "the last request"
        if isinstance(entry, Cut | Mask) and 0 < entry.limit < Budget.UNLIMITED.limit:
            return Budget(entry.limit), "the last decision"
    replied = (entry for _, entry in reversed(path) if isinstance(entry, Usage) and entry.is_of_reply)
    used = (entry.model for entry in replied if entry.model)
    for name in (model, fold.model.id if fold.model else None, next(used, None)):
        if name:
            try:
                return Budget.of(catalog.model(name)), name
            except UnknownName:
                continue
    return None, ""


def _left_out(fold: Fold, cut: Cut | None) -> int:
    """Return how many messages of a path a cut leaves out."""
    return fold.first_kept(cut) - len(cut.pinned) if cut else 0


def _folded(path: list[PathEntry]) -> tuple[Fold, list[tuple[int, str, Decision]]]:
    """Fold a path; return its decisions with their numbers and the times of the messages before them."""
    fold, decisions, at = Fold(), list[tuple[int, str, Decision]](), ""
    for row, entry in path:
        if entry is None:
            continue
        before = len(fold.decisions)
        fold.add(entry)
        if isinstance(entry, Message):
            at = entry.timestamp
        decisions += [(row.seq, at, decision) for decision in fold.decisions[before:]]
    return fold, decisions


def _decided(fold: Fold, decisions: list[tuple[int, str, Decision]]) -> Iterator[Decided]:
    """Yield the decisions of a path in words."""
    standing = in_force(fold.decisions)
    cuts = {one.id for one in standing if isinstance(one, Cut)}
    for seq, at, one in decisions:
        if words := _words(one):
            holds = one.id in cuts if isinstance(one, Cut) else one in standing
            yield Decided(seq=seq, at=at, what=words[0], why=words[1], holds=holds)


def _words(decision: Decision) -> tuple[str, str] | None:
    """Return what was decided and why; None for answers to calls, which hide nothing."""
    match decision:
        case Cut(asked=asked):
            return str(asked.get("operation", "cut")), cut_reason(decision)
        case Mask(ids=ids, saved=saved, each=each, limit=limit) if each:
            why = f"{counted(len(ids), 'output')} of one round did not fit into {limit:,} tokens"
            return "shorten", f"{why}: {each:,} tokens each, {saved:,} saved"
        case Mask(ids=ids, saved=saved) if ids:
            return "hide", f"{counted(len(ids), 'old output')}, {saved:,} tokens saved"
        case Summary():
            return "summary", "a model's summary replaces the digest"
        case Revert(at=at):
            return "undo", f"the decision at {at:,} was taken back"
        case _:
            return None


def _request_json(request: Request) -> dict[str, Any]:
    reported = request.reported
    return {
        "seq": request.seq,
        "reply": request.reply,
        "timestamp": request.timestamp,
        "tokens": request.tokens,
        "reused": request.reused,
        "limit": request.limit,
        "reported": {"input": reported.input, "output": reported.output, "cached": reported.cached}
        if reported
        else None,
    }
