"""The earlier summary: what a document says of messages that were cut before it came here.

A list that was fitted once, went on, and is fitted again brings its summary along, as a system
message or as the last block of the system text. Left there it would stay for good, and every cut
would add another. So it is taken out, and given to the window as the cut that it records: the
next cut folds it. Only leading system text is looked at, which users do not write.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from msgspec import structs

from ..decision import Cut
from ..message import Message
from ..part import TextPart
from .digest import carrying
from .policy import Policy
from .rounds import derived
from .tally import Tally
from .template import bare, label
from .wording import TEMPLATES, WORDINGS

__all__ = ["parted", "recorded"]

# How a summary begins that carries an earlier one; what it quotes has other quotation marks inside.
_NESTED = re.compile(
    "|".join("^{}“([^”]*)”{} ?".format(*map(re.escape, one.earlier.split("{}"))) for one in WORDINGS.values())
)


def parted(messages: Sequence[Message], template: str) -> tuple[list[Message], str]:
    """Part the messages from the summary that stands in their head; it is empty where there is none."""
    head = list(takewhile(lambda message: message.role == "system", messages))
    found = [(message, _summary(message, template)) for message in head]
    rest = [_without(message, template) if text else message for message, text in found]
    kept = [message for message in rest if message is not None]
    return [*kept, *messages[len(head) :]], " ".join(text for _, text in found if text)


def recorded(earlier: str, tally: Tally, policy: Policy, limit: int) -> tuple[Cut, ...]:
    """Give an earlier summary as the cut that it stands for, which kept every message there is."""
    if not earlier or not tally.end:
        return ()
    first = tally.at(0).id
    return (
        Cut(
            id=derived("earlier", earlier),
            kept_from=first,
            summary=earlier,
            digest=carrying(earlier).to_json(),
            covers=(first, first),
            limit=limit,
            policy=policy.fingerprint,
            counter=tally.counter.name,
        ),
    )


def _summary(message: Message, template: str) -> str:
    """Give the summary that a system message ends with, if it does."""
    last = message.parts[-1]
    if not isinstance(last, TextPart):
        return ""
    text = bare(template if label(template) else "", last.text)
    if text == last.text.strip():
        return ""
    return _NESTED.sub(lambda found: f"{found[found.lastindex or 0]} ", text)


def _without(message: Message, template: str) -> Message | None:
    """Take the summary off the end of a system message; None where nothing else stands in it."""
    parts, native = message.parts[:-1], message.native
    if not parts:
        return None
    if native:
        # Marks on the other blocks stay; an edit that would write the summary back does not.
        labels = [one for one in map(label, (template, *TEMPLATES.values())) if one]
        edits = tuple(edit for edit in native.edits if not any(one in str(edit.to) for one in labels))
        native = structs.replace(native, edits=edits)
    return structs.replace(message, content=parts, native=native)
