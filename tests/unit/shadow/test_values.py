"""Paths are shown on one line, as git would write them."""

from __future__ import annotations

import pytest

from turnstate.shadow.values import Changes, Diff, FileDiff, shown


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (b"src/a b.py", "src/a b.py"),
        ("naïve/日本".encode(), "naïve/日本"),
        (b"new\nline", r'"new\nline"'),
        (b"\xff\x01", r'"\377\001"'),
        (b'say "x"\\', r'"say \"x\"\\"'),
        ("\x9b31m".encode(), r'"\302\23331m"'),
    ],
)
def test_a_path_is_shown_as_it_is_or_quoted(path: bytes, text: str) -> None:
    assert shown(path) == text


def test_a_difference_names_paths_by_what_became_of_them() -> None:
    files = (
        FileDiff(path=b"a", status="added"),
        FileDiff(path=b"b", status="deleted"),
        FileDiff(path=b"c", status="modified"),
    )
    assert Diff(files=files).changes == Changes(added=(b"a",), deleted=(b"b",), modified=(b"c",))
    assert not Changes()
    assert Changes(deleted=(b"b",))
