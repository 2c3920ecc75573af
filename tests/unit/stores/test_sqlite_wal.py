"""A log of writes that was damaged is told of; one that was torn, cut short or is being written is not."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.unit.stores.verification_fixtures import (
    LONG,
    NOW,
    SHORT,
    everything,
    furnish_more,
    left_open,
    run,
    said,
    tables,
    verified,
)
from turnstate.stores.sqlite import SqliteStore, wal
from turnstate.stores.sqlite.connection import connect
from turnstate.stores.sqlite.wal import has_log, lost_commits, read_log
from turnstate.stores.values import Change

pytestmark = pytest.mark.req("G6")

FRAME = 24 + 4096
FAULT = "the WAL was damaged"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    left_open(tmp_path / "agent.db", furnish_more)
    return tmp_path / "agent.db"


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def change(path: Path, place: int) -> None:
    data = bytearray(log_of(path).read_bytes())
    data[place] ^= 1
    log_of(path).write_bytes(data)


def test_a_whole_wal_is_applied_and_nothing_is_reported(path: Path) -> None:
    assert verified(path) == []
    assert len(run(path, everything)) == 252


@pytest.mark.parametrize("part", ["header", "salt", "checksum", "page"])
def test_commits_after_a_damaged_frame_are_reported(part: str, path: Path) -> None:
    frame = 32 + 200 * FRAME
    change(path, {"header": 9, "salt": frame + 9, "checksum": frame + 18, "page": frame + 700}[part])
    (found,) = verified(path)
    assert found.fault.startswith(FAULT)
    assert found.done == ""


def test_the_wal_of_a_store_that_is_opened_by_a_link_is_examined(path: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (link := tmp_path / "links" / "link.db").symlink_to(path)
    change(path, 32 + 200 * FRAME + 700)
    assert has_log(str(link))
    (found,) = verified(link)
    assert found.fault.startswith(FAULT)


def test_a_wal_is_written_once_more_before_the_first_commit_and_not_by_a_store_that_only_reads(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled = list[str]()
    monkeypatch.setattr(wal, "_rewrite", settled.append)
    with closing(connect(str(path), write=True)) as keeping:  # otherwise a close carries it over
        keeping.execute("SELECT count(*) FROM session").fetchall()
        for done in (nothing, everything):
            run(path, done)
        assert settled == []
        run(path, write)
        assert settled == [str(path)]


def test_what_was_committed_before_the_damaged_place_is_served(path: Path, tmp_path: Path) -> None:
    shutil.copytree(tmp_path, tmp_path / "copy")
    whole = run(tmp_path / "copy" / "agent.db", everything)
    change(path, 32 + 200 * FRAME + 700)
    served = run(path, everything)
    assert 12 < len(served) < len(whole)
    assert all(whole[place] == row for place, row in served.items())


def test_a_damaged_wal_is_reported_until_a_repair(path: Path) -> None:
    change(path, 32 + 200 * FRAME + 700)
    copy = log_of(path).read_bytes()
    assert [one.fault for one in verified(path)] == [one.fault for one in verified(path)] != []
    (found,) = verified(path, repair=True)
    assert found.done
    assert verified(path) == []
    log_of(path).write_bytes(copy)  # as if it had not been carried over yet
    assert verified(path) == []


async def nothing(store: SqliteStore) -> None:
    pass


async def write(store: SqliteStore) -> None:
    await store.commit(Change(at=LONG, now=NOW, records=(said("new", "text"),)))


@pytest.mark.parametrize("done", [nothing, everything, write])
def test_what_a_wal_lost_is_recorded_whatever_is_done_with_the_store_first(done: Any, path: Path) -> None:
    change(path, 32 + 200 * FRAME + 700)
    run(path, done)
    (recorded,) = tables(path)["damaged"]
    assert FAULT.encode().hex().upper() in " ".join(map(str, recorded))


def test_a_wal_that_ends_early_is_no_damage(path: Path, tmp_path: Path) -> None:
    files, random = {one: one.read_bytes() for one in tmp_path.iterdir()}, Random(1)
    for _ in range(25):
        for one in tmp_path.iterdir():
            one.unlink()
        for one, data in files.items():
            one.write_bytes(data if one != log_of(path) else data[: random.randrange(len(data))])
        assert verified(path) == []


def test_a_torn_last_commit_is_no_damage(path: Path) -> None:
    data = log_of(path).read_bytes()
    torn = len(data) - 2 * FRAME  # its end was on the disk before its beginning
    log_of(path).write_bytes(data[:torn] + bytes(FRAME) + data[torn + FRAME :])
    assert verified(path) == []


def test_a_wal_that_starts_again_between_its_header_and_its_frames_is_no_damage(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, started = os.preadv, list[bool]()

    def started_again(*arguments: Any) -> int:
        if not started:
            started.append(True)
            writer.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
            writer.execute("UPDATE session SET title = 'a commit that starts the WAL again'")
        return real(*arguments)

    with closing(connect(str(path), write=True)) as writer, closing(connect(str(path), write=True)) as opened:
        monkeypatch.setattr(os, "preadv", started_again)
        log = read_log(str(path))
        assert started
        assert lost_commits(opened, str(path), log) == 0


def test_a_wal_that_is_being_written_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"

    async def write_and_open(store: SqliteStore) -> None:
        await furnish_more(store)
        opened = 0

        async def write() -> None:
            number = 0
            while number < 400 or opened < 20:  # the WAL starts again several times
                number += 1
                text = f"{number} " + "lorem ipsum " * 400
                at = LONG if number % 2 else SHORT
                await store.commit(Change(at=at, now=NOW, records=(said(f"w{number}", text),)))

        writing = asyncio.create_task(write())
        while not writing.done():
            other = await asyncio.to_thread(SqliteStore, str(path))
            await other.close()
            opened += 1
        await writing

    run(path, write_and_open)
    assert tables(path)["damaged"] == []
    assert verified(path) == []
