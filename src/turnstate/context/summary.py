"""The summary: the one message that replaces everything that was cut.

    a cut ──► digest, at once ───────────────► rendered(text, template) ──► in the window
       └────► request ──► a model ──► accepted ──► with_facts ──► takes the digest's place

This is the pure half: no model is called here. The caller counts a model's failures and stops asking
after three in a row, so a broken model costs a session three requests, not one per turn. A summary
is recognized by its kind, never by its text, except in a provider's document.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import structs

from .. import strict_json
from ..entry import Cut, Summary
from ..errors import InputError
from ..ids import MessageId
from ..tokens import Counter
from ..tokens.cost import MESSAGE_FRAME
from ..value import Value
from .digest import Digest
from .digest_text import facts
from .policy import Policy
from .summary_prompt import SummaryRequest
from .summary_text import bare, filled, visible

# Acceptance: whether a model's text may replace the messages that were cut.


Reason = Literal["empty", "error", "longer", "over-cap", "late", "cut-off"]

CUTTABLE = 2  # times the cap: a longer text did not follow the request at all

_FENCED = re.compile(r"```[\w-]*\n(?P<inside>.*)\n```", re.DOTALL)
_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>\s*", re.DOTALL)
_LABEL = re.compile(r"[#* ]*(?:Here is the |Here's the |The )?summary[* ]*(?::[* ]*\s*|\n\s*)", re.IGNORECASE)
_EDGE = re.compile(r"\n+|(?<=[.!?]) +|(?<=[。！？])")

_EXCUSES = (
    "i'm sorry",
    "i am sorry",
    "sorry,",
    "i cannot",
    "i can't",
    "i'm unable",
    "i am unable",
    "as an ai",
    "申し訳",
    "抱歉",
    "对不起",
    "對不起",
)
_FAULTS = (
    "error:",
    "exception:",
    "traceback (most recent call last)",
    "<!doctype",
    "<html",
    "internal server error",
)


class Refusal(Value, frozen=True):
    """Why a summary is rejected, as a word for code and a sentence for people."""

    reason: Reason
    text: str


def accepted(
    text: object,
    request: SummaryRequest,
    *,
    counter: Counter,
    replaced_tokens: int,
    template: str,
    facts: str = "",
    cap: int | None = None,
    covers: tuple[MessageId, MessageId] | None = None,
) -> str | Refusal:
    """Return a model's summary in usable form, or the reason why it is rejected.

    `replaced_tokens` is the cost of the messages that it replaces; `facts` is the text that will accompany
    it, within the same cap; pass `cap` if the budget has changed since the request; `covers` is what the cut
    covers now, if that may have changed.
    """
    if covers is not None and covers != request.covers:
        return Refusal("late", "the cut has moved on since the summary was asked for")
    if not isinstance(text, str):
        return Refusal("error", f"the model returned {type(text).__name__}, not text")
    words = _unwrapped(text, template)
    if fault := _fault(words, request):
        return fault

    def tokens(some: str) -> int:
        return counter.count(filled(template, f"{some}\n{facts}" if facts else some)).tokens

    if (cost := counter.count(filled(template, words)).tokens) > replaced_tokens:
        return Refusal("longer", f"the summary has {cost:,} tokens, what it replaces {replaced_tokens:,}")
    return _fitted(words, request.cap if cap is None else cap, tokens)


def _fitted(words: str, limit: int, tokens: Callable[[str], int]) -> str | Refusal:
    """Cut a text that is a little over the limit at the end of a line or sentence."""
    cost = tokens(words)
    if cost <= limit:
        return words
    if cost <= CUTTABLE * limit:
        edges = [match.start() for match in _EDGE.finditer(words)]
        fitting = bisect_right(edges, limit, key=lambda edge: tokens(words[:edge]))
        shorter = words[: edges[fitting - 1]].rstrip() if fitting else ""
        if shorter and tokens(shorter) <= limit:
            return shorter
    return Refusal("over-cap", f"the summary has {cost:,} tokens where {limit:,} are allowed")


def _unwrapped(text: str, template: str) -> str:
    """Remove what models put around a summary, however often."""
    words, before = visible(strict_json.clean(text)).strip(), ""
    while words != before:
        before = words
        if fenced := _FENCED.fullmatch(words):
            words = fenced["inside"].strip()
        for wrapping in (_THOUGHT, _LABEL):
            if found := wrapping.match(words):
                words = words[found.end() :]
        words = _inside_json(bare(template, words))
    return words


def _inside_json(words: str) -> str:
    """Return the text of ``{"summary": …}``; any other JSON stays as it is and is refused later."""
    found = _json(words)
    summary = found.get("summary") if isinstance(found, dict) else None
    return summary.strip() if isinstance(summary, str) else words


def _fault(words: str, request: SummaryRequest) -> Refusal | None:
    if not any(map(str.isalnum, words)):
        return Refusal("empty", "the summary says nothing")
    start = words[:40].replace("’", "'").lower()
    if start.startswith(_EXCUSES):
        return Refusal("error", f"the model would not summarize: {words[:80]!r}")
    if start.startswith(_FAULTS) or _json(words) is not None:
        return Refusal("error", f"the model returned an error or an object, not a summary: {words[:80]!r}")
    return Refusal("error", "the model repeated the request") if request.mark in words else None


def _json(words: str) -> Any:
    """Read an object or a list; return None if the text is neither."""
    if not words.startswith(("{", "[")):
        return None
    try:
        return msgspec.json.decode(words)
    except (msgspec.DecodeError, RecursionError):
        return None


MOST_FAILURES = 3


def text_cap(cut: Cut, policy: Policy) -> int:
    """Return the tokens that the text of a cut's summary may take, including the template."""
    return (cut.cap or policy.summary_cap(cut.limit)) - MESSAGE_FRAME


def facts_of(cut: Cut, counter: Counter, policy: Policy, *, words: str = "") -> str:
    """Return what code knows of the messages that a cut covers, in at most half of the summary's cap.

    If `words` is given, the facts take no more than the words leave of the cap.
    """
    try:
        known = Digest.from_json(cut.digest)
    except InputError:  # written elsewhere; only the words are used
        return ""
    cap, template = text_cap(cut, policy), policy.summary_template
    room = cap // 2
    if words:
        room = min(room, cap - counter.count(filled(template, words + "\n")).tokens)
    return facts(known, room, counter, template, language=policy.language, words=words)


def with_facts(summary: Summary, cut: Cut, counter: Counter, policy: Policy) -> Summary:
    """Return a model's summary with the facts of its cut added."""
    if summary.facts is not None:
        return summary
    return structs.replace(summary, facts=facts_of(cut, counter, policy, words=summary.text))


class Failures(Value, frozen=True):
    """How often in a row a model failed to summarize, and the last reason."""

    count: int = 0
    last: str = ""

    @property
    def may_try(self) -> bool:
        """True if the model may be asked again."""
        return self.count < MOST_FAILURES

    @property
    def notice(self) -> str:
        """The notice to the user once the model is no longer asked; empty before that."""
        if self.may_try:
            return ""
        failed = f"The model failed to summarize {self.count} times in a row ({self.last})"
        return f"{failed}; digests are used instead."

    def failed(self, why: str | Refusal) -> Failures:
        """Return the failures with one more."""
        return Failures(self.count + 1, why.text if isinstance(why, Refusal) else why)

    def succeeded(self) -> Failures:
        """Return a fresh count, without failures."""
        return Failures()
