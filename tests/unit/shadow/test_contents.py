"""Modes and folders come back as they were, and what most files have is said once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate.errors import CheckpointsDamaged, NewerFormat
from turnstate.shadow.contents import Modes, is_program, parents

names = st.binary(min_size=1, max_size=6).filter(lambda name: not {0, 47} & set(name))
paths = st.lists(names, min_size=1, max_size=3).map(b"/".join)
modes = st.integers(0, 0o7777)


@given(files=st.dictionaries(paths, modes), folders=st.dictionaries(paths, modes), empty=st.sets(paths))
def test_every_mode_comes_back(files: dict[bytes, int], folders: dict[bytes, int], empty: set[bytes]) -> None:
    written = Modes.of(files, folders, empty=empty)
    again = Modes.decoded(written.encoded())
    assert again == written
    assert {path: again.file(path, program=is_program(mode)) for path, mode in files.items()} == files
    assert {path: again.folder(path) for path in folders} == folders
    assert set(again.empty) == empty


def test_what_most_files_have_is_not_repeated() -> None:
    files = {b"%d" % number: 0o600 for number in range(1000)} | {b"x": 0o640}
    assert Modes.of(files, {}, empty=[]).encoded() == b"turnstate modes 1\n600 755 755\nf 640 x\0"


def test_the_folders_of_a_path_are_named_from_the_nearest_up() -> None:
    assert list(parents(b"a/b/c")) == [b"a/b", b"a"]
    assert list(parents(b"a")) == []


@pytest.mark.parametrize(
    "data", [b"", b"x", b"turnstate modes 1\n", b"turnstate modes 1\n9 9 9\n", b"x\ny\nz"]
)
def test_damaged_modes_are_told(data: bytes) -> None:
    with pytest.raises(CheckpointsDamaged):
        Modes.decoded(data)


def test_modes_of_a_newer_version_are_told() -> None:
    with pytest.raises(NewerFormat):
        Modes.decoded(b"turnstate modes 2\n644 755 755\n")
