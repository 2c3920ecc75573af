"""Turns messages into drafts of documents: who said something, when, and the terms it is found by.

The author of a message is the name in the message, or the name before a colon if the whole delivery is
written like a transcript ("Joanna: I moved"), or else its role. A name is also learned if the other side
keeps using it as an address ("Thanks, Joanna!"), because questions name people, not roles.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from ... import search_terms
from ...message import Message
from .dates import days_of
from .signs import Sign, signs
from .terms import MAX_TEXT, terms

TRANSCRIPT_SHARE = 0.6
"""The share of messages that must begin with a name for the names to count as authors."""

_PREFIX = re.compile(
    r"^(?:\[[^\]\n]{4,40}\]\s*)?([^\W\d_][\w.'’-]{0,30}(?: [^\W\d_][\w.'’-]{0,20}){0,2})\s?[:：]\s+"
)
_NOT_NAMES = frozenset(
    "error warning note info debug todo fix q a answer question summary user assistant system tool example "
    "re subject http https ps nb hint step result output input code file path url date time title".split()
)
_ADDRESS = re.compile(
    r"(?:^|[.!?]\s+)(?:hey|hi|hello|thanks|thank you|thx|wow|congrats|congratulations|yeah|yep|sure|great|"
    r"awesome|oh|ok|okay|sorry|aww|nice|bye|good (?:morning|night|evening))[,!]?\s+"
    r"([A-Z][a-z]{1,20})\b(?=[!,.?]|\s|$)",
    re.IGNORECASE,
)
_CAPITAL = re.compile(r"[A-Z]")
_NO_ADDRESS = frozenset(
    "that this there the to for so it i you we what how everyone all guys both again much very well no yes "
    "man dear folks team buddy job idea question point news day".split()
)


class MessageDraft(NamedTuple):
    """A message on its way into memory."""

    message: str
    role: str
    author: str
    said: str
    text: str
    spoken: str
    """The text without the author's name at its start."""
    terms: tuple[str, ...]
    signs: Sign
    days: tuple[str, ...] = ()
    """The days on which it was said or of which it speaks, as terms."""


def drafts(messages: Sequence[Message]) -> list[MessageDraft]:
    """Return the drafts of the messages that have something to remember."""
    texts = [_text(message) for message in messages]
    names = _names(messages, texts)
    known = frozenset(name.lower() for name in names if name)
    made = list[MessageDraft]()
    for message, text, name in zip(messages, texts, names, strict=True):
        if message.role == "system" or not text.strip():
            continue
        spoken = _PREFIX.sub("", text) if name and not _field(message) else text
        made.append(
            MessageDraft(
                message=message.id,
                role=message.role,
                author=name or message.role,
                said=message.timestamp,
                text=text,
                spoken=spoken,
                terms=tuple(terms(spoken)),
                signs=signs(spoken, known),
                days=tuple(days_of(spoken, message.timestamp)),
            )
        )
    return made


def redrafted(message: str, role: str, author: str, said: str, text: str) -> MessageDraft:
    """Return the draft of a turn whose author is known."""
    spoken = _PREFIX.sub("", text) if author not in (role, "") and _prefix(text) == author else text
    known = frozenset([author.lower()])
    return MessageDraft(
        message,
        role,
        author,
        said,
        text,
        spoken,
        tuple(terms(spoken)),
        signs(spoken, known),
        tuple(days_of(spoken, said)),
    )


def addressed(batch: Sequence[MessageDraft]) -> Counter[tuple[str, str]]:
    """Count the names that each role is called by the other, as pairs of a name and the role it is for."""
    other = {"user": "assistant", "assistant": "user"}
    counts = Counter[tuple[str, str]]()
    for draft in batch:
        if draft.role in other and draft.author == draft.role:
            for name in _ADDRESS.findall(draft.text):
                if _CAPITAL.match(name) and name.lower() not in _NO_ADDRESS:
                    counts[name, other[draft.role]] += 1
    return counts


def _text(message: Message) -> str:
    text = "\n".join(search_terms.searchable(message)) if message.role == "tool" else message.text
    return text[:MAX_TEXT].replace("\0", "\ufffd")


def _names(messages: Sequence[Message], texts: Sequence[str]) -> list[str]:
    """Return the name of the author of each message; empty if only its role is known."""
    spoken = [
        text for message, text in zip(messages, texts, strict=True) if message.role in ("user", "assistant")
    ]
    found = [_prefix(text) for text in spoken]
    is_transcript = len(spoken) > 1 and sum(map(bool, found)) >= TRANSCRIPT_SHARE * len(spoken)
    return [
        _field(message) or (_prefix(text) if is_transcript and message.role in ("user", "assistant") else "")
        for message, text in zip(messages, texts, strict=True)
    ]


def _prefix(text: str) -> str:
    found = _PREFIX.match(text)
    return found[1] if found and found[1].lower() not in _NOT_NAMES else ""


def _field(message: Message) -> str:
    """Return the ``name`` field of a message, as in OpenAI's format."""
    name: Any = message.extra.get("name") if isinstance(message.extra, dict) else None
    return name.strip()[:60] if isinstance(name, str) else ""
