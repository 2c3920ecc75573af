from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from turnstate.cli import destination
from turnstate.errors import InputError


def test_nothing_is_seen_before_it_is_complete(tmp_path: Path) -> None:
    place = tmp_path / "out"
    with destination.opened(str(place)) as write:
        write("half")
        assert not place.exists()
        write("whole")
    assert place.read_text() == "half\nwhole\n"
    assert os.listdir(tmp_path) == ["out"]


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    place = tmp_path / "out"
    with pytest.raises(InputError, match="already exists"), destination.opened(str(place)):
        place.write_text("theirs")
    assert place.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["out"]


def test_a_file_system_without_hard_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    place = tmp_path / "out"
    with destination.opened(str(place)) as write:
        write("text")
    assert place.read_text() == "text\n"
    assert os.listdir(tmp_path) == ["out"]


def test_a_new_file_is_private_to_its_owner(tmp_path: Path) -> None:
    with destination.opened(str(tmp_path / "out")) as write:
        assert [one.stat().st_mode & 0o777 for one in tmp_path.iterdir()] == [0o600]
        write("done")
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600


def test_a_pipe_is_written_to_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with destination.opened(str(pipe)) as write:
        write("text")
    reader.join(10)
    assert read == ["text\n"]
    assert pipe.is_fifo()
