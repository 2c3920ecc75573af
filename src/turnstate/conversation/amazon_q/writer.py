"""Writes an Amazon Q document: the live history with its summary, in Amazon Q's order and by its rules.

`left_out` lists what such a document cannot hold, for the person who exports it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ...entry import Cut
from ...ids import CallId
from ...message import Message
from ...part import ImagePart, OpaquePart, Part, ReasoningPart, TextPart
from ..history import MAX_TRANSCRIPT_LEN, HistoryEntry, UserMessage
from ..shown import ShownConversation
from ..state import ConversationState
from . import fields, messages, reader, times
from . import fields as kept
from . import fields as metadata
from . import fields as snapshots
from .reader import ENTRIES, MAIN, SUMMARIZED

MOST_MESSAGES = 9_994
"""Maximum messages that Amazon Q sends; with more, it begins at a later prompt."""

ORDER = """
    conversation_id next_message history valid_history_range transcript tools context_manager
    context_message_length latest_summary model model_info file_line_tracker checkpoint_manager
    mcp_enabled tangent_state
""".split()


def saved(state: ConversationState) -> str:
    """Return a conversation as Amazon Q saves it to a file."""
    return json.dumps(write(state), ensure_ascii=False, indent=2)


def row(state: ConversationState) -> str:
    """Return a conversation as Amazon Q keeps it in its database."""
    return json.dumps(write(state), ensure_ascii=False, separators=(",", ":"))


def write(state: ConversationState) -> dict[str, Any]:
    """Return a conversation as an Amazon Q document."""
    foreign = state.extra.get(fields.KEPT)
    foreign = foreign if isinstance(foreign, dict) else {}
    shown = _fields(state.shown)
    ours = {
        "conversation_id": state.conversation_id,
        **shown,
        "valid_history_range": list(_valid_range(shown["history"])),
        **fields.written(state),
        "checkpoint_manager": _checkpoints(state, foreign.get("checkpoint_manager")),
    }
    if state.is_in_tangent_mode():
        ours["tangent_state"] = _tangent(state, foreign.get("tangent_state"))
    found = kept.put_back(ours, foreign.get("fields"))
    ordered = {name: found[name] for name in ORDER if name in found} | found
    return _copied(ordered)


def _copied(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document that shares no value with the state."""
    copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    return copy


def _fields(shown: ShownConversation) -> dict[str, Any]:
    history, waiting = _repaired(shown.history[first_written(shown) :], shown.pending)
    theirs = _their_ids(shown.history) | _their_ids(history)
    return {
        "next_message": messages.written_user(waiting, theirs) if waiting else None,
        "history": [_exchange(entry, theirs) for entry in history],
        "latest_summary": _summary(shown),
        "transcript": shown.lines[-MAX_TRANSCRIPT_LEN:],
    }


def _repaired(
    history: Sequence[HistoryEntry], pending: Sequence[Message]
) -> tuple[list[HistoryEntry], tuple[Message, ...]]:
    """Return the exchanges and the pending messages, in which every call is answered immediately."""
    sides = [entry.user.messages for entry in history]
    found, answers = reader.repaired([*sides, pending], [entry.assistant for entry in history])
    *sides, waiting = found
    exchanges = [
        HistoryEntry(UserMessage(side), answer, entry.request_metadata)
        for side, answer, entry in zip(sides, answers, history, strict=True)
    ]
    return exchanges, waiting


def _their_ids(history: list[HistoryEntry]) -> dict[CallId, str]:
    calls = (call for entry in history for call in entry.assistant.tool_calls)
    return {call.id: call.provider_id for call in calls if call.provider_id is not None}


def first_written(shown: ShownConversation) -> int:
    """Return the number of the first live exchange that no compaction covers."""
    cut = shown.cut
    if cut is None or not _is_compaction(cut):
        return shown.live_from
    return max(shown.live_from, shown.first_kept(cut))


def _is_compaction(cut: Cut) -> bool:
    return bool(cut.asked) and cut.asked.get("operation") != "clear"


def _exchange(entry: HistoryEntry, theirs: Mapping[CallId, str]) -> dict[str, Any]:
    answer = messages.written_assistant(entry.assistant)
    if entry.request_metadata is not None:
        ((_, body),) = answer["assistant"].items()
        prompt = len((entry.user.prompt or "").encode())
        record = metadata.of_answer(entry.request_metadata, prompt, entry.assistant, body)
        answer["request_metadata"] = record
    return {"user": messages.written_user(entry.user.messages, theirs), **answer}


def _summary(shown: ShownConversation) -> list[Any] | None:
    found = shown.summary
    if found is None or not _is_compaction(found[1]):
        return None
    text, cut, by_model = found
    if by_model is None and isinstance(record := cut.asked.get(SUMMARIZED), dict):
        return [text, record]
    model = str(by_model.source.get("model", "")) if by_model else ""
    return [text, metadata.of_summary(text, cut.id, model)] if text else None


def _valid_range(history: list[dict[str, Any]]) -> tuple[int, int]:
    if 2 * len(history) <= MOST_MESSAGES:
        return 0, len(history)
    prompts = (place for place, one in enumerate(history) if place and "Prompt" in one["user"]["content"])
    start = next(prompts, None)
    return (0, 0) if start is None else (start, len(history))


def _checkpoints(state: ConversationState, folded: Any) -> dict[str, Any] | None:
    if not isinstance(folded, dict):
        return None
    root = state.main or state.shown
    if root.first > 1:  # its beginning is only in the log
        return None
    history, _ = _repaired(root.history, root.pending)
    theirs = _their_ids(history)
    return snapshots.unfolded(folded, [_exchange(entry, theirs) for entry in history])


def _tangent(state: ConversationState, foreign: Any) -> dict[str, Any]:
    shown = _fields(state.main or state.shown)
    main: dict[str, Any] = {MAIN + name: shown[name] for name in ENTRIES}
    begun = times.start_numbers(state.open_tangents[0].created)
    return kept.put_back({**main, "tangent_start_time": begun}, foreign)


def left_out(state: ConversationState) -> list[str]:
    """Return what `write` leaves out, or writes as text."""
    return list(_omissions(state))


def _omissions(state: ConversationState) -> Iterator[str]:
    shown = state.shown
    first = first_written(shown)
    parts = [(message, part) for message in shown.fold.messages for part in message.parts]
    if shown.fold.prompt:
        yield "the system prompt is left out; in Amazon Q it comes from the agent"
    if shown.fold.bootstrap:
        yield "what is known of the user is left out"
    if hidden := first - shown.live_from:
        yield f"{_counted(hidden, 'exchange')} before the summary left out"
    if older := shown.live_from:
        yield f"{_counted(older, 'exchange')} that the live history does not show left out"
    elif shown.first > 1:
        yield f"what was said before the newest {_counted(len(shown.history), 'exchange')} left out"
    if kept := len(state.kept_tangents()):
        yield _counted(kept, "tangent that was left is omitted", "tangents that were left are omitted")
    if thoughts := sum(isinstance(part, ReasoningPart) for _, part in parts):
        yield f"{_counted(thoughts, 'piece')} of reasoning left out"
    if foreign := sum(_is_described(message, part) for message, part in parts):
        yield f"{_counted(foreign, 'file or picture', 'files or pictures')} written as a line of text"


def _is_described(message: Message, part: Part) -> bool:
    """Return True if a part is written as a line of text that describes it; answers hold no pictures."""
    if isinstance(part, ImagePart):
        return message.role == "assistant" or not messages.is_picture(part)
    return not isinstance(part, TextPart | ReasoningPart | OpaquePart)


def _counted(number: int, one: str, more: str = "") -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"
