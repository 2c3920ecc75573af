"""A folder with snapshots in it, and what the tests do to one."""

from __future__ import annotations

from pathlib import Path

from turnstate import ContextSnapshot, Message
from turnstate.home import Home
from turnstate.snapshots import Snapshots

SESSION = "0198c0de-0000-7000-8000-000000000001"


def snapshot(number: int = 0, *, text: str = "hello", **more: object) -> ContextSnapshot:
    """Take a small snapshot that can be told from others by its token count."""
    messages = (
        Message.system(
            "You keep a lighthouse.", kind="prompt", id=f"s{number}", timestamp="2025-01-01T00:00:00Z"
        ),
        Message.user(text, id=f"u{number}", timestamp="2025-01-01T00:00:01Z"),
    )
    return ContextSnapshot(
        timestamp=1_760_000_000_000 + number, token_count=number, messages=messages, **more
    )


def keeper(tmp_path: Path, *, home: str = "home", **more: object) -> Snapshots:
    """Keep snapshots in one workspace, for the installation of that name."""
    return Snapshots(home=Home(tmp_path / home), workspace=tmp_path / "work", **more)


def session_folder(kept: Snapshots, session: str = SESSION) -> Path:
    return kept.folder / session


def files(kept: Snapshots, session: str = SESSION) -> list[str]:
    """Name the snapshots that are there, oldest first."""
    return sorted(path.name for path in session_folder(kept, session).glob("*.json"))


def litter(kept: Snapshots, session: str = SESSION) -> list[str]:
    """Name what is there and is no snapshot."""
    return sorted(path.name for path in session_folder(kept, session).iterdir() if path.suffix != ".json")


def token_count(kept: Snapshots, session: str = SESSION) -> int:
    """Restore, and tell which snapshot it was."""
    restored = kept.restore(session)
    assert restored is not None
    return restored.snapshot.token_count
