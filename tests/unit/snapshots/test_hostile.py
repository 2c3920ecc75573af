"""A workspace may be somebody else's: no link in it is followed, nothing in it can hang or exhaust us."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.unit.snapshots.snapshot_scenes import SESSION, files, keeper, session_folder, snapshot, token_count
from turnstate.home import Home
from turnstate.snapshots import DamagedSnapshot, SnapshotFailed, Snapshots, UnusableSnapshot


@pytest.mark.req("H4")
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_link_on_the_way_to_the_snapshots_is_not_followed(tmp_path: Path, depth: int) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path.joinpath("work", *(".openstarry", "snapshots", SESSION)[:depth])
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    kept = keeper(tmp_path)
    with pytest.raises(SnapshotFailed, match="not written"):
        kept.write(SESSION, snapshot())
    for act in (kept.restore, kept.list, kept.erase):
        with pytest.raises(DamagedSnapshot, match="links are not followed"):
            act(SESSION)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.req("H2")
def test_a_link_that_the_user_names_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    kept = Snapshots(tmp_path / "link", Home(tmp_path / "home"))
    kept.write(SESSION, snapshot(1))
    assert (tmp_path / "real" / SESSION).is_dir()
    assert token_count(kept) == 1


@pytest.mark.req("H4")
@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("ours", [False, True], ids=["foreign name", "own name"])
@pytest.mark.parametrize("thing", ["link", "dangling", "folder", "pipe", "socket", "giant"])
def test_what_is_no_modest_file_is_neither_read_nor_touched(
    tmp_path: Path, thing: str, ours: bool, trust: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keeper(tmp_path)
    kept.write(SESSION, snapshot(1))
    name = f"{'9' * 16}-{'0' * 16}-{'0' * 16}.json"
    if ours:
        path = kept.write(SESSION, snapshot(2))
        path.unlink()
        name = path.name
    place = session_folder(kept) / name
    monkeypatch.chdir(session_folder(kept))  # the path of a socket must be short
    match thing:
        case "link":
            other = tmp_path / "other.json"
            kept.write("other", snapshot(3)).rename(other)
            place.symlink_to(other)
        case "dangling":
            place.symlink_to(tmp_path / "nowhere")
        case "folder":
            place.mkdir()
        case "pipe":
            os.mkfifo(place)
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(name)
        case "giant":
            with place.open("wb") as file:
                file.truncate(1 << 33)
    restored = kept.restore(SESSION, trust=trust)
    assert restored is not None
    assert restored.snapshot.token_count == 1
    (passed,) = restored.passed_over
    assert (passed.path, passed.state) == (place, "unreadable" if ours or trust else "foreign")
    assert os.path.lexists(place)
    assert kept.list(SESSION)[0].state == "unreadable"


@pytest.mark.req("H3")
def test_where_there_is_nothing_else_the_user_is_told(tmp_path: Path) -> None:
    kept = keeper(tmp_path)
    session_folder(kept).mkdir(parents=True)
    os.mkfifo(session_folder(kept) / "pipe.json")
    with pytest.raises(UnusableSnapshot, match="not a regular file"):
        kept.restore(SESSION, trust=True)


@pytest.mark.req("H3")
@pytest.mark.parametrize("path", [".openstarry", ".openstarry/snapshots", f".openstarry/snapshots/{SESSION}"])
def test_a_file_where_a_folder_should_be_is_told(tmp_path: Path, path: str) -> None:
    place = tmp_path / "work" / path
    place.parent.mkdir(parents=True)
    place.write_text("in the way")
    kept = keeper(tmp_path)
    with pytest.raises(SnapshotFailed):
        kept.write(SESSION, snapshot())
    with pytest.raises(DamagedSnapshot):
        kept.restore(SESSION)
    assert place.read_text() == "in the way"


@pytest.mark.req("H4")
def test_junk_in_the_folder_disturbs_nothing(tmp_path: Path) -> None:
    kept = keeper(tmp_path)
    kept.write(SESSION, snapshot(1))
    folder = session_folder(kept)
    (folder / "README.md").write_text("junk")
    (folder / ".json").write_text("junk")
    (folder / "a.json.damaged").write_text("junk")
    (folder / ".0.tmp").write_text("junk")
    (folder / os.fsdecode(b"\xff.json")).write_text("junk")
    for number in range(2, 6):
        kept.write(SESSION, snapshot(number))
        assert token_count(kept) == number
    assert len(files(kept)) == 5
    assert {path.name for path in folder.iterdir()} >= {"README.md", ".json", "a.json.damaged", ".0.tmp"}
    restored = kept.restore(SESSION, trust=True)
    assert restored is not None
    assert restored.snapshot.token_count == 5
