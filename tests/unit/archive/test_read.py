from __future__ import annotations

import json
from typing import Any

import pytest

from turnstate import errors
from turnstate.archive import Bundle, bundles

pytestmark = pytest.mark.req("P3")

HEADER = {"turnstate": "archive", "version": 1}
SESSION = {"type": "session", "id": "s", "counter": "o200k_base", "created": 1, "active": 2, "version": 1}
BRANCH = {"type": "branch", "id": 1, "created": 1, "operation": "create", "entries": 1}
MESSAGE = {"id": "m1", "timestamp": "2025-06-30T12:00:00Z", "role": "user", "content": "hi"}
ENTRY = {"type": "entry", "branch": 1, "seq": 1, "id": "m1", "kind": "message", "tokens": 7, "body": MESSAGE}
FORK = {"type": "branch", "id": 2, "parent": 1, "fork_seq": 1, "created": 3, "operation": "fork", "former": 1}
END = {"type": "end", "sessions": 1}


def lines(*values: Any) -> list[bytes]:
    return [value if isinstance(value, bytes) else json.dumps(value).encode() + b"\n" for value in values]


def read(*values: Any) -> list[Bundle]:
    return list(bundles(lines(*values)))


def test_a_small_archive_is_read() -> None:
    bundle = next(bundles(lines(HEADER, SESSION, BRANCH, ENTRY, END)))
    ((line, message),) = bundle.entries()
    assert (bundle.session.id, bundle.session.epoch, line.tokens) == ("s", 1, 7)
    assert getattr(message, "text", None) == "hi"
    assert json.loads(bytes(line.body)) == MESSAGE


def test_blank_lines_are_passed_over() -> None:
    assert len(read(b"\n", HEADER, b"\n", SESSION, BRANCH, ENTRY, b"  \n", END, b"\n")) == 1


def test_an_archive_of_nothing_is_one() -> None:
    assert read(HEADER, {"type": "end", "sessions": 0}) == []


def test_the_bytes_of_a_body_stay_what_they_are() -> None:
    body = b'{"kind": "note",  "text":"\\u0041"}'
    spaced = b'{"type":"entry","branch":1,"seq":1,"id":"n","kind":"note","body":%s}' % body
    bundle = next(bundles(lines(HEADER, SESSION, BRANCH, spaced, END)))
    ((line, _),) = bundle.entries()
    assert bytes(line.body) == body


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"", "incomplete"),
        (b"hello\n", "not a Turnstate archive"),
        ([1], "not a Turnstate archive"),
        ({"turnstate": "messages", "version": 1}, "not a Turnstate archive"),
        ({"turnstate": "archive"}, "whole number"),
        ({"turnstate": "archive", "version": "1"}, "whole number"),
    ],
)
def test_what_is_no_archive_is_refused_at_once(first: Any, reason: str) -> None:
    with pytest.raises(errors.InputError, match=reason):
        bundles(lines(first) if first else [])


