"""Sessions on servers, compared with raw clients, bare loops and peers: PostgreSQL and Valkey, synced or not.

The servers are real ones, started for the run (`server_start` says how to name others). All contestants on a
server use its settings, which are printed as the connection of each one reports them. A peer that cannot be
installed is reported and left out.
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from . import server_appends, server_start, session_length
from .peer_process import PeerMissing, Script
from .server_contest import Writer
from .server_ours import ServerOurs
from .server_peer import ON_POSTGRES, ON_REDIS, ServerPeer
from .server_raw_postgres import BarePostgres, RawPostgres
from .server_raw_redis import BareRedis, RawRedis
from .session_contest import file_system

LENGTHS = (100, 100_000)
BUDGETS = (4_000,)
"""Small enough that even the shorter session has to be cut."""

TURNS = 25
"""Turns with one client and for long sessions; with many clients, a fifth of that."""

ON_A_DISK, IN_MEMORY = server_appends.Goals(raw=1.8, rival=10), server_appends.Goals(raw=None, rival=1.2)
"""The goals for PostgreSQL and for Valkey."""

WHOLE_STATE = "LangGraph"
"""A peer that stores everything again with each step, so its long sessions run after the others."""


def main() -> None:
    """Print all tables."""
    started = time.monotonic()
    _print_machine()
    _tried("PostgreSQL", lambda: _postgres(LENGTHS))
    if server_start.redis_is_named():
        _tried("Redis, as TEST_REDIS_URL names it", lambda: _valkey(server_start.ALWAYS, LENGTHS))
    else:
        _tried("Valkey, appendfsync always", lambda: _valkey(server_start.ALWAYS, LENGTHS))
        _tried("Valkey, appendfsync everysec", lambda: _valkey(server_start.EVERYSEC, ()))
    print(f"\n{time.monotonic() - started:,.0f} s in all, load {os.getloadavg()[0]:.1f} at the end")


def _tried(title: str, run: Callable[[], None]) -> None:
    print(f"\n## {title}")
    try:
        run()
    except PeerMissing as missing:
        print(f"without it: {missing}")


def _postgres(lengths: Sequence[int]) -> None:
    with _folder() as folder, server_start.postgres() as url:
        ours, raw = ServerOurs(url), RawPostgres(url)
        bare = [BarePostgres(url, makes=False), BarePostgres(url, makes=True)]
        _measured(ours, raw, bare, _peers(ON_POSTGRES, url), ON_A_DISK, folder, lengths)


def _valkey(syncs: str, lengths: Sequence[int]) -> None:
    with _folder() as folder, server_start.valkey(syncs) as url:
        peers = _peers(ON_REDIS, server_start.plain(url))
        _measured(ServerOurs(url), RawRedis(url), [BareRedis(url)], peers, IN_MEMORY, folder, lengths)


def _measured(
    ours: ServerOurs,
    raw: RawPostgres | RawRedis,
    bare: Sequence[Writer],
    peers: Sequence[ServerPeer],
    goals: server_appends.Goals,
    folder: Path,
    lengths: Sequence[int],
) -> None:
    writers: list[Writer] = [ours, raw, *bare, *peers]
    for one in writers:
        print(f"{one.name}: {one.settings}")
    server_appends.latency(writers, folder, goals, turns=TURNS)
    server_appends.throughput(writers, folder, goals, turns=-(-TURNS // 5))
    print(f"indexing all that Turnstate wrote took {ours.indexing:.1f} s more, when nothing was written")
    if lengths:
        slow = [one for one in peers if one.name == WHOLE_STATE]
        quick = [raw, *(one for one in peers if one not in slow)]
        session_length.report(ours, quick, slow, folder, sizes=lengths, budgets=BUDGETS, rounds=TURNS)
    for one in writers:
        one.end()


def _peers(scripts: Mapping[str, Script], url: str) -> list[ServerPeer]:
    """Start the peers of a server; print their versions, or why one is missing."""
    found = list[ServerPeer]()
    for name, script in scripts.items():
        try:
            peer = ServerPeer(name, script, url)
        except PeerMissing as missing:
            print(f"without {name}: {missing}")
            continue
        found.append(peer)
        print("peer: " + ", ".join(f"{package} {version}" for package, version in peer.versions.items()))
    return found


@contextmanager
def _folder() -> Iterator[Path]:
    """Yield a folder for the files that the peers read."""
    with tempfile.TemporaryDirectory(prefix="turnstate-bench-") as name:
        yield Path(name)


def _print_machine() -> None:
    mounts, folder = Path("/proc/mounts"), server_start.folder()
    device, kind = file_system(folder.resolve(), mounts.read_text() if mounts.exists() else "")
    print(f"{platform.platform()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    print(f"servers on sockets of this machine, their files on {device} ({kind}); medians, by turns")
    if kind in ("tmpfs", "ramfs"):
        print("THESE FILES ARE IN MEMORY: nothing below says anything about durable writes")
