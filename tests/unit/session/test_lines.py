"""Line tracking of a session: it is in step with the log, whoever writes to the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from turnstate import Message, Session, SessionManager
from turnstate.conversation import FileLineTracker
from turnstate.session.lines import TrackedLines

pytestmark = pytest.mark.req("N3")

Test = Callable[[Session, Session, Path], Awaitable[None]]


def in_two_processes(test: Test) -> Callable[[Path], None]:
    """Run a test with a session as two processes have it open, and a folder."""

    async def opened(folder: Path) -> None:
        url = f"sqlite:///{folder}/agent.db"
        async with SessionManager.open(url) as here, SessionManager.open(url) as there:
            session = await here.create()
            await session.append(Message.user("go"), Message.assistant("on it"))
            (folder / "work").mkdir()
            await test(session, await there.open(session.id), folder / "work")

    def run(tmp_path: Path) -> None:
        asyncio.run(opened(tmp_path))

    run.__name__ = test.__name__
    return run


def wrote(lines: TrackedLines, path: Path, text: str) -> None:
    """Write a file as an agent does."""
    lines.tracking.before_write(path, creates=True)
    path.write_text(text)
    lines.tracking.created(path, text)


@in_two_processes
async def test_what_the_tracker_learns_is_in_the_log_and_known_to_others(
    here: Session, there: Session, folder: Path
) -> None:
    lines = TrackedLines(here, folder)
    await lines.begin()
    wrote(lines, folder / "a", "1\n")
    assert [*lines.tracking.unrecorded] == [str(folder / "a")]
    assert await there.lines() == {}
    await lines.record()
    assert lines.tracking.unrecorded == {}
    assert await there.lines() == await here.lines() == lines.tracking.records
    version = here.info.seq
    await lines.record()
    assert here.info.seq == version  # nothing is new


@in_two_processes
async def test_what_an_interrupted_run_had_not_written_is_written_when_the_next_begins(
    here: Session, there: Session, folder: Path
) -> None:
    lines = TrackedLines(here, folder)
    await lines.begin()
    wrote(lines, folder / "a", "1\n")
    await lines.begin()
    assert await there.lines() == lines.tracking.records != {}


@in_two_processes
async def test_a_file_that_is_tracked_no_longer_is_not_known_any_more(
    here: Session, there: Session, folder: Path
) -> None:
    lines = TrackedLines(here, folder)
    await lines.begin()
    for name in "ab":
        wrote(lines, folder / name, "1\n")
    await lines.record()
    await there.record_lines({str(folder / "a"): None})
    await lines.begin()
    assert [*lines.tracking.records] == [str(folder / "b")]
    (folder / "a").write_text("the user's\n")
    assert lines.tracking.before_write(folder / "a", creates=True) is None


@in_two_processes
async def test_where_another_process_went_back_the_agents_own_lines_are_not_the_users(
    here: Session, there: Session, folder: Path
) -> None:
    lines = TrackedLines(here, folder)
    await lines.begin()
    wrote(lines, folder / "a", "1\n")
    await lines.record()
    between = Message.user("more")
    await here.append(between)
    wrote(lines, folder / "a", "1\n2\n")
    await lines.record()
    await there.rewind(between.id, exact=True)
    assert [one.lines for one in (await there.lines()).values()] == [1]
    wrote(lines, folder / "b", "1\n")
    await lines.record()  # is written where the other process went
    await lines.begin()
    assert lines.tracking.records == await there.lines()
    assert lines.tracking.before_write(folder / "a", creates=True) is None


@in_two_processes
async def test_reads_side_by_side_return_what_was_known_at_one_moment(
    here: Session, there: Session, folder: Path
) -> None:
    (first,) = await here.messages(last=1)
    records = here._handle.lines
    a, b = str(folder / "a"), str(folder / "b")
    await here.record_lines({a: FileLineTracker(lines=1)})
    assert [*(await here.lines())] == [a]
    await there.record_lines({b: FileLineTracker(lines=1)})
    really, read, go_on = records._writer.read, asyncio.Event(), asyncio.Event()

    async def slow(*arguments: Any, **options: Any) -> Any:
        found = await really(*arguments, **options)
        if not read.is_set():
            read.set()
            await go_on.wait()
        return found

    records._writer.read = slow  # type: ignore[method-assign]
    earlier = asyncio.ensure_future(here.lines())
    await read.wait()
    await there.rewind(first.id)
    assert await here.lines() == {}
    go_on.set()
    assert [*(await earlier)] == [a, b]
    assert await here.lines() == {}
