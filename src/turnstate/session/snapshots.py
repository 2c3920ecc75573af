"""Snapshots of a session: written after each turn and round of tools, not too often, and at the end.

A writer belongs to one epoch of a session. A reset removes the snapshots of the epoch that it ends. A
snapshot that is taken before a reset and written after it is withdrawn, so that an ended conversation does
not come back.

Any write makes the last snapshot stale, but only the end of a turn or of a round of tools triggers the next
one. What no snapshot holds when the process ends, such as a prompt that waits for its answer or calls that
are running, is written then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import structs

from ..context.calls import answered
from ..context.digest import Digest
from ..context.head import Head
from ..context.manager import StateManager
from ..context.snapshot import ContextSnapshot, snapshot
from ..context.summary_text import bare, rendered
from ..entry import INTERRUPTED, Answer, Bootstrap, Cut, Entry, ModelChange, Prompt, Summary
from ..errors import EpochEnded, InputError, NotFound, TurnstateError
from ..ids import MessageId
from ..log.fold import Loaded
from ..message import Message
from ..snapshots import RestoredSnapshot, SnapshotPace, Snapshots
from ..stores.values import SessionRow
from ..tokens import counter_names
from .summaries import Background

EVERY = 5.0
"""Seconds between two snapshots of one session under load."""


class SnapshotWriter:
    """Writes the snapshots of one session; `take` and `check` raise `EpochEnded` after a reset.

    ``unsaved`` holds the writer of each session whose last write is in no snapshot, so that it is written at
    the end even if no handle of the session is left.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        session: str,
        take: Callable[[], Awaitable[ContextSnapshot]],
        check: Callable[[], Awaitable[object]],
        background: Background,
        unsaved: dict[str, SnapshotWriter],
        *,
        every: float = EVERY,
    ) -> None:
        self._snapshots, self._session, self._background = snapshots, session, background
        self._take, self._check, self._unsaved = take, check, unsaved
        self._pace = SnapshotPace(every)
        self._task: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._over = False
        self.failure = ""

    def changed(self) -> None:
        """Record that the session was written to."""
        self._unsaved[self._session] = self

    def appended(self, message: Message) -> None:
        """Schedule a snapshot if a turn or a round of tools ends with this message."""
        if message.role == "tool" or (message.role == "assistant" and not message.tool_calls):
            self._pace.changed()
            if self._task is None or self._task.done():
                self._task = self._background.spawn(self._write_when_due())

    async def restart(self) -> None:
        """Remove the snapshots of a conversation that ended, so that none of them comes back."""
        await asyncio.to_thread(self._snapshots.erase, self._session)
        self._pace.changed()
        await self._write()

    async def stop(self) -> None:
        """Write no more; return when a write in progress is on the disk."""
        self._over = True
        async with self._writing:
            pass

    async def finish(self) -> None:
        """Write what no snapshot has yet."""
        await self._write()

    async def _write_when_due(self) -> None:
        while (seconds := self._pace.wait()) is not None:
            await asyncio.sleep(seconds)
            await self._write()

    async def _write(self) -> None:
        """Write a snapshot; a failure becomes a notice for the user and never stops the conversation."""
        self._pace.begin()
        try:
            async with self._writing:
                if not self._over:
                    self._unsaved.pop(self._session, None)
                    await self._write_checked()
        except (EpochEnded, NotFound):
            self._over, self.failure = True, ""
        except TurnstateError as error:
            self.failure = str(error)
            self._unsaved.setdefault(self._session, self)
        except asyncio.CancelledError:
            self._pace.changed()
            self._unsaved.setdefault(self._session, self)
            raise
        else:
            self.failure = ""

    async def _write_checked(self) -> None:
        taken = await self._take()
        work = asyncio.to_thread(self._snapshots.write, self._session, taken)
        written = await _completed(asyncio.ensure_future(work))
        try:
            await self._check()
        except (EpochEnded, NotFound):
            await asyncio.to_thread(self._snapshots.withdraw, self._session, written)
            raise


async def _completed(writing: asyncio.Future[Path]) -> Path:
    """Wait for a thread, which cannot be canceled, even if the task is canceled."""
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        raise


# A session as a snapshot (head, summary, kept messages), and the entries of a snapshot.


def to_snapshot(loaded: Loaded, row: SessionRow, manager: StateManager, now: int) -> ContextSnapshot:
    """Return a snapshot of a session; its extension has the position in the log."""
    lead = [
        message
        for _, message in Head(system=loaded.fold.prompt, bootstrap=loaded.fold.bootstrap).system_messages()
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


def interrupted(loaded: Loaded) -> list[Answer]:
    """Return answers to the calls that were running when the process ended."""
    return [Answer.give(call.id, INTERRUPTED) for call in loaded.fold.open_calls]


def described(row: SessionRow, restored: RestoredSnapshot) -> SessionRow:
    """Return the row of a session, completed from its snapshot."""
    known = restored.snapshot.extension.get("turnstate", {})
    facts: dict[str, Any] = known if isinstance(known, dict) and not restored.foreign else {}
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
