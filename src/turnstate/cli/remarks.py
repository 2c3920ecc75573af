"""Warnings of the library, for people: what it logs is told on stderr like every other remark."""

from __future__ import annotations

import logging

from . import screen

__all__ = ["hear"]


class _Remarks(logging.Handler):
    """A log whose reader sits at the terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        """Tell one record in one line."""
        screen.say(record.getMessage())


def hear() -> None:
    """Listen to the library's warnings; listening twice is listening once."""
    log = logging.getLogger("turnstate")
    if not any(isinstance(handler, _Remarks) for handler in log.handlers):
        log.addHandler(_Remarks(logging.WARNING))
