"""Reads an archive session by session, entry by entry, and trusts nothing in it.

Every line is checked for its shape, its position, and what the lines before it announced; an error names
the number of the first invalid line. Only the branches of one session and the ids of its entries are kept
in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ..codec import decode_entry
from ..entry import Entry
from ..errors import InputError, InvalidPayload
from ..message import Message
from ..session.names import checked, checked_meta
from ..tokens import counter as counter_named
from .format import (
    ArchivedBranch,
    ArchivedEntry,
    ArchivedSession,
    ArchiveEnd,
    ArchiveLine,
    read_header,
    read_line,
)

L = TypeVar("L", bound=ArchiveLine)


class Bundle:
    """One session of an archive; its entries can be read once, one at a time."""

    def __init__(self, session: ArchivedSession, branches: list[ArchivedBranch], lines: _LineReader) -> None:
        self.session, self.branches, self._lines = session, branches, lines
        self._entries = self._read()

    @property
    def line(self) -> int:
        """The number of the line that was read last."""
        return self._lines.number

    def entries(self) -> Iterator[tuple[ArchivedEntry, Entry | None]]:
        """Return the lines of entries by branch and sequence number, each with its decoded entry."""
        return self._entries

    def _read(self) -> Iterator[tuple[ArchivedEntry, Entry | None]]:
        known = set[str]()
        for branch in self.branches:
            for seq in range(branch.fork_seq + 1, branch.tip + 1):
                with self._lines.located():
                    line = _expected(self._lines.take(), ArchivedEntry)
                    _check_entry(line, branch.id, seq, known)
                    decoded = _decoded_entry(line)
                known.add(line.id)
                yield line, decoded


def bundles(lines: Iterable[bytes]) -> Iterator[Bundle]:
    """Read the sessions of an archive from its lines. Raise InvalidPayload immediately on a bad header."""
    return _bundles(_LineReader(lines))


def _bundles(numbered: _LineReader) -> Iterator[Bundle]:
    count = 0
    while True:
        with numbered.located():
            line = numbered.take()
            if isinstance(line, ArchiveEnd):
                break
            session = _checked_session(_expected(line, ArchivedSession))
        found = Bundle(session, _branches(session, numbered), numbered)
        yield found
        for _ in found.entries():
            pass  # entries that the caller did not read are checked anyway
        count += 1
    with numbered.located():
        if line.sessions != count:
            raise InvalidPayload(f"the archive announces {line.sessions:,} sessions and holds {count:,}")
        numbered.finish()


class _LineReader:
    """Parses the lines after the header, and counts lines from the start of the file."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines, self.number = iter(lines), 0
        with self.located():
            read_header(self._next())

    def take(self) -> ArchiveLine:
        """Return the next line."""
        return read_line(self._next())

    def finish(self) -> None:
        """Raise InvalidPayload if anything follows the end."""
        for data in self._lines:
            self.number += 1
            if data.strip():
                raise InvalidPayload("there is text after the end of the archive")

    @contextmanager
    def located(self) -> Iterator[None]:
        """Add the number of the line to errors."""
        try:
            yield
        except InputError as error:
            raise type(error)(f"line {self.number}: {error.text}", path=error.path) from None

    def _next(self) -> bytes:
        for data in self._lines:
            self.number += 1
            if data.strip():
                return data
        raise InvalidPayload("the file ends before the archive does; it is incomplete")


def _expected(line: ArchiveLine, kind: type[L]) -> L:
    if not isinstance(line, kind):
        found, wanted = (one.__struct_config__.tag for one in (type(line), kind))
        raise InvalidPayload(f"a line with a {wanted} is expected here, not with a {found}")
    return line


def _branches(session: ArchivedSession, lines: _LineReader) -> list[ArchivedBranch]:
    found = list[ArchivedBranch]()
    for _ in range(session.branches):
        with lines.located():
            branch = _expected(lines.take(), ArchivedBranch)
            _check_branch(branch, found)
        found.append(branch)
    return found


def _checked_session(session: ArchivedSession) -> ArchivedSession:
    checked(session.id, "a session id")
    checked(session.title, "a title", empty=True)
    checked(session.reason, "a reason", empty=True)
    checked_meta(session.meta)
    for name, what in ((session.user, "a user"), *((tag, "a tag") for tag in session.tags)):
        if name is not None:
            checked(name, what)
    counter_named(session.counter)
    if session.branch > session.branches:
        raise InvalidPayload(f"the head is on branch {session.branch} of {session.branches}")
    return session


def _check_branch(branch: ArchivedBranch, before: list[ArchivedBranch]) -> None:
    checked(branch.name, "a branch name", empty=True)
    checked(branch.operation, "an operation", empty=True)
    if branch.id != len(before) + 1:
        raise InvalidPayload(f"branch {len(before) + 1} is expected here, not {branch.id}")
    if branch.parent is None:
        if branch.fork_seq:
            raise InvalidPayload(f"branch {branch.id} has no parent to fork from")
    elif branch.parent >= branch.id or branch.fork_seq > before[branch.parent - 1].tip:
        raise InvalidPayload(f"branch {branch.id} forks from an entry that does not exist")
    if (branch.former is None) != (branch.id == 1) or (branch.former or 0) >= branch.id:
        raise InvalidPayload(f"branch {branch.id} follows a branch that does not exist")
    if branch.id == 1 and branch.parent is not None:
        raise InvalidPayload("the first branch has no parent")


def _check_entry(line: ArchivedEntry, branch: int, seq: int, known: set[str]) -> None:
    if (line.branch, line.seq) != (branch, seq):
        raise InvalidPayload(
            f"entry {seq} of branch {branch} is expected here, not {line.seq} of {line.branch}"
        )
    if not (line.id or line.damaged):
        raise InvalidPayload("an entry needs an id")
    if line.id and line.id in known:
        raise InvalidPayload(f"the id {line.id!r:.80} occurs twice in one session")


def _decoded_entry(line: ArchivedEntry) -> Entry | None:
    if line.damaged:
        return None
    decoded = decode_entry(line.kind, bytes(line.body))
    if isinstance(decoded, Message) and decoded.id != line.id:
        raise InvalidPayload(f"the entry {line.id!r:.80} holds a message with another id")
    return decoded
