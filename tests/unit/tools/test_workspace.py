"""Files of a workspace: nothing leads out of it, and a write is whole or not at all."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

import pytest

from turnstate.errors import InputError
from turnstate.tools import OutsideWorkspace, WorkspaceFiles


@pytest.fixture
def files(tmp_path: Path) -> WorkspaceFiles:
    root = tmp_path / "work"
    root.mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("secret")
    return WorkspaceFiles(root)


@pytest.mark.req("L3")
def test_no_path_leads_out(files: WorkspaceFiles) -> None:
    root = files.root
    (root / "link").symlink_to("../secret")
    (root / "into").symlink_to("../folder")
    (root / "self").symlink_to(".")
    for path in ("../secret", "a/../../secret", "/etc/passwd", str(root.parent / "secret"), "..", "../work2"):
        for act in (files.read, lambda path: files.write(path, b"x"), files.list):
            with pytest.raises(OutsideWorkspace):
                act(path)
    for path in ("link", "into/file", "self/link"):
        with pytest.raises(OutsideWorkspace):
            files.read(path)
        with pytest.raises(OutsideWorkspace):
            files.write(path, b"x")
    assert (root.parent / "secret").read_text() == "secret"
    assert (root.parent / "folder" / "file").read_text() == "secret"
    assert [one.path for one in files.walk()] == []


def test_a_folder_that_becomes_a_link_meanwhile_is_not_followed(
    files: WorkspaceFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files.root / "into").mkdir()
    real = os.stat

    def swapped(path: object, *args: object, **named: object) -> os.stat_result:
        if path == b"file" and not (files.root / "into").is_symlink():
            (files.root / "into").rmdir()
            (files.root / "into").symlink_to("../folder")
        return real(path, *args, **named)  # type: ignore[arg-type, call-overload, no-any-return]

    monkeypatch.setattr(os, "stat", swapped)
    with pytest.raises(InputError):
        files.write("into/file", b"overwritten")
    assert (files.root.parent / "folder" / "file").read_text() == "secret"


def test_a_write_creates_folders_keeps_the_mode_and_leaves_nothing_beside(files: WorkspaceFiles) -> None:
    assert files.write("a/b/c.sh", b"one")
    (files.root / "a/b/c.sh").chmod(0o751)
    assert not files.write("a/b/c.sh", b"two")
    assert files.read("a/b/c.sh") == b"two"
    assert (files.root / "a/b/c.sh").stat().st_mode & 0o777 == 0o751
    assert [one.path for one in files.walk()] == ["a/b/c.sh"]
    assert files.read(str(files.root / "a/b/../b/c.sh")) == b"two"


def test_what_is_not_a_file_is_refused(files: WorkspaceFiles) -> None:
    os.mkfifo(files.root / "pipe")
    (files.root / "folder").mkdir()
    for path in ("pipe", "folder", ".", "missing", "pipe/x", "nul\0", ""):
        with pytest.raises(InputError):
            files.read(path)
    for path in ("pipe", "folder", ".", "nul\0", ""):
        with pytest.raises(InputError):
            files.write(path, b"x")


def test_a_store_in_the_workspace_is_not_overwritten(files: WorkspaceFiles) -> None:
    import asyncio

    from turnstate import SessionManager

    async def made() -> None:
        async with await SessionManager.open(f"sqlite:///{files.root}/agent.db") as sessions:
            await sessions.create()
            with pytest.raises(InputError, match=r"agent\.db"):
                files.write("agent.db", b"gone")

    asyncio.run(made())


@pytest.mark.req("L3")
def test_a_folder_that_is_swapped_for_a_link_all_the_time_leads_nowhere(files: WorkspaceFiles) -> None:
    root, outside, over = files.root, files.root.parent / "folder", threading.Event()
    (root / "into").mkdir()
    os.symlink("../folder", root / "link")
    before = sorted(os.listdir(outside))

    def walked() -> list[str]:
        return [one.path for one in files.walk("into")]

    def swap() -> None:
        flags, libc = 2, ctypes.CDLL(None, use_errno=True)  # RENAME_EXCHANGE: there is no moment in between
        while not over.is_set():
            libc.renameat2(-100, os.fsencode(root / "into"), -100, os.fsencode(root / "link"), flags)

    swapping = threading.Thread(target=swap)
    swapping.start()
    done, refused, rounds = list[object](), 0, 0
    try:
        while (refused < 20 or len(done) < 20) and rounds < 20_000:
            rounds += 1
            for act in (lambda: files.write("into/new", b"ours"), walked):
                try:
                    done.append(act())
                except InputError:
                    refused += 1
            with pytest.raises(InputError):  # it is in the folder outside only
                files.read("into/file")
    finally:
        over.set()
        swapping.join()
    assert done, "the folder was never a folder"
    assert refused, "the folder was never a link"
    assert not [one for one in done if one == ["into/file"]]
    assert (sorted(os.listdir(outside)), (outside / "file").read_text()) == (before, "secret")
