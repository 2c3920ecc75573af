"""Files are read safely, each on its own account, and again only when they may have changed."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.unit.sticky.sticky_scenes import Scene, entries_of, names, reasons
from turnstate.sticky import reading as files
from turnstate.sticky.reading import MAX_FILE_BYTES, TICK_NS

YEAR = 365 * 24 * 3600 * 1_000_000_000


class Opened:
    """Counts how often each file is opened, on the way to the real call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        real = os.open

        def counting(path: str, *arguments: int, **options: int) -> int:
            self.names.append(Path(path).name)
            return real(path, *arguments, **options)

        monkeypatch.setattr(files.os, "open", counting)


@pytest.mark.req("K3")
@pytest.mark.parametrize("content", [b"a\0b", b"\xff\xfe", b"\x89PNG\r\n", b"caf\xe9", b"\xed\xa0\x80"])
def test_a_binary_file_is_dropped_and_costs_no_other(scene: Scene, content: bytes) -> None:
    scene.write("a.md", "first")
    scene.write("b.bin", content)
    scene.write("c.md", "last")
    gathered = scene.gather("*")
    assert entries_of(gathered.text) == [("a.md", "first"), ("c.md", "last")]
    assert reasons(gathered) == {"b.bin": "binary"}


@pytest.mark.req("K2")
@pytest.mark.parametrize(
    "content", ["", "\n", "no line break", "a\r\nb\r", "\ufefforder", "灯台\u2028", "\x1b[0m"]
)
def test_text_of_any_kind_is_sent_as_it_is(scene: Scene, content: str) -> None:
    scene.write("a.md", content)
    assert entries_of(scene.gather("a.md").text) == [("a.md", content)]


