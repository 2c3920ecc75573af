"""One life of the agent's process, shown while it goes: the bar fills, and stays where something happened.

What it says was saved is remembered with its bytes' fingerprint, to be looked for in the store later.
However this ends, the process ends with it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from . import demo_screen

__all__ = ["Life", "lived"]

AGENT = "turnstate.cli.demo_agent"
EVERY = 20  # jobs between two bars that stay
MARGIN = 9

_DONE = {"cut": "the oldest turns leave", "mask": "old output hidden"}


class Life:
    """What a process found, what it said, and how it ended."""

    def __init__(self) -> None:
        self.found, self.given_up = list[str](), list[str]()
        self.saved, self.under_way = dict[str, str](), list[str]()
        self.requests = self.too_full = self.refused = self.cuts = 0
        self.job = self.ended = 0
        self.summary = ""
        self._reduced = 0

    def hear(self, event: dict[str, Any]) -> None:
        """Take in a line that the process wrote."""
        match event["event"]:
            case "ready":
                self.found, self.given_up = event["messages"], event["given_up"]
            case "saved":
                self.saved[event["id"]] = event["fingerprint"]
                self.job, self.under_way = event["job"], event["calls"]
            case "window":
                self._hear_request(event)

    def _hear_request(self, event: dict[str, Any]) -> None:
        self.requests += 1
        self.refused += len(event["refused"])
        self.too_full += event["tokens"] > event["limit"]
        self.cuts += "cut" in event["decided"]
        self._show(event)
        if event["summary"] != self.summary:
            self.summary = event["summary"]
            if event["decided"]:
                demo_screen.note(self.summary, margin=MARGIN)

    def _show(self, event: dict[str, Any]) -> None:
        what = [_DONE[one] for one in event["decided"] if one in _DONE]
        if event["reduced"] > self._reduced and not self.found:
            what.append("a long output, by its ends")
        self._reduced = event["reduced"]
        bar = demo_screen.bar(event["tokens"], event["limit"])
        text = f"job {event['job']:>3}  {bar}  {'; '.join(what)}".rstrip()
        stays = what or self.requests == 1 or (event["job"] % EVERY == 0 and self.requests % 2)
        if stays:
            demo_screen.clear()
            demo_screen.line(text)
        else:
            demo_screen.moving(text)


def lived(
    url: str, *, until: int, kill_at: int = 0, when_ready: Callable[[Life], None] = lambda _: None
) -> Life:
    """Let the agent work up to a job; where it is to be killed in one, that is while its tools run."""
    life = Life()
    command = [sys.executable, "-m", AGENT, url, str(until), str(kill_at)]
    with subprocess.Popen(  # noqa: S603  ourselves
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for us: we end it
    ) as agent:
        try:
            for event in _events(agent):
                life.hear(event)
                if event["event"] == "ready":
                    when_ready(life)
                if event["event"] == "saved" and event["job"] == kill_at and event["calls"]:
                    agent.kill()
        except BaseException:
            agent.kill()
            raise
        finally:
            demo_screen.clear()
    life.ended = agent.returncode
    return life


def _events(agent: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    if agent.stdout is not None:
        for line in agent.stdout:
            yield msgspec.json.decode(line)
