"""Signs that show how good an answer a turn can be, detected once when it is stored.

A turn that reports something ("I went …", a name, a date, a number) answers more questions than one
that comments or asks. The signs are cheap patterns, and each only nudges a score.
"""

from __future__ import annotations

import re
from enum import IntFlag

from .courtesies import has_content


class Sign(IntFlag):
    """What was found in a turn."""

    NONE = 0
    QUESTION = 1
    TIME = 2
    NUMBER = 4
    EVENT = 8
    NAME = 16
    FACT = 32
    """The turn is the source of a fact that holds."""
    ENDED = 64
    """The turn is the source of a fact that no longer holds."""
    EMPTY = 128
    """The turn says nothing, such as "ok, thanks"."""


_TIME = re.compile(
    r"\b(yesterday|today|tonight|tomorrow|last|next|ago|week|weekend|month|year|monday|tuesday|wednesday|thursday|"
    r"friday|saturday|sunday|january|february|march|april|may|june|july|august|september|october|november|"
    r"december|since|recently|soon|[12]\d{3})\b"
    r"|昨日|今日|明日|先週|来週|先月|来月|去年|今年|来年|\d+[年月日]|前に|昨天|今天|明天|上周|下周|上个月|下个月|去年|今年|明年|以前",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"\b(\d+|one|two|three|four|five|six|seven|eight|nine|ten|once|twice|couple|few|several|dozen)\b"
    r"|[一二三四五六七八九十百千]+[人個回歳匹年つ个次岁只]",
    re.IGNORECASE,
)
_EVENT = re.compile(
    r"\b(?:I|we|I've|we've|I'd)\s+(?:just |also |recently |finally |even |actually )?"
    r"(?:\w+ed|went|got|made|took|had|did|saw|bought|found|met|won|lost|began|been|came|gave|wrote|read|ran|built|"
    r"taught|drove|flew)\b"
    r"|(?:ました|だった|でした|行った|買った|始めた)|我[^，。？！]{0,8}[了过]"
)
_NAME = re.compile(
    r"(?<![.!?…\"“'’] )(?<!^)(?<!\n)\b[A-Z][a-z]{2,}|[ァ-ヺー]{3,}|[「『《“][^」』》”]{2,40}[」』》”]"
)


def signs(text: str, authors: frozenset[str] = frozenset()) -> Sign:
    """Return the signs of a turn; names of ``authors`` (in lower case) count as addresses, not as names."""
    found = Sign.NONE if has_content(text) else Sign.EMPTY
    if text.rstrip().endswith(("?", "？")):
        found |= Sign.QUESTION
    if _TIME.search(text):
        found |= Sign.TIME
    if _NUMBER.search(text):
        found |= Sign.NUMBER
    if _EVENT.search(text):
        found |= Sign.EVENT
    if any(name.lower() not in authors for name in _NAME.findall(text)):
        found |= Sign.NAME
    return found
