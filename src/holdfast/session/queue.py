"""The live queue: head, summary and kept messages, as a snapshot holds them, and the way back.

A snapshot is for a restart without the store: what it says goes into a new log under the same session
id. The summary becomes a cut whose messages are not there any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import structs

from ..context.head import Head
from ..context.manager import StateManager
from ..context.snapshot import ContextSnapshot, snapshot
from ..context.summary import rendered
from ..context.template import bare
from ..decision import Cut, Summary
from ..entry import Bootstrap, Entry, Prompt
from ..ids import MessageId
from ..message import Message
from ..stores.values import SessionRow
from .loaded import Loaded

__all__ = ["entries_of", "live_snapshot"]


def live_snapshot(loaded: Loaded, row: SessionRow, manager: StateManager, now: int) -> ContextSnapshot:
    """Take a snapshot of a session; the place in the log stands in the extension."""
    lead = [
        message for _, message in Head(system=loaded.prompt, bootstrap=loaded.bootstrap).system_messages()
    ]
    cut = loaded.cut
    summary = loaded.summary_of(cut)
    if summary:
        lead.append(rendered(summary, manager.policy.summary_template))
    kept = list(_kept(loaded, cut))
    tokens = manager.count(lead).tokens + sum(loaded.tokens_of(message.id) for message in kept)
    place = {"session": row.id, "epoch": row.epoch, "branch": row.branch, "seq": row.seq}
    described: dict[str, Any] = {"user": row.user, "title": row.title, "tags": list(row.tags)}
    made = {} if cut is None else {"limit": cut.limit, "policy": cut.policy, "counter": cut.counter}
    extension = {"holdfast": {**place, **described, "created": row.created, "cut": made}}
    taken = snapshot([*lead, *kept], tokens=tokens, timestamp=now)
    return structs.replace(taken, extension=extension)


def entries_of(taken: ContextSnapshot, template: str) -> Iterator[Entry]:
    """Give the entries that bring a snapshot back into a log."""
    first: MessageId | None = None
    for message in taken.messages:
        match message.kind:
            case "prompt":
                yield Prompt(message.text)
            case "bootstrap":
                yield Bootstrap(message.text)
            case "summary":
                continue
            case _:
                first = first or message.id
                yield message
    if taken.summary is not None and first is not None:
        cut = _cut(taken, first)
        yield cut
        yield Summary(cut=cut.id, text=bare(template, taken.summary), source={"restored": True})


def _kept(loaded: Loaded, cut: Cut | None) -> Iterator[Message]:
    """Give what a cut left: the leading system messages, what it pinned, and all from its first on."""
    start = loaded.kept_place(cut) if cut else 0
    pinned = set(cut.pinned) if cut else set[MessageId]()
    leading = True
    for place, message in enumerate(loaded.messages):
        leading = leading and message.role == "system"
        if place >= start or leading or message.id in pinned:
            yield message


def _cut(taken: ContextSnapshot, first: MessageId) -> Cut:
    known = taken.extension.get("holdfast", {})
    made = known.get("cut", {}) if isinstance(known, dict) else {}
    settings = made if isinstance(made, dict) else {}
    limit = settings.get("limit")
    gone = MessageId("")  # what the summary covers is in no log
    return Cut(
        id=f"restored-{first}",
        kept_from=first,
        summary="",
        covers=(gone, gone),
        limit=limit if isinstance(limit, int) else 0,
        policy=str(settings.get("policy", "")),
        counter=str(settings.get("counter", "")),
    )
