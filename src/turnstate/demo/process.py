"""Runs the demo's agent as a child process and draws its progress: a bar that shows how full the budget is.

A bar remains on the screen if something happened to the window; otherwise the next one replaces it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from . import screen

AGENT = "turnstate.demo.agent"
EVERY = 20  # jobs between two bars that remain on the screen in any case
MARGIN = 9

_DECISIONS = {"cut": "the oldest turns leave", "mask": "old output hidden"}


class AgentRun:
    """One process of the agent: what it found, did and acknowledged, and how it ended."""

    def __init__(self) -> None:
        self.found, self.interrupted = list[str](), list[str]()
        self.saved, self.open_calls = dict[str, str](), list[str]()
        self.requests = self.too_full = self.refused = self.cuts = 0
        self.job = self.exit_code = 0
        self.summary = ""
        self._reduced = 0

    def handle(self, event: dict[str, Any]) -> None:
        """Record an event that the process printed."""
        match event["event"]:
            case "ready":
                self.found, self.interrupted = event["messages"], event["interrupted"]
            case "saved":
                self.saved[event["id"]] = event["fingerprint"]
                self.job, self.open_calls = event["job"], event["calls"]
            case "window":
                self._handle_request(event)

    def _handle_request(self, event: dict[str, Any]) -> None:
        self.requests += 1
        self.refused += len(event["refused"])
        self.too_full += event["tokens"] > event["limit"]
        self.cuts += "cut" in event["decisions"]
        self._draw(event)
        if event["summary"] != self.summary:
            self.summary = event["summary"]
            if event["decisions"]:
                screen.note(self.summary, margin=MARGIN)

    def _draw(self, event: dict[str, Any]) -> None:
        what = [_DECISIONS[one] for one in event["decisions"] if one in _DECISIONS]
        if event["reduced"] > self._reduced and not self.found:
            what.append("a long output, by its ends")
        self._reduced = event["reduced"]
        bar = screen.bar(event["tokens"], event["limit"])
        text = f"job {event['job']:>3}  {bar}  {'; '.join(what)}".rstrip()
        stays = what or self.requests == 1 or (event["job"] % EVERY == 0 and self.requests % 2)
        if stays:
            screen.clear()
            screen.line(text)
        else:
            screen.moving(text)


def run_agent(
    url: str, *, until: int, kill_at: int = 0, when_ready: Callable[[AgentRun], None] = lambda _: None
) -> AgentRun:
    """Run the agent up to a job; kill it while the tools of job `kill_at` run (0: never)."""
    run = AgentRun()
    command = [sys.executable, "-m", AGENT, url, str(until), str(kill_at)]
    with subprocess.Popen(  # noqa: S603  ourselves
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches only this process, which then kills the agent
    ) as agent:
        try:
            for event in _events(agent):
                run.handle(event)
                if event["event"] == "ready":
                    when_ready(run)
                if event["event"] == "saved" and event["job"] == kill_at and event["calls"]:
                    agent.kill()
        except BaseException:
            agent.kill()
            raise
        finally:
            screen.clear()
    run.exit_code = agent.returncode
    return run


def _events(agent: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    if agent.stdout is not None:
        for line in agent.stdout:
            yield msgspec.json.decode(line)
