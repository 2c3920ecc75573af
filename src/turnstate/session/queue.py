"""The live queue: head, summary and kept messages, as a snapshot holds them, and the way back.

A snapshot is for a restart without the store: what it says goes into a new log under the same session
id. The summary becomes a cut whose messages are not there any more. An answer that the core gave for a
call is shown as the result that it stands for, and comes back as an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import structs

from ..context.digest import Digest
from ..context.head import Head
from ..context.manager import StateManager
from ..context.rounds import answered
from ..context.snapshot import ContextSnapshot, snapshot
from ..context.summary import rendered
from ..context.template import bare
from ..decision import Answer, Cut, Summary
from ..entry import Bootstrap, Entry, Prompt
from ..errors import InputError
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
    shown = list(answered(kept))
    known = {message.id for message in kept}
    filled = [message for message in shown if message.id not in known]
    tokens = manager.count([*lead, *filled]).tokens + sum(loaded.tokens_of(id) for id in known)
    place = {"session": row.id, "epoch": row.epoch, "branch": row.branch, "seq": row.seq}
    described: dict[str, Any] = {"user": row.user, "title": row.title, "tags": list(row.tags)}
    made = {} if cut is None else _made(cut, loaded)
    given = {one.id for one in loaded.decisions if isinstance(one, Answer)}
    answers = [message.id for message in kept if message.id in given]
    marks = {"answers": answers, "filled": [message.id for message in filled]}
    extension = {"turnstate": {**place, **described, "created": row.created, "cut": made, **marks}}
    taken = snapshot([*lead, *shown], tokens=tokens, timestamp=now)
    return structs.replace(taken, extension=extension)


def entries_of(taken: ContextSnapshot, template: str) -> Iterator[Entry]:
    """Give the entries that bring a snapshot back into a log."""
    said, answers = _said(taken), _marked(taken, "answers")
    for message in said:
        if message.kind == "prompt":
            yield Prompt(message.text)
        elif message.kind == "bootstrap":
            yield Bootstrap(message.text)
    if taken.summary is not None:  # before the messages, so that going back to one of them keeps it
        settings = _settings(taken)
        cut = _cut(taken, settings)
        yield cut
        yield _summary(cut, bare(template, taken.summary), settings.get("facts"))
    for message in said:
        if message.kind in (None, "foreign"):
            yield (_answer(message) if message.id in answers else None) or message


def _kept(loaded: Loaded, cut: Cut | None) -> Iterator[Message]:
    """Give what a cut left: the leading system messages, what it pinned, and all from its first on."""
    start = loaded.kept_place(cut) if cut else 0
    pinned = set(cut.pinned) if cut else set[MessageId]()
    leading = True
    for place, message in enumerate(loaded.messages):
        leading = leading and message.role == "system"
        if place >= start or leading or message.id in pinned:
            yield message


def _known(taken: ContextSnapshot) -> dict[str, Any]:
    known = taken.extension.get("turnstate", {})
    return known if isinstance(known, dict) else {}


def _marked(taken: ContextSnapshot, name: str) -> frozenset[str]:
    """Return the ids that the extension has under a name."""
    marks = _known(taken).get(name)
    return frozenset(id for id in marks if isinstance(id, str)) if isinstance(marks, list) else frozenset()


def _said(taken: ContextSnapshot) -> tuple[Message, ...]:
    """Return the messages without those that only fill gaps: a window fills them with the same bytes."""
    filled = _marked(taken, "filled")
    said = tuple(message for message in taken.messages if message.id not in filled)
    return said if tuple(answered(said)) == taken.messages else taken.messages


def _answer(message: Message) -> Answer | None:
    """Return the answer that is shown as a tool message; None if it cannot be one."""
    if len(message.tool_results) != 1 or not isinstance(message.tool_results[0].result, str):
        return None
    (result,) = message.tool_results
    return Answer(
        call=result.tool_call_id,
        text=result.result,
        is_error=result.is_error,
        id=message.id,
        timestamp=message.timestamp,
    )


def _made(cut: Cut, loaded: Loaded) -> dict[str, Any]:
    """Return what a cut was made under and what is known of what it covers, so that the next folds it."""
    summary = loaded.model_summary(cut)
    facts = {"facts": summary.facts} if summary and summary.facts else {}
    digest = {"digest": cut.digest} if cut.digest else {}
    return {"limit": cut.limit, "policy": cut.policy, "counter": cut.counter, **digest, **facts}


def _settings(taken: ContextSnapshot) -> dict[str, Any]:
    made = _known(taken).get("cut", {})
    return made if isinstance(made, dict) else {}


def _summary(cut: Cut, text: str, facts: object) -> Summary:
    """Return the summary of a snapshot; the facts stand at its end, if it says so."""
    told = facts if isinstance(facts, str) and facts and text.endswith(f"\n{facts}") else ""
    words = text.removesuffix(f"\n{told}") if told else text
    return Summary(cut=cut.id, text=words, facts=told, source={"restored": True})


def _digest(digest: object) -> dict[str, Any]:
    """Return the digest of a snapshot; nothing if it is not one."""
    try:
        return Digest.from_json(digest).to_json() if isinstance(digest, dict) else {}
    except InputError:
        return {}


def _cut(taken: ContextSnapshot, settings: dict[str, Any]) -> Cut:
    limit = settings.get("limit")
    gone = MessageId("")  # what the summary covers is in no log
    return Cut(
        id=f"restored-{taken.timestamp}",
        kept_from=None,
        summary="",
        digest=_digest(settings.get("digest")),
        covers=(gone, gone),
        limit=limit if isinstance(limit, int) else 0,
        policy=str(settings.get("policy", "")),
        counter=str(settings.get("counter", "")),
    )
