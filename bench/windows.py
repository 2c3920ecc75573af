"""Windows compared with LangChain's `trim_messages`: how fast, how often wrong, how cache-friendly.

The peer runs in its own environment, which is created under ``.bench/`` when it is first needed. If it cannot
be installed, only our own results are printed.
"""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from turnstate.context.manager import StateManager
from turnstate.message import Message

from . import window_cache, window_peer, window_speed, window_stateless, window_tables, window_validity
from .peer_process import PeerMissing
from .window_agent import MESSAGES_A_TURN, turns


def main(
    sizes: dict[int, tuple[int, ...]] = window_speed.SIZES,
    conversations: int = window_validity.CONVERSATIONS,
    played: int = window_cache.TURNS,
    listed: int = window_stateless.MESSAGES,
) -> None:
    """Print all tables."""
    _print_machine()
    manager = StateManager()
    longest = max(size for lengths in sizes.values() for size in lengths)
    history = turns(-(-(longest + window_speed.ADDED) // MESSAGES_A_TURN))
    sets = {
        "valid": window_validity.cases(conversations, interrupted=False, manager=manager),
        "interrupted": window_validity.cases(conversations, interrupted=True, manager=manager),
    }
    peer = _peer(history, sets)
    window_tables.report(window_speed.measured(history, sizes, peer))
    window_validity.report(sets, peer.windows() if peer else {}, manager)
    window_stateless.report(listed)
    window_cache.report(played)
    if peer:
        peer.close()


def _peer(history: list[Message], sets: dict[str, list[window_validity.Case]]) -> window_peer.Peer | None:
    """Start the peer; print what is compared, or why there is no comparison."""
    cases = [case for one in sets.values() for case in window_validity.asked(one)]
    try:
        peer = window_peer.Peer(history, cases)
    except PeerMissing as missing:
        print(f"without the peer: {missing}")
        return None
    versions = ", ".join(f"{name} {version}" for name, version in peer.versions.items())
    print(f"peer: trim_messages of {versions}; same conversations, vocabulary and counts,")
    print("and it is given the texts to count, so that collecting them costs it nothing")
    return peer


def _print_machine() -> None:
    rounds, added = window_speed.ROUNDS, window_speed.ADDED
    print(f"{platform.platform()}, {_processor()} × {os.cpu_count()}, load {os.getloadavg()[0]:.1f}")
    print(f"Python {platform.python_version()}, toktok-rs {metadata.version('toktok-rs')}, o200k_base")
    print(f"processor time; medians of {rounds} rounds or more, and of {added} messages added")


def _processor() -> str:
    """Return the name of the processor, if the system reports it."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


if __name__ == "__main__":
    main()
