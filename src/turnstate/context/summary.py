"""The summary: the one message that stands for everything that was cut.

    a cut ──► digest, at once ───────────────► rendered(text, template) ──► in the window
       └────► request ──► a model ──► accepted ──► with_facts ──► takes the digest's place

This is the pure half of it: no model is called here. Whoever calls one counts its failures, and
after three in a row leaves it alone, so that a broken model costs a session three requests and not
one a turn. A summary is recognised by its kind, never by its text.
"""

from __future__ import annotations

from msgspec import structs

from ..decision import Cut, Summary
from ..errors import InputError
from ..ids import UNKNOWN_TIME, derived_id
from ..message import Message
from ..tokens import Counter
from ..tokens.cost import MESSAGE_FRAME
from ..value import Value
from .acceptance import Reason, Refusal, accepted
from .briefing import SummaryRequest, request
from .digest import Digest, facts
from .policy import Policy
from .template import filled

__all__ = [
    "Failures",
    "Reason",
    "Refusal",
    "SummaryRequest",
    "accepted",
    "facts_of",
    "rendered",
    "request",
    "text_cap",
    "with_facts",
]

MOST_FAILURES = 3


def rendered(text: str, template: str) -> Message:
    """Make the message that stands at the cut; the same text gives the same message."""
    content = filled(template, text)
    id = derived_id(0, b"summary", content.encode())
    return Message.system(content, kind="summary", id=id, timestamp=UNKNOWN_TIME)


def text_cap(cut: Cut, policy: Policy) -> int:
    """Return the tokens that the text of a cut's summary may take, the template included."""
    return (cut.cap or policy.summary_cap(cut.limit)) - MESSAGE_FRAME


def facts_of(cut: Cut, counter: Counter, policy: Policy, *, words: str = "") -> str:
    """Return what code knows of the messages that a cut covers, in at most half of the summary's cap.

    If words are given already, the facts take no more than these leave of the cap.
    """
    try:
        known = Digest.from_json(cut.digest)
    except InputError:  # written by somebody else; the words stand alone
        return ""
    cap, template = text_cap(cut, policy), policy.summary_template
    room = cap // 2
    if words:
        room = min(room, cap - counter.count(filled(template, words + "\n")).tokens)
    return facts(known, room, counter, template, language=policy.language)


def with_facts(summary: Summary, cut: Cut, counter: Counter, policy: Policy) -> Summary:
    """Return a model's summary with the facts of its cut beside it."""
    if summary.facts is not None:
        return summary
    return structs.replace(summary, facts=facts_of(cut, counter, policy, words=summary.text))


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
