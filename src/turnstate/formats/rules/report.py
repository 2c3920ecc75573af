"""Collects violations; shared by the validators of all providers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from ..port import Violation
from .fields import Fields, departures

NAME_64 = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Report:
    """Violations found so far, and the index of the message being checked."""

    def __init__(self) -> None:
        self._found: list[Violation] = []
        self.index = 0

    @property
    def violations(self) -> list[Violation]:
        """The violations in the order of the messages."""
        return sorted(self._found, key=lambda violation: violation.index)

    def add(self, rule: str, text: str, id: object = None, *, index: int | None = None) -> None:
        """Add a violation by the current message, or by the one at `index`."""
        at = self.index if index is None else index
        self._found.append(Violation(rule, at, id if isinstance(id, str) else None, text))

    def name(self, name: object, pattern: re.Pattern[str] = NAME_64, id: object = None) -> None:
        """Check the name of a called tool."""
        if not isinstance(name, str) or not pattern.fullmatch(name):
            self.add("tool-name", f"the tool name {shown(name)} does not match ^{pattern.pattern}$", id)

    def unanswered(self, ids: Iterable[str], index: int) -> None:
        """Report calls that lack a required answer."""
        for id in ids:
            self.add(
                "call-unanswered", f"the call {id:.80} of message {index} has no answer", id, index=index
            )

    def fields(self, payload: Any, document: Fields, list_key: str, *, unknown: bool = False) -> None:
        """Report the fields that come from a response, or, if asked, those that are not declared."""
        whole = {list_key: payload} if isinstance(payload, list) else payload
        for found in departures(whole, document):
            if found.is_response != unknown:
                within = len(found.path) > 1 and found.path[0] == list_key
                at = found.path[1] if within and isinstance(found.path[1], int) else 0
                self.add("unknown-field" if unknown else "response-field", str(found), index=at)

    def items(self, listed: Any, noun: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of a list and update the index."""
        if not isinstance(listed, list):
            self.add("shape", f"{noun} is {type(listed).__name__}, not a list")
            return
        if not listed:
            self.add("no-messages", f"{noun} is empty")
        for self.index, item in enumerate(listed):
            if isinstance(item, dict):
                yield item
            else:
                self.add("shape", f"expected an object, got {type(item).__name__}")


def shown(value: object) -> str:
    """Return text quoted and shortened; for anything else, the type, however large or deep the value is."""
    return f"{value!r:.80}" if isinstance(value, str) else type(value).__name__


def objects(listed: Any) -> list[dict[str, Any]]:
    """Return the objects in what should be a list of objects."""
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
