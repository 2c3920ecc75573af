"""Operations on a conversation: whether one of 100,000 messages takes as long as one of 100.

Three parts: tangents, clear, undo, the model and recorded lines, on each store, with the rows that they read;
looking at a conversation of 20,000 messages; and the processor time of a line that is typed in a chat. Both
lengths are measured by turns in one run, and their ratio counts. Servers are started as for `servers`.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from . import conversation_chat, conversation_operations, conversation_views, server_start
from .peer_process import PeerMissing


def main() -> None:
    """Print all tables."""
    with _folder() as folder:
        _on_store("SQLite", f"sqlite:///{folder}/conversation.db")
    _tried("PostgreSQL", _postgres)
    _tried("Valkey, appendfsync always", _valkey)
    with _folder() as folder:
        asyncio.run(conversation_chat.report(folder))
    print(f"load {os.getloadavg()[0]:.1f} at the end")


def _postgres() -> None:
    with server_start.postgres() as url:
        _on_store("PostgreSQL", url)


def _valkey() -> None:
    with server_start.valkey(server_start.ALWAYS) as url:
        _on_store("Valkey", url)


def _on_store(name: str, url: str) -> None:
    asyncio.run(conversation_operations.report(name, url))
    asyncio.run(conversation_views.report(name, url))


def _tried(title: str, run: Callable[[], None]) -> None:
    try:
        run()
    except PeerMissing as missing:
        print(f"\nwithout {title}: {missing}")


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="turnstate-bench-", dir=server_start.folder()) as name:
        yield Path(name)


if __name__ == "__main__":
    main()
