"""Sessions compared with two peers and raw SQLite: length, latency, throughput, bytes on the disk.

All contestants work in one folder on one disk, in the same run, and take turns. The durability of each is
printed with its results, as its connection reports it. A peer that does not wait for the disk by default is
measured a second time with a setting that makes it wait.
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from pathlib import Path

from . import (
    session_cold,
    session_disk,
    session_guard,
    session_latency,
    session_length,
    session_reads,
    session_throughput,
)
from .peer_process import ROOT, PeerMissing
from .session_contest import OnDisk, file_system
from .session_ours import Ours
from .session_peer import SCRIPTS, FilePeer
from .session_raw import Raw

WHOLE_STATE = "LangGraph"
"""A peer that stores everything again with each step, so its sessions are measured only briefly."""


def main() -> None:
    """Print all tables."""
    started = time.monotonic()
    home = ROOT / ".bench"
    home.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix="sessions-") as name:
        folder = Path(name)
        _print_machine(folder)
        ours, raw, peers = Ours(_made(folder / "ours")), Raw(_made(folder / "raw")), _peers(folder)
        contestants: list[OnDisk] = [ours, raw, *peers]
        for one in contestants:
            print(f"{one.name}: {one.settings}, SQLite {one.settings.sqlite}")
        slow = [one for one in peers if one.name.startswith(WHOLE_STATE)]
        quick = [one for one in peers if one not in slow]
        session_length.report(ours, [raw, *quick], slow, folder)
        session_reads.report(ours, raw, quick, folder)
        session_cold.report(_made(folder / "cold"))
        grown = Raw(_made(folder / "grown"), grown=True)
        session_latency.report([ours, raw, grown, *quick], folder)
        grown.end()
        session_throughput.report(ours, quick, folder)
        session_guard.report(_made(folder / "guard"))
        session_disk.report(contestants, [one.name for one in slow], folder)
        for one in contestants:
            one.end()
    print(f"\n{time.monotonic() - started:,.0f} s in all")


def _peers(folder: Path) -> list[FilePeer]:
    """Start the peers; print their versions, or why one is missing."""
    found = list[FilePeer]()
    for name in SCRIPTS:
        try:
            peer = FilePeer(name, folder)
            found += [peer] if peer.settings.are_full else [peer, FilePeer(name, folder, full=True)]
        except PeerMissing as missing:
            print(f"without {name}: {missing}")
            continue
        print("peer: " + ", ".join(f"{package} {version}" for package, version in peer.versions.items()))
    return found


def _print_machine(folder: Path) -> None:
    mounts = Path("/proc/mounts")
    device, kind = file_system(folder.resolve(), mounts.read_text() if mounts.exists() else "")
    print(f"{platform.platform()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    print(f"files on {device} ({kind}); wall clock; medians, in turns")
    if kind in ("tmpfs", "ramfs"):
        print("THESE FILES ARE IN MEMORY: nothing below says anything about durable writes")


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
