"""Decisions: what changes the view of a log, written down so that it can be replayed and undone.

The context engine returns decisions and never writes; whoever keeps the log appends them. Applying
the same decisions to the same messages gives the same bytes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .ids import CallId, MessageId
from .value import Value

__all__ = ["Answer", "Cut", "Decision", "Mask", "Summary"]


class Cut(Value, frozen=True, kw_only=True, tag="cut", tag_field="kind"):
    """The whole view after a cut: what is kept, what is masked, what stands for the rest.

    ``kept_from`` is the first message that is kept with all that follows; ``pinned`` are earlier
    messages that stay; ``masked`` are tool messages whose output is shown as a line; ``summary``
    is the text that stands for what left (empty where there is no room for any), ``digest`` what
    the next cut folds into its own. ``covers`` names the first and the last message that left.
    """

    id: str
    kept_from: MessageId
    pinned: tuple[MessageId, ...] = ()
    masked: tuple[MessageId, ...] = ()
    summary: str
    digest: dict[str, Any] = msgspec.field(default_factory=dict)
    covers: tuple[MessageId, MessageId]
    limit: int
    policy: str
    counter: str


class Mask(Value, frozen=True, kw_only=True, tag="mask", tag_field="kind"):
    """Tool messages whose output is shown as a line from now on, and the tokens that it saves."""

    ids: tuple[MessageId, ...]
    saved: int


class Summary(Value, frozen=True, kw_only=True, tag="summary", tag_field="kind"):
    """A model's text in place of the digest of one cut."""

    cut: str
    text: str
    source: dict[str, Any] = msgspec.field(default_factory=dict)


class Answer(Value, frozen=True, kw_only=True, tag="answer", tag_field="kind"):
    """The visible error that answers a call which never got a result."""

    call: CallId
    text: str


Decision = Cut | Mask | Summary | Answer