@pytest.mark.req("K3")
def test_pipes_sockets_and_devices_are_never_opened(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(scene.root / "pipe")
    scene.write("a.md")
    monkeypatch.chdir(scene.root)  # the name of a socket may have 108 bytes
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        opened = Opened(monkeypatch)
        gathered = scene.gather("*", "/dev/null", "/dev/zero")
    assert names(gathered) == ["a.md"]
    assert reasons(gathered) == dict.fromkeys(["pipe", "socket", "/dev/null", "/dev/zero"], "special")
    assert opened.names == ["a.md"]


@pytest.mark.req("K3")
def test_a_file_that_turns_into_a_pipe_before_it_is_opened_hangs_nobody(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = scene.write("a.md"), os.open

    def late(place: str, flags: int, *_: int, dir_fd: int | None = None) -> int:
        path.unlink()
        os.mkfifo(path)
        return real(place, flags, dir_fd=dir_fd)

    monkeypatch.setattr(files.os, "open", late)
    assert reasons(scene.gather("a.md")) == {"a.md": "special"}


@pytest.mark.req("K4")
def test_a_file_that_turns_into_a_link_before_it_is_opened_is_not_followed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, secret, real = scene.write("a.md"), scene.write("secret", folder=scene.elsewhere), os.open

    def late(place: str, flags: int, *_: int, dir_fd: int | None = None) -> int:
        path.unlink()
        path.symlink_to(secret)
        return real(place, flags, dir_fd=dir_fd)

    monkeypatch.setattr(files.os, "open", late)
    assert reasons(scene.gather("*.md")) == {"a.md": "unreadable"}


@pytest.mark.req("K3")
def test_a_huge_file_is_not_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    with (scene.root / "huge.log").open("wb") as file:
        file.truncate(10 * 1024**3)
    scene.write("a.md")
    opened = Opened(monkeypatch)
    gathered = scene.gather("*")
    assert names(gathered) == opened.names == ["a.md"]
    assert reasons(gathered) == {"huge.log": "huge"}


@pytest.mark.req("K3")
def test_a_file_that_grows_while_it_is_read_is_given_up_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.write("a.log")
    monkeypatch.setattr(files.os, "read", lambda _, size: b"x" * size)
    gathered = scene.gather("a.log")
    assert reasons(gathered) == {"a.log": "huge"}
    assert "grew" in gathered.dropped[0].why


def test_a_file_of_just_so_many_bytes_is_read(scene: Scene) -> None:
    scene.write("a.txt", "words " * (MAX_FILE_BYTES // 6) + "end.")
    assert (scene.root / "a.txt").stat().st_size == MAX_FILE_BYTES
    assert names(scene.gather("a.txt", limit=10**9)) == ["a.txt"]


@pytest.mark.req("K3")
def test_a_file_that_vanishes_costs_no_other(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = scene.write("a.md"), os.open
    scene.write("b.md")

    def late(place: str, flags: int, *_: int, dir_fd: int | None = None) -> int:
        path.unlink(missing_ok=True)
        return real(place, flags, dir_fd=dir_fd)

    monkeypatch.setattr(files.os, "open", late)
    gathered = scene.gather("*.md")
    assert names(gathered) == ["b.md"]
    assert reasons(gathered) == {"a.md": "missing"}


@pytest.mark.req("K3")
@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_what_the_system_forbids_is_told(scene: Scene) -> None:
    scene.write("a.md").chmod(0)
    scene.write("b.md")
    scene.write("closed/c.md")
    (scene.root / "closed").chmod(0)
    gathered = scene.gather("**/*.md")
    (scene.root / "closed").chmod(0o700)
    assert names(gathered) == ["b.md"]
    assert reasons(gathered) == {"a.md": "unreadable", "closed": "unreadable"}


@pytest.mark.req("K3")
def test_a_disk_that_fails_is_told(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open
    scene.write("a.md")
    scene.write("b.md")

    def failing(place: str, flags: int, *_: int, dir_fd: int | None = None) -> int:
        if place.endswith("a.md"):
            raise OSError(5, "Input/output error")
        return real(place, flags, dir_fd=dir_fd)

    monkeypatch.setattr(files.os, "open", failing)
    gathered = scene.gather("*.md")
    assert names(gathered) == ["b.md"]
    assert gathered.dropped[0].why == "Input/output error"


@pytest.mark.req("K2")
def test_a_file_that_stays_as_it_is_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, clock=lambda: _changed(tmp_path / "work" / "a.md") + YEAR)
    scene.write("a.md", "text")
    scene.write("b.bin", b"\0")
    opened = Opened(monkeypatch)
    first = scene.gather("*")
    again = scene.gather()
    assert again == first
    assert again.text is first.text
    assert opened.names == ["a.md", "b.bin"]


@pytest.mark.req("K2")
@pytest.mark.parametrize(("later", "seen"), [(TICK_NS // 2, "two"), (2 * TICK_NS, "one")])
def test_a_change_in_the_same_tick_of_the_clock_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: int, seen: str
) -> None:
    """A change that leaves no trace is seen if it can happen: not when the file was long at rest."""
    monkeypatch.setattr(files, "_trace", lambda _: (1, 2, 3))  # as a coarse clock leaves it
    path = tmp_path / "work" / "a.md"
    scene = Scene(tmp_path, clock=lambda: _changed(path) + later)
    scene.write("a.md", "one")
    os.utime(path, ns=(0, 0))
    scene.gather("a.md")
    status = os.stat(path)
    path.write_text("two")
    monkeypatch.setattr(os, "lstat", lambda _: status)
    assert entries_of(scene.gather().text) == [("a.md", seen)]


@pytest.mark.req("K2")
def test_a_file_that_is_read_again_and_says_the_same_changes_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = scene.write("a.md", "text")
    first = scene.gather("a.md")
    path.write_text("text")
    os.utime(path, ns=(1, 1))
    opened = Opened(monkeypatch)
    again = scene.gather()
    assert opened.names == ["a.md"]
    assert again.text is first.text


@pytest.mark.req("K2")
@pytest.mark.parametrize("keep_times", [False, True])
def test_a_file_that_changed_is_sent_as_it_is_now(tmp_path: Path, keep_times: bool) -> None:
    path = tmp_path / "work" / "a.md"
    scene = Scene(tmp_path, clock=lambda: _changed(path) + YEAR)
    scene.write("a.md", "one")
    scene.write("b.md", "same")
    status = os.stat(path)
    before = scene.gather("*.md")
    path.write_text("two")
    if keep_times:  # as a restoring tool does; the time of the inode's change tells
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = scene.gather()
    assert entries_of(after.text) == [("a.md", "two"), ("b.md", "same")]
    assert after.files[0].sha256 != before.files[0].sha256
    assert after.files[1] == before.files[1]


@pytest.mark.req("K2")
def test_a_file_that_was_replaced_or_removed_or_came_back_is_seen(scene: Scene) -> None:
    path = scene.write("a.md", "one")
    scene.gather("a.md")
    path.unlink()
    assert scene.gather().text is None
    scene.write("a.md", "two")
    assert entries_of(scene.gather().text) == [("a.md", "two")]
    scene.write("new.md", "six").rename(path)
    assert entries_of(scene.gather().text) == [("a.md", "six")]


def _changed(path: Path) -> int:
    status = os.stat(path)
    return max(status.st_mtime_ns, status.st_ctime_ns)
