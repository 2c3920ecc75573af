"""The story of the demo: an agent at work on a real store, killed in the middle of a round of tools.

Everything that is shown happened just now: the agent is a process, the signal is SIGKILL, and what was
acknowledged before it is compared with what the log holds after it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten
from typing import Any

import msgspec

from ..session import SessionManager
from . import screen
from .demo_agent import SESSION, TURNS

__all__ = ["tell"]

KILL_TURN = 25
EVERY = 6  # turns between two bars
BAR = 28
COLUMNS = 80

_DONE = {"cut": "the oldest turns leave", "mask": "old output hidden"}


def tell() -> bool:
    """Play the story and show it; tell whether it went as it should."""
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        url = f"sqlite:///{Path(folder, 'agent.db')}"
        screen.show(f"An agent works through {TURNS} nightly jobs, two tool calls at a time, on SQLite.")
        screen.show("Budget: 7,000 tokens. The store is synced before anything is acknowledged.")
        first = _Run(url, kill_turn=KILL_TURN)
        screen.show(f"\n    kill -9: in the middle of the tool calls of job {KILL_TURN}\n")
        second = _Run(url)
        acknowledged = first.saved + second.saved
        lost = set(acknowledged) - set(second.stored)
        again = set(first.saved) - set(second.found)
        screen.show(
            f"\nAcknowledged before the kill: {len(first.saved)} messages; lost: {len(again)}.\n"
            f"Acknowledged in all: {len(acknowledged)} messages; lost: {len(lost)}.\n"
            f"Requests made: {first.windows + second.windows}; "
            f"refused by any of five providers' rules: {first.refused + second.refused}."
        )
        went_on = asyncio.run(_go_back(url))
        return not lost and not again and went_on and not first.refused + second.refused


class _Run:
    """One life of the agent's process, shown while it goes."""

    def __init__(self, url: str, *, kill_turn: int | None = None) -> None:
        self.saved, self.found, self.stored = list[str](), list[str](), list[str]()
        self.windows = self.refused = 0
        self._summary, self._reduced = "", 0
        command = [sys.executable, "-m", "holdfast.cli.demo_agent", url]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as agent:  # noqa: S603  ourselves
            for event in _events(agent):
                self._heard(event)
                if event["event"] == "saved" and event["turn"] == kill_turn and event["calls"]:
                    agent.kill()
                    break

    def _heard(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "ready":
                self.found = event["messages"]
                if self.found:
                    screen.show(f"The process is back: {len(self.found)} messages in the log of {SESSION!r},")
                    screen.show("the calls that were under way answered with a visible error.\n")
            case "saved":
                self.saved.append(event["id"])
            case "window":
                self.windows += 1
                self.refused += len(event["refused"])
                self._show_window(event)
            case "finished":
                self.stored = event["messages"]

    def _show_window(self, event: dict[str, Any]) -> None:
        what = [_DONE[one] for one in event["decided"] if one in _DONE]
        if event["reduced"] > self._reduced and not self.found:
            what.append("a long output, by its ends")
        self._reduced = event["reduced"]
        if what or self.windows % (2 * EVERY) == 1:
            bar = _bar(event["tokens"], event["limit"])
            screen.show(f"job {event['turn']:>2}  {bar}  {'; '.join(what)}".rstrip())
        if event["summary"] and event["summary"] != self._summary:
            self._summary = event["summary"]
            screen.show(f"        {shorten(self._summary, COLUMNS - 8, placeholder='…')}")


def _events(agent: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    if agent.stdout is not None:
        for line in agent.stdout:
            yield msgspec.json.decode(line)


def _bar(tokens: int, limit: int) -> str:
    filled = round(BAR * tokens / limit)
    return f"{'█' * filled}{'░' * (BAR - filled)} {tokens:>5,} of {limit:,}"


async def _go_back(url: str) -> bool:
    """Rewind, say something else, and come back."""
    async with await SessionManager.open(url) as sessions:
        session = await sessions.open(SESSION)
        whole = await session.messages()
        await session.rewind(to=whole[9].id)
        there = len(await session.messages())
        await session.undo()
        back = await session.messages()
        hits = [hit async for hit in sessions.search("billing pool", limit=3)]
        screen.show(
            f"\nRewound to message {there}, and back to {len(back)}: nothing copied, nothing deleted.\n"
            f"Search for 'billing pool': {len(hits)} newest hits, the first at entry {hits[0].seq}."
        )
        findings = [finding async for finding in sessions.store.verify(repair=False)]
        screen.show(f"Every entry checked against its checksum: {len(findings)} damaged.")
        return back == whole and not findings
