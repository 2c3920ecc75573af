"""Entries: the form in which files are sent, and which neither a content nor a name can break out of.

    --- CONTEXT ENTRY BEGIN ---
    [docs/style.md]
    … the file, as it is …
    --- CONTEXT ENTRY END ---

A line break follows the content, whether it ends in one or not, so that what was in the file can be
told exactly. Where a file or a name itself says ``CONTEXT ENTRY BEGIN`` or ``END``, in capitals or
not, a backslash is put before it: the markers stand nowhere but around an entry, and taking one
backslash away gives the file again.
"""

from __future__ import annotations

import re

__all__ = ["CONTEXT_ENTRY_END_HEADER", "CONTEXT_ENTRY_START_HEADER", "entry", "spelled"]

CONTEXT_ENTRY_START_HEADER = "--- CONTEXT ENTRY BEGIN ---\n"
CONTEXT_ENTRY_END_HEADER = "--- CONTEXT ENTRY END ---\n\n"

# Nothing before the first word: a file of a million backslashes must not take a million squared steps.
_MARKER = re.compile(r"CONTEXT\s+ENTRY\s+(?:BEGIN|END)", re.IGNORECASE)
_SHORT = {"\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


def entry(path: str, content: str) -> str:
    """Write one file, under a path that `spelled` gave."""
    named = f"{CONTEXT_ENTRY_START_HEADER}[{_guarded(path)}]\n"
    return f"{named}{_guarded(content)}\n{CONTEXT_ENTRY_END_HEADER}"


def spelled(path: str) -> str:
    r"""Spell a path so that it is one line that can be seen and stored: ``\n``, ``\u2028``, ``\xe9``.

    A byte that is not UTF-8 is written ``\x..``, an invisible character ``\u....``.
    """
    if path.isprintable() and "\\" not in path:
        return path
    return "".join(map(_character, path))


def _guarded(text: str) -> str:
    return _MARKER.sub(r"\\\g<0>", text)


def _character(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # how Python holds a byte of a name that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
