"""What the judge of clauses has to know about a language; every field is the text of a pattern."""

from __future__ import annotations

from typing import NamedTuple

from .rule import FactRule


class Language(NamedTuple):
    """How a language shows whose a clause is, and whether it is meant."""

    rules: tuple[FactRule, ...]
    boundary: str
    """Where a new clause begins."""
    lead: str
    """Words at the beginning of a clause that say nothing about it, such as "well" or "these days"."""
    material: str
    """A request to treat a text: what follows was not said by the user about themselves."""
    frame: str
    """A request to imagine something: what follows is not meant."""
    jest: str
    """Takes back all that was said before in the message."""
    opens: str
    """What every rule begins with; other clauses are not worth a closer look."""
    unreal: str
    """A sentence that is quoted, imagined or ironic."""
    unsure: str
    """A clause that is wished for, planned or uncertain."""
    asks: str
    """The beginning of a question; one that begins otherwise may state something before it asks."""
    passing: str
    """A clause about a stay that ends: it does not say where somebody lives or works."""
    others: str
    """The beginning of a clause about somebody else; with a group ``here``, only of this one clause."""
    own: str
    """The beginning of a clause about the user."""
    ellipsis: str
    """The beginning of a clause without a subject, which is that of the clause before it."""
    subject: str
    """The subject to put before such a clause, if its rules expect one."""
    negated: str
    """The end of a clause that says the opposite; empty if the rules see a negation themselves."""
    contrast: str
    """The part of a sentence that names what is wrong, as ``old``: ", not Monday"."""
    correction: str
    """Begins a sentence that corrects the one before."""
    restated: str
    """What is left of a correction: the right ``value`` and no more."""
    dislikes: tuple[str, ...]
    """The prefixes of what is not liked."""
    vague: str
    """Words that mean something only in their conversation: what is liked or decided has to do without them."""
