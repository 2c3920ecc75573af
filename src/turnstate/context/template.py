"""The template: the sentence that a summary stands in, such as ``[Memory Summary] … {summary}``.

A cut records the bare text; the template is put around it when a window is made, so that a change
of wording needs no new cut. Texts that come back from a model, or from a list that somebody else
kept, may bring the template along: it is taken off before it is put on, and never doubled.
"""

from __future__ import annotations

from .wording import TEMPLATES

__all__ = ["bare", "filled", "label"]

SLOT = "{summary}"

LEAST_LABEL = 8
"""Characters; a shorter label cannot be told from ordinary words."""


def filled(template: str, text: str) -> str:
    """Put a summary's text into its template."""
    return template.replace(SLOT, text)


def label(template: str) -> str:
    """Give what stands before the summary, on one line; nothing where that is too short to tell."""
    before = " ".join(template.partition(SLOT)[0].split())
    return before if len(before) >= LEAST_LABEL else ""


def bare(template: str, text: str) -> str:
    """Take the template, and any of ours, off a text that has it already, however often."""
    text, before = text.strip(), None
    while text != before:
        before = text
        for one in dict.fromkeys((template, *TEMPLATES.values())):
            text = _without(one, text)
    return text


def _without(template: str, text: str) -> str:
    before, _, after = (piece.strip() for piece in template.partition(SLOT))
    if not before or not text.startswith(before):
        return text
    text = text[len(before) :].strip()
    return text.removesuffix(after).strip() if after else text