def test_an_archive_of_a_newer_version_is_refused() -> None:
    with pytest.raises(errors.NewerFormat, match="line 1: the archive has version 2"):
        bundles(lines({"turnstate": "archive", "version": 2}))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([SESSION, BRANCH, ENTRY], "line 4: the file ends before"),
        ([SESSION, BRANCH, END], "line 4: a line with a entry is expected here, not with a end"),
        ([BRANCH], "line 2: a line with a session is expected"),
        ([{**SESSION, "surprise": 1}], "line 2: not a line of an archive: .*surprise"),
        ([{**SESSION, "version": -1}], "line 2: not a line of an archive"),
        ([{**SESSION, "created": 1 << 60}], "line 2: not a line of an archive"),
        ([{**SESSION, "id": ""}], "line 2: a session id must have 1 to 500 characters"),
        ([{**SESSION, "id": "a\0b"}], "line 2: a session id contains a NUL"),
        ([{**SESSION, "tags": ["x" * 501]}], "line 2: a tag must have"),
        ([{**SESSION, "reason": "a\0b"}], "line 2: a reason contains a NUL"),
        ([{**SESSION, "meta": {"x": "y" * 100_000}}], "line 2: meta has 100,008 bytes"),
        ([{**SESSION, "counter": "nope"}], "line 2: unknown counter"),
        ([{**SESSION, "branch": 2}], "line 2: the head is on branch 2 of 1"),
        ([b'{"type":"session","id":"s","id":"t"}\n'], "line 2: the key 'id' occurs twice"),
        ([b'{"type":"session",\n'], "line 2: not JSON"),
        ([b"\xff\n"], "line 2: not UTF-8"),
        ([SESSION, {**BRANCH, "id": 2}], "line 3: branch 1 is expected here, not 2"),
        ([SESSION, {**BRANCH, "name": "a\0b"}], "line 3: a branch name contains a NUL"),
        ([SESSION, {**BRANCH, "operation": "x" * 501}], "line 3: an operation must have"),
        ([SESSION, {**BRANCH, "former": 1}], "line 3: branch 1 follows a branch that does not exist"),
        ([SESSION, {**BRANCH, "fork_seq": 1}], "line 3: branch 1 has no parent to fork from"),
        ([SESSION, {**BRANCH, "parent": 1}], "line 3: branch 1 forks from an entry"),
        ([SESSION, BRANCH, {**ENTRY, "seq": 2}], "line 4: entry 1 of branch 1 is expected here, not 2 of 1"),
        ([SESSION, BRANCH, {**ENTRY, "id": "m2"}], "line 4: the entry 'm2' holds a message with another id"),
        ([SESSION, BRANCH, {**ENTRY, "id": ""}], "line 4: an entry needs an id"),
        ([SESSION, BRANCH, {**ENTRY, "kind": "hologram"}], "line 4: an entry of the kind 'hologram'"),
        ([SESSION, BRANCH, {**ENTRY, "body": {**MESSAGE, "role": "tool"}}], "line 4: message m1: a tool"),
        ([SESSION, BRANCH, {**ENTRY, "body": None}], "line 4: "),
        ([SESSION, BRANCH, ENTRY, {**END, "sessions": 2}], "line 5: the archive announces 2 sessions"),
        ([SESSION, BRANCH, ENTRY, END, SESSION], "line 6: there is text after the end"),
    ],
)
def test_a_line_that_is_wrong_is_named_by_its_number(values: list[Any], reason: str) -> None:
    with pytest.raises(errors.InputError, match=reason):
        read(HEADER, *values)


@pytest.mark.parametrize(
    ("fork", "reason"),
    [
        ({**FORK, "fork_seq": 2, "entries": 0}, "forks from an entry that does not exist"),
        ({**FORK, "parent": 2, "entries": 0}, "forks from an entry that does not exist"),
        ({**FORK, "former": 2, "entries": 0}, "follows a branch that does not exist"),
        ({**FORK, "former": None, "entries": 0}, "follows a branch that does not exist"),
    ],
)
def test_a_branch_that_hangs_on_nothing_is_refused(fork: dict[str, Any], reason: str) -> None:
    with pytest.raises(errors.InvalidPayload, match=f"line 4: branch 2 {reason}"):
        read(HEADER, {**SESSION, "branches": 2}, BRANCH, fork)


def test_an_id_that_stands_twice_in_a_session_is_refused() -> None:
    second = {**ENTRY, "seq": 2}
    with pytest.raises(errors.InvalidPayload, match="line 5: the id 'm1' occurs twice"):
        read(HEADER, SESSION, {**BRANCH, "entries": 2}, ENTRY, second, END)


def test_the_same_id_may_stand_in_two_sessions() -> None:
    other = {**SESSION, "id": "t"}
    found = read(HEADER, SESSION, BRANCH, ENTRY, other, BRANCH, ENTRY, {"type": "end", "sessions": 2})
    assert [bundle.session.id for bundle in found] == ["s", "t"]


def test_a_damaged_entry_keeps_its_place_and_says_nothing() -> None:
    gone = {"type": "entry", "branch": 1, "seq": 1, "id": "m1", "kind": "message", "damaged": True}
    bundle = next(bundles(lines(HEADER, SESSION, BRANCH, gone, END)))
    assert [(line.seq, said) for line, said in bundle.entries()] == [(1, None)]
