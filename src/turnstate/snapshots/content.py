"""What a snapshot of a session contains, and the entries that it becomes in a new log.

The queue and the summary are the specification's. The extension adds what a session needs to continue under
its id: its row, its place in the log, the settings and digest of the newest cut, and which tool messages are
answers that the library supplied. All of it is optional when read, since another program may have written
the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import structs

from ..context.calls import answered
from ..context.digest import Digest
from ..context.manager import StateManager
from ..context.preface import Preface
from ..context.snapshot import ContextSnapshot, snapshot
from ..context.summary_text import bare, rendered
from ..entry import Answer, Bootstrap, Cut, Entry, ModelChange, Prompt, Summary
from ..errors import InputError
from ..ids import MessageId
from ..log.fold import Loaded
from ..message import Message
from ..stores.values import SessionRow
from ..tokens import counter_names
from .snapshots import RestoredSnapshot


def to_snapshot(loaded: Loaded, row: SessionRow, manager: StateManager, now: int) -> ContextSnapshot:
    """Return a snapshot of a session; its extension has the position in the log."""
    lead = [
        message
        for _, message in Preface(
            system=loaded.fold.prompt, bootstrap=loaded.fold.bootstrap
        ).system_messages()
    ]
    cut = loaded.cut
    summary = loaded.summary_of(cut)
    if summary:
        lead.append(rendered(summary, manager.policy.summary_template))
    kept = list(_kept(loaded, cut))
    shown = list(answered(kept))
    known = {message.id for message in kept}
    filled = [message for message in shown if message.id not in known]
    stored = {message.id: loaded.tokens_of(message.id) for message in kept}
    uncounted = [message for message in kept if stored[message.id] is None]
    tokens = manager.count([*lead, *filled, *uncounted]).tokens + sum(one or 0 for one in stored.values())
    place = {"session": row.id, "epoch": row.epoch, "branch": row.branch, "seq": row.seq}
    described: dict[str, Any] = {
        "user": row.user,
        "title": row.title,
        "tags": list(row.tags),
        "meta": row.meta,
    }
    made = {} if cut is None else _made(cut, loaded)
    given = {one.id for one in loaded.decisions if isinstance(one, Answer)}
    answers = [message.id for message in kept if message.id in given]
    marks: dict[str, Any] = {"answers": answers, "filled": [message.id for message in filled]}
    if model := loaded.fold.model:
        marks["model"] = {"id": model.id, "counter": model.counter}
    extension = {"turnstate": {**place, **described, "created": row.created, "cut": made, **marks}}
    taken = snapshot([*lead, *shown], tokens=tokens, timestamp=now)
    return structs.replace(taken, extension=extension)


def from_snapshot(taken: ContextSnapshot, template: str) -> Iterator[Entry]:
    """Yield the entries that write a snapshot back into a log."""
    messages, answers = _messages(taken), _marked(taken, "answers")
    if model := _model(taken):  # first: what follows is counted under it
        yield model
    for message in messages:
        if message.kind == "prompt":
            yield Prompt(message.text)
        elif message.kind == "bootstrap":
            yield Bootstrap(message.text)
    if taken.summary is not None:  # before the messages, so that a rewind to one of them keeps it
        settings = _settings(taken)
        cut = _cut(taken, settings)
        yield cut
        yield _summary(cut, bare(template, taken.summary), settings.get("facts"))
    for message in messages:
        if message.kind in (None, "foreign"):
            yield (_answer(message) if message.id in answers else None) or message


def _kept(loaded: Loaded, cut: Cut | None) -> Iterator[Message]:
    """Yield what a cut kept: leading system messages, pinned ones, and all from the first kept one on."""
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


def _messages(taken: ContextSnapshot) -> tuple[Message, ...]:
    """Return the messages without those that only fill gaps: a window fills them with the same bytes."""
    filled = _marked(taken, "filled")
    messages = tuple(message for message in taken.messages if message.id not in filled)
    return messages if tuple(answered(messages)) == taken.messages else taken.messages


def _answer(message: Message) -> Answer | None:
    """Return the answer that a tool message shows; None if the message cannot be an answer."""
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


def _model(taken: ContextSnapshot) -> ModelChange | None:
    """Return the model that a snapshot was taken under; None without one whose counter is known here."""
    match _known(taken).get("model"):
        case {"id": str(id), "counter": str(name)} if name in counter_names():
            return ModelChange(id, name)
    return None


def _made(cut: Cut, loaded: Loaded) -> dict[str, Any]:
    """Return a cut's settings and what is known about what it covers, so that the next cut can fold it in."""
    summary = loaded.fold.model_summary(cut)
    facts = {"facts": summary.facts} if summary and summary.facts else {}
    digest = {"digest": cut.digest} if cut.digest else {}
    return {"limit": cut.limit, "policy": cut.policy, "counter": cut.counter, **digest, **facts}


def _settings(taken: ContextSnapshot) -> dict[str, Any]:
    made = _known(taken).get("cut", {})
    return made if isinstance(made, dict) else {}


def _summary(cut: Cut, text: str, facts: object) -> Summary:
    """Return the summary of a snapshot; the facts are at its end, if the snapshot says so."""
    known = facts if isinstance(facts, str) and facts and text.endswith(f"\n{facts}") else ""
    words = text.removesuffix(f"\n{known}") if known else text
    return Summary(cut=cut.id, text=words, facts=known, source={"restored": True})


def _digest(digest: object) -> dict[str, Any]:
    """Return the digest of a snapshot; empty if it is invalid."""
    try:
        return Digest.from_json(digest).to_json() if isinstance(digest, dict) else {}
    except InputError:
        return {}


def _cut(taken: ContextSnapshot, settings: dict[str, Any]) -> Cut:
    limit = settings.get("limit")
    nothing = MessageId("")  # what the summary covers is in no log
    return Cut(
        id=f"restored-{taken.timestamp}",
        kept_from=None,
        summary="",
        digest=_digest(settings.get("digest")),
        covers=(nothing, nothing),
        limit=limit if isinstance(limit, int) else 0,
        policy=str(settings.get("policy", "")),
        counter=str(settings.get("counter", "")),
    )


def restored_row(row: SessionRow, restored: RestoredSnapshot) -> SessionRow:
    """Return the row of a session, completed from its snapshot."""
    facts = {} if restored.foreign else _known(restored.snapshot)
    user, title, tags, created = (facts.get(name) for name in ("user", "title", "tags", "created"))
    meta = facts.get("meta")
    return structs.replace(
        row,
        user=user if isinstance(user, str) else row.user,
        title=title if isinstance(title, str) else row.title,
        tags=tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else row.tags,
        created=created if type(created) is int else row.created,
        meta=meta if isinstance(meta, dict) else row.meta,
    )
