"""Kills, power cuts, full disks and races: what was written stays, and nothing half-written passes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.snapshot_disk import ForgetfulDisk
from tests.harness.programs import environment, program
from tests.harness.thoroughness import runs
from tests.unit.snapshots.snapshot_scenes import (
    SESSION,
    files,
    keeper,
    litter,
    session_folder,
    snapshot,
    token_count,
)
from turnstate.errors import TurnstateError
from turnstate.home import Home
from turnstate.snapshots import SnapshotFailed, Snapshots


def cuts(tmp_path: Path, *arguments: str) -> list[dict[str, Any]]:
    command = program("tests.faults.snapshot_cuts", tmp_path, *arguments)
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def faults_of(outcome: dict[str, Any], *, before: int | None) -> list[str]:
    """Say what an interrupted write may not leave behind."""
    faults = [outcome["error"]] if "error" in outcome else []
    if outcome.get("restored") not in ([4] if outcome["said"] == "written" else [before, 4]):
        faults.append(f"restored {outcome.get('restored')}")
    if outcome.get("passed_over") or outcome["files"] < (3 if before else 0):
        faults.append("an older one suffered")
    if outcome.get("later") != 5:
        faults.append("the next write did not succeed")
    return faults


@pytest.mark.req("H2", "H3")
@pytest.mark.parametrize("fault", ["kill", "torn"])
@pytest.mark.parametrize(("scene", "before"), [("three", 3), ("none", None)])
def test_a_writer_killed_at_any_call_leaves_the_old_or_the_new(
    tmp_path: Path, scene: str, before: int | None, fault: str
) -> None:
    outcomes = cuts(tmp_path, scene, fault)
    assert [faults_of(outcome, before=before) for outcome in outcomes] == [[]] * len(outcomes)
    assert {outcome["restored"] for outcome in outcomes} == {before, 4}
    assert [outcome["said"] for outcome in outcomes[-2:]] == ["", "written"]
    assert len(outcomes) > 10


@pytest.mark.req("H2", "H3")
@pytest.mark.parametrize(("scene", "before"), [("three", 3), ("none", None)])
def test_whichever_call_fails_the_writer_says_so_or_has_written(
    tmp_path: Path, scene: str, before: int | None
) -> None:
    outcomes = cuts(tmp_path, scene, "fail")
    assert [faults_of(outcome, before=before) for outcome in outcomes] == [[]] * len(outcomes)
    said = {outcome["said"] for outcome in outcomes}
    assert said == {"written", "SnapshotFailed", "HomeUnusable"}  # the last, where the key was looked at
    assert {tuple(outcome["litter"]) for outcome in outcomes} == {()}


def test_a_careless_writer_is_caught(tmp_path: Path) -> None:
    outcomes = cuts(tmp_path, "three", "torn", "careless")
    assert any(faults_of(outcome, before=3) for outcome in outcomes[:-1])


def powerless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, deaf_to: str = "") -> tuple[int, list[str]]:
    """Cut the power at every moment of a write and after it; count the cuts, and say what went wrong."""
    kept = keeper(tmp_path)
    for number in (1, 2, 3):
        kept.write(SESSION, snapshot(number))
    disk = ForgetfulDisk(session_folder(kept), deaf_to=deaf_to)
    with monkeypatch.context() as patch:
        disk.listen(patch)
        kept.write(SESSION, snapshot(4))
    acknowledged = disk.moments[-1]
    lefts = [(left, [3, 4]) for left in disk.lefts()]
    disk.moments = [acknowledged]
    lefts += [(left, [4]) for left in disk.lefts()]
    faults = []
    for number, (left, allowed) in enumerate(lefts):
        restored = restored_from(left, kept)
        if restored not in allowed:
            faults.append(f"power cut {number}: {restored} is not one of {allowed}")
    return len(lefts), faults


def restored_from(left: dict[str, bytes], kept: Snapshots) -> int | None:
    shutil.rmtree(session_folder(kept))
    session_folder(kept).mkdir()
    for name, data in left.items():
        (session_folder(kept) / name).write_bytes(data)
    try:
        restored = kept.restore(SESSION)
    except TurnstateError:
        return None
    return restored.snapshot.token_count if restored and not restored.passed_over else None


@pytest.mark.req("H2", "H3")
def test_a_power_cut_at_any_moment_leaves_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, faults = powerless(tmp_path, monkeypatch)
    assert faults == []
    assert count > 30


@pytest.mark.parametrize("deaf_to", ["file", "folder"])
def test_a_disk_that_is_not_synced_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaf_to: str
) -> None:
    assert powerless(tmp_path, monkeypatch, deaf_to=deaf_to)[1] != []


def started(tmp_path: Path, *commands: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Start programs that run at the same moment."""
    running = [
        subprocess.Popen(
            program("tests.faults.snapshot_race", tmp_path, *command),
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    (tmp_path / "start").touch()
    yield from running


@pytest.mark.req("H2")
def test_writers_at_once_never_damage_each_other_and_a_reader_always_finds_a_whole_one(
    tmp_path: Path,
) -> None:
    kept = keeper(tmp_path)
    kept.write(SESSION, snapshot(9_999))
    running = list(started(tmp_path, *(["write", str(writer), "100"] for writer in (1, 2, 3))))
    looks = 0
    while any(process.poll() is None for process in running):
        restored = kept.restore(SESSION)
        assert restored is not None
        assert restored.passed_over == ()
        looks += 1
    for process in running:
        process.communicate()
    assert [process.returncode for process in running] == [0, 0, 0]
    assert looks > 10
    assert litter(kept) == []
    assert {found.state for found in kept.list(SESSION)} == {"own"}
    assert 3 <= len(files(kept)) <= 6
    assert token_count(kept) % 1_000 == 99


@pytest.mark.req("H4")
def test_processes_that_start_at_once_agree_on_one_key(tmp_path: Path) -> None:
    for attempt in range(runs(1, long=10)):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        said = [process.communicate()[0] for process in started(folder, *[["key"]] * 6)]
        assert len(said) == 6
        assert len(set(said)) == 1
        assert said[0] == Home(folder / "home").key().sign("test") + "\n"
        assert os.listdir(folder / "home") == ["key"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    mounted = (
        os.geteuid() == 0
        and shutil.which("mount")
        and subprocess.run(command, capture_output=True, check=False)
    )
    if not mounted or mounted.returncode:
        pytest.skip("only root can mount a small disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.req("H2", "H3")
def test_a_full_disk_leaves_the_older_ones_and_no_litter(tmp_path: Path, small_disk: Path) -> None:
    kept = Snapshots(small_disk / "snapshots", Home(tmp_path / "home"))
    for number in (1, 2, 3):
        kept.write(SESSION, snapshot(number, text="tide " * 4_000))
    before, filler = files(kept), small_disk / "filler"
    refused = 0
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4_096)
        except OSError:
            pass
        for pages in range(20):
            os.ftruncate(file.fileno(), max(0, filler.stat().st_size - 4_096 * bool(pages)))
            try:
                kept.write(SESSION, snapshot(4, text="tide " * 4_000))
            except SnapshotFailed as error:
                assert "No space left on device" in str(error)  # noqa: PT017
                assert (files(kept), litter(kept), token_count(kept)) == (before, [], 3)
                refused += 1
            else:
                break
    assert refused >= 4
    assert token_count(kept) == 4
    assert len(files(kept)) == 3


@pytest.mark.req("H2", "H3")
def test_what_a_killed_writer_left_is_ignored_and_goes_once_it_is_old(tmp_path: Path) -> None:
    kept = keeper(tmp_path)
    path = kept.write(SESSION, snapshot(1))
    left = session_folder(kept) / f".{'0' * 16}.tmp"
    left.write_bytes(path.read_bytes()[:100])
    kept.write(SESSION, snapshot(2))
    assert token_count(kept) == 2
    assert litter(kept) == [left.name]
    two_hours_ago = time.time() - 7_200
    os.utime(left, (two_hours_ago, two_hours_ago))
    kept.write(SESSION, snapshot(3))
    assert litter(kept) == []


def interrupted(patch: pytest.MonkeyPatch, call: str, act: Any) -> None:
    """Do something once, just before a call to the system that names a file of the session."""
    really, left = getattr(os, call), [act]

    def interrupting(name: Any, *arguments: Any, **options: Any) -> Any:
        if left and isinstance(name, str) and options and name.endswith((".tmp", ".json")):
            left.pop()()
        return really(name, *arguments, **options)

    patch.setattr(os, call, interrupting)


@pytest.mark.req("H2")
def test_a_writer_whose_file_was_taken_for_a_left_one_writes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keeper(tmp_path)
    kept.write(SESSION, snapshot(1))
    interrupted(monkeypatch, "rename", lambda: [p.unlink() for p in session_folder(kept).glob(".*.tmp")])
    kept.write(SESSION, snapshot(2))
    assert token_count(kept) == 2


@pytest.mark.req("H2")
def test_a_writer_whose_folder_was_erased_makes_it_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keeper(tmp_path)
    kept.write(SESSION, snapshot(1))
    interrupted(monkeypatch, "rename", lambda: kept.erase(SESSION))
    kept.write(SESSION, snapshot(2))
    assert token_count(kept) == 2
    assert len(files(kept)) == 1


@pytest.mark.req("H3")
def test_a_reader_that_is_overtaken_by_writers_finds_what_they_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keeper(tmp_path)
    kept.write(SESSION, snapshot(1))
    interrupted(monkeypatch, "stat", lambda: [kept.write(SESSION, snapshot(n)) for n in (2, 3, 4, 5)])
    assert token_count(kept) == 5
