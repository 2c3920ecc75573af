"""Which sentences of a message ask: a message is more than its question.

    "The bus was late again. What did Sam want for lunch? And where did we meet?"
        What did Sam want for lunch?
        And where did we meet?

Sentences with a question mark ask; without any, those that are worded as a question or a request; and if none
is, the last sentence that says anything is taken. Each question is a search of its own.
"""

from __future__ import annotations

import re

from .courtesies import has_content

MOST_QUESTIONS = 4
"""The most questions of a message; of more, the last ones."""

_END = re.compile(
    r"(?<=[.!?…])(?<!\b[A-Z]\.)(?<!\b[A-Z][a-z]\.)(?<!\b[A-Z][a-z][a-z]\.)[\"'”’)\]]*\s+(?=\S)"
    r"|(?<=[。！？])[」』”’）]*|\n+"
)
_MARK = re.compile(r"[?？]")
_WORDED = re.compile(
    r"^\W*(?:(?:and|but|so|also|then|now|hey|hi|ok|okay|please|well)\W+)*"
    r"(?:who|whom|whose|what|which|when|where|why|how|do|does|did|is|are|am|was|were|can|could|will|would|should|"
    r"have|has|had|may|might|tell|remind|name|list|show|find|give|explain|describe|look up|search|recall)\b"
    r"|\b(?:i wonder|i'd like to know|i want to know|do you (?:know|remember)|can you (?:tell|remind))\b"
    r"|(?:ですか|ますか|でしたか|ましたか|だっけ|でしたっけ|かな|のか|教えて[^。]*|思い出して[^。]*)[。\s]*$"
    r"|[吗呢么][。\s]*$|什么|谁|哪|几[个点岁次天年月号]|多少|怎么|怎样|为何|告诉我|提醒我",
    re.IGNORECASE,
)


def questions(text: str) -> list[str]:
    """Return what a message asks, each question alone; nothing if the message has no content."""
    sentences = [part for part in (part.strip() for part in _END.split(text)) if part]
    contents = [has_content(sentence) for sentence in sentences]
    asking = [n for n, one in enumerate(sentences) if _MARK.search(one)]
    asking = asking or [n for n, one in enumerate(sentences) if contents[n] and _WORDED.search(one)]
    found = list[str]()
    for n in asking:
        if contents[n]:
            found.append(sentences[n])
        elif n and contents[n - 1] and n - 1 not in asking:  # "I moved to Porto. When was that?"
            found.append(f"{sentences[n - 1]} {sentences[n]}")
    if not found:
        found = [one for one, content in zip(sentences, contents, strict=True) if content][-1:]
    return list(dict.fromkeys(found))[-MOST_QUESTIONS:]
