"""Tokens: how many a text, a message or a whole request has, and how far to trust the number.

`counter` finds a counter by name: ``o200k_base`` and ``cl100k_base`` are exact, ``estimate`` and
``estimate:claude`` (or another family) need no vocabulary. A name such as ``o200k_base:patches-1.62`` has the
rule for images of some models. `counter_for` finds the counter of a model.
`message_cost` and `conversation_cost` count what is sent. `Calibrated` learns how many tokens a provider
reports for each one that we count, and `Calibration` adjusts a budget by this factor in steps.
"""

from __future__ import annotations

from .. import catalog
from ..errors import UnknownName
from .calibrate import Calibrated, Calibration
from .cost import EXACT, ExactCounter, conversation_cost, count_off_loop, message_cost, tools_cost
from .counter import Count, Counter, Quality
from .estimate import FACTORS, Estimator, estimator

__all__ = [
    "Calibrated",
    "Calibration",
    "Count",
    "Counter",
    "Estimator",
    "ExactCounter",
    "Quality",
    "conversation_cost",
    "count_off_loop",
    "counter",
    "counter_for",
    "counter_names",
    "message_cost",
    "tools_cost",
]


def counter_names() -> list[str]:
    """List the names that `counter` knows."""
    return [*EXACT, "estimate", *(f"estimate:{family}" for family in FACTORS)]


def counter(name: str) -> Counter:
    """Find a counter by name; for the name of a model, use `counter_for`."""
    if not isinstance(name, str):
        raise UnknownName(f"a counter's name is text, not {type(name).__name__}; available: {_names()}")
    if name in EXACT:
        return ExactCounter(name)
    if name == "estimate":
        return Estimator()
    kind, _, family = name.partition(":")
    if kind == "estimate" and family in FACTORS:
        return estimator(family)
    models = (one for one in catalog.models() if name.lower() in (one.id, *one.aliases))
    if model := next(models, None):
        raise UnknownName(
            f"{name!r:.60} is a model, not a counter; its counter is {model.counter!r} "
            f"(available: {_names()})"
        )
    raise UnknownName(f"unknown counter {name!r:.60}; available: {_names()}")


def _names() -> str:
    return ", ".join(counter_names())


def counter_for(model: str) -> Counter:
    """Find the counter of a model; the tokens of an unknown model are estimated."""
    return counter(catalog.model(model).counter)
