"""The agent of the demo: it works job after job, and after a kill it goes on where it was."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnstate.demo import agent
from turnstate.session import SessionManager

Worked = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def worked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Worked:
    def run(until: int, hang_at: int = 0) -> list[dict[str, Any]]:
        with suppress(SystemExit):  # it hung in a tool until its parent was gone
            asyncio.run(agent.main(f"sqlite:///{tmp_path}/demo.db", until=until, hang_at=hang_at))
        return [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]

    return run


def of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in events if one["event"] == kind]


def test_every_job_is_saved_and_every_window_fits_and_is_accepted(worked: Worked) -> None:
    events = worked(3)
    (ready,) = of(events, "ready")
    assert (ready["messages"], ready["interrupted"]) == ([], [])
    expected = [(number, one.id) for number in (1, 2, 3) for one in agent.messages(number)]
    assert [(one["job"], one["id"]) for one in of(events, "saved")] == expected
    windows = of(events, "window")
    assert windows
    assert all(one["tokens"] <= one["limit"] and one["refused"] == [] for one in windows)


def test_an_agent_that_ended_in_its_tools_finds_its_calls_answered_and_goes_on(
    worked: Worked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    begun = of(worked(2, hang_at=2), "saved")
    calls = begun[-1]["calls"]
    assert calls
    events = worked(3)
    (ready,) = of(events, "ready")
    assert sorted(ready["interrupted"]) == sorted(calls)
    assert set(ready["messages"]) > {one["id"] for one in begun}
    assert of(events, "saved")[0]["job"] == 2

    async def stored() -> list[str]:
        async with SessionManager.open(f"sqlite:///{tmp_path}/demo.db") as sessions:
            return [one.id for one in await (await sessions.restore(agent.SESSION)).messages()]

    kept = asyncio.run(stored())
    assert all(one["id"] in kept for one in [*begun, *of(events, "saved")])
