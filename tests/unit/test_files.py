"""Files and folders are made private and whole, and what could not be made whole is not there."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnstate import files


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def test_a_folder_is_made_with_its_parents_each_synced_in_the_one_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, synced = os.fsync, list[int]()

    def listening(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        really(descriptor)

    monkeypatch.setattr(os, "fsync", listening)
    files.make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path.stat().st_ino, (tmp_path / "a").stat().st_ino]
    files.make_folder(tmp_path / "a" / "b")
    assert len(synced) == 2
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_a_new_file_never_replaces_one(tmp_path: Path, folder: int) -> None:
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        files.write_new("x", b"new", folder=folder)
    assert (tmp_path / "x").read_bytes() == b"old"


def test_a_new_file_is_not_written_through_a_link(tmp_path: Path, folder: int) -> None:
    (tmp_path / "x").symlink_to(tmp_path / "target")
    with pytest.raises(OSError):  # noqa: PT011
        files.write_new("x", b"new", folder=folder)
    assert not (tmp_path / "target").exists()


def test_a_disk_that_takes_a_little_at_a_time_gets_all_of_it(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.write
    monkeypatch.setattr(os, "write", lambda file, data: really(file, bytes(data)[:3]))
    files.write_new("x", b"0123456789", folder=folder)
    assert (tmp_path / "x").read_bytes() == b"0123456789"


def test_a_file_that_cannot_be_synced_is_not_there(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="Input/output error"):
        files.write_new("x", b"new", folder=folder)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="Input/output error"):
        files.sync_folder(folder)


def test_a_file_system_that_cannot_sync_folders_is_taken_as_it_is(
    folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(_: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", unable)
    files.sync_folder(folder)


def test_a_folder_is_entered_and_a_link_to_one_is_not(tmp_path: Path, folder: int) -> None:
    os.close(files.enter(folder, "new", make=True))
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    os.close(files.enter(folder, "new", make=True))
    (tmp_path / "link").symlink_to(tmp_path / "new")
    for make in (False, True):
        with pytest.raises(NotADirectoryError):
            files.enter(folder, "link", make=make)
    with pytest.raises(FileNotFoundError):
        files.enter(folder, "missing")


def test_replace_writes_a_file_whole_and_leaves_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for data in (b"first", b"second"):
        files.replace(path, data)
        assert path.read_bytes() == data
        assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "x.draft").write_bytes(b"left by a process that died")
    files.replace(path, b"third", draft="x.draft")
    assert path.read_bytes() == b"third"
    assert list(tmp_path.iterdir()) == [path]


def test_replace_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def failing(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as disk:
            disk.setattr(os, name, failing)
            with pytest.raises(OSError, match="Input/output error"):
                files.replace(path, b"new")
        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path], name


def test_a_lock_has_one_holder_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = files.try_lock(path)
    assert held is not None
    assert path.stat().st_mode & 0o777 == 0o600
    assert files.try_lock(path) is None
    with pytest.raises(files.LockTimeout, match="locked by another process"):
        files.lock(path, seconds=0.0)
    os.close(held)
    os.close(files.lock(path, seconds=0.0))


def test_a_lock_on_a_removed_file_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really, path = fcntl.flock, tmp_path / "lock"

    def removed(file: int, how: int) -> None:
        path.unlink()
        really(file, how)

    monkeypatch.setattr(fcntl, "flock", removed)
    assert files.try_lock(path) is None


def test_a_lock_is_not_taken_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "target")
    with pytest.raises(OSError):  # noqa: PT011
        files.try_lock(tmp_path / "lock")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("payload", [b"", b"x", b"x" * 100_000])
def test_a_cache_comes_back_as_it_was_saved_and_is_alone(payload: bytes, tmp_path: Path) -> None:
    for data in (b"before", payload):
        files.save_cache(tmp_path / "cache", b"cache 1\n", data)
    assert files.load_cache(tmp_path / "cache", b"cache 1\n") == payload
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_a_cache_that_is_missing_torn_or_of_another_version_is_none(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    assert files.load_cache(path, b"cache 1\n") is None
    files.save_cache(path, b"cache 1\n", b"content")
    assert files.load_cache(path, b"cache 2\n") is None
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert files.load_cache(path, b"cache 1\n") is None
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert files.load_cache(path, b"cache 1\n") is None


def test_a_cache_that_cannot_be_saved_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "cache" / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="cache"):
        files.save_cache(tmp_path / "cache", b"cache 1\n", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
