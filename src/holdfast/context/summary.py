"""The summary: the one message that stands for everything that was cut.

    a cut ──► digest, at once ───────────────► rendered(text, template) ──► in the window
       └────► request ──► a model ──► accepted ──► takes the digest's place, or is thrown away

This is the pure half of it: no model is called here. Whoever calls one counts its failures, and
after three in a row leaves it alone, so that a broken model costs a session three requests and not
one a turn. A summary is recognised by its kind, never by its text.
"""

from __future__ import annotations

from ..ids import UNKNOWN_TIME, derived_id
from ..message import Message
from ..value import Value
from .acceptance import Reason, Refusal, accepted
from .briefing import SummaryRequest, request
from .template import filled

__all__ = ["Failures", "Reason", "Refusal", "SummaryRequest", "accepted", "rendered", "request"]

MOST_FAILURES = 3


def rendered(text: str, template: str) -> Message:
    """Make the message that stands at the cut; the same text gives the same message."""
    content = filled(template, text)
    id = derived_id(0, b"summary", content.encode())
    return Message.system(content, kind="summary", id=id, timestamp=UNKNOWN_TIME)


class Failures(Value, frozen=True):
    """How often in a row a model failed to summarise, and why it did last."""

    count: int = 0
    last: str = ""

    @property
    def may_try(self) -> bool:
        """Whether the model is asked again."""
        return self.count < MOST_FAILURES

    @property
    def notice(self) -> str:
        """What the user is told once the model is left alone; nothing before."""
        if self.may_try:
            return ""
        return (
            f"The model failed to summarise {self.count} times in a row ({self.last}); digests stand instead."
        )

    def failed(self, why: str | Refusal) -> Failures:
        """Count a failure."""
        return Failures(self.count + 1, why.text if isinstance(why, Refusal) else why)

    def succeeded(self) -> Failures:
        """Start again from none."""
        return Failures()
