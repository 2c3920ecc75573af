"""The story of the demo: a long conversation on a real store, and all that people do to one.

Everything that is shown happened just now: the agent is a process, the signal is SIGKILL, the files are
files. It is played in a temporary folder, which is gone afterwards, whatever happens.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from pathlib import Path
from urllib.parse import quote

from ..message import Message
from ..session import SessionManager
from . import demo_checkpoint, demo_compaction, demo_ending, demo_screen, demo_tangent
from .demo_claims import Claims
from .demo_life import Life, lived
from .demo_picture import fingerprint
from .demo_script import BUDGET, LOG_JOB, LOG_LINES

__all__ = ["tell"]

FIRST_JOBS, KILLED_AT, JOBS = 100, 110, 140


def tell() -> bool:
    """Play the story and show it; tell whether all that it says is so."""
    claims = Claims()
    with tempfile.TemporaryDirectory(prefix="turnstate-demo-") as folder:
        _play(Path(folder), claims)
    return claims.conclude()


def _play(folder: Path, claims: Claims) -> None:
    url = f"sqlite:///{quote(str(folder / 'agent.db'))}"
    demo_screen.line(f"An agent works through {JOBS} nightly jobs, two tool calls at a time, on SQLite;")
    demo_screen.line(f"job {LOG_JOB} brings a log of {LOG_LINES:,} lines. Budget: {BUDGET.limit:,} tokens.")
    first = lived(url, until=FIRST_JOBS)
    claims.make(
        "When the budget was full, the oldest turns left; a summary stands for them.",
        holds=first.cuts > 0 and first.summary != "" and first.ended == 0,
    )
    aside = asyncio.run(_interlude(url, folder, claims))

    demo_screen.heading(f"kill -9, while the two tools of job {KILLED_AT} run")
    killed = lived(url, until=JOBS, kill_at=KILLED_AT)
    claims.make(
        f"The process died of signal {-killed.ended}, with {len(killed.under_way)} calls under way.",
        holds=killed.ended == -signal.SIGKILL and len(killed.under_way) == 2,
    )
    before = first.saved | killed.saved
    back = lived(url, until=JOBS, when_ready=lambda life: _compare(claims, killed, life, before))
    claims.make(f"It worked on, to job {JOBS}.", holds=(back.job, back.ended) == (JOBS, 0))

    demo_screen.heading("What is there in the end")
    lives = [first, killed, back]
    acknowledged = {id: mark for life in lives for id, mark in life.saved.items()}
    acknowledged |= {message.id: fingerprint(message) for message in aside}
    asyncio.run(_end(url, claims, lives, acknowledged))


async def _interlude(url: str, folder: Path, claims: Claims) -> list[Message]:
    """Do what people do to a conversation; give what was said meanwhile."""
    async with await SessionManager.open(url) as sessions:
        demo_screen.heading("A tangent")
        aside = await demo_tangent.tell(sessions, claims)
        demo_screen.heading("A compaction on request")
        await demo_compaction.tell(sessions, claims)
        demo_screen.heading("A file that the agent overwrites")
        return aside + await demo_checkpoint.tell(sessions, claims, folder)


def _compare(claims: Claims, killed: Life, back: Life, before: dict[str, str]) -> None:
    """Say what a new process found after the kill."""
    missing = before.keys() - set(back.found)
    claims.make(
        f"A new process: of {len(before)} messages acknowledged before, {len(missing)} are missing.",
        holds=not missing,
    )
    claims.make(
        f"The {len(back.given_up)} calls that were under way are answered, with a visible error.",
        holds=sorted(back.given_up) == sorted(killed.under_way),
    )


async def _end(url: str, claims: Claims, lives: list[Life], acknowledged: dict[str, str]) -> None:
    async with await SessionManager.open(url) as sessions:
        await demo_ending.tell(sessions, claims, lives=lives, acknowledged=acknowledged)
