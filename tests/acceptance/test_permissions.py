"""Conversations are private: whatever the umask says, no file or folder that we make is open to others."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cli_program import turnstate
from turnstate import Message, SessionManager
from turnstate.errors import InputError
from turnstate.memory import Worker, open_engine
from turnstate.snapshots import Snapshots
from turnstate.stores.sqlite import SqliteStore, rescue


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["umask 000", "umask 022", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TURNSTATE_HOME", str(tmp_path / "made" / "home"))
    return tmp_path / "made" / "home"


def modes(folder: Path) -> dict[str, int]:
    """Return the modes of everything under a folder."""
    return {str(one.relative_to(folder)): one.stat().st_mode & 0o777 for one in sorted(folder.rglob("*"))}


def wrong(folder: Path) -> dict[str, str]:
    """Name what is open to anybody but its owner."""
    return {name: oct(mode) for name, mode in modes(folder).items() if mode & 0o077}


async def talk(sessions: SessionManager) -> None:
    session = await sessions.create(id="talk", user="anna", system="You keep secrets.")
    await session.append(Message.user("a secret"))
    await session.append(Message.assistant("kept"))


@pytest.mark.usefixtures("umask")
def test_a_store_with_its_log_of_writes_is_private(tmp_path: Path) -> None:
    async def keep() -> dict[str, int]:
        async with await SessionManager.open(f"sqlite:///{tmp_path}/agent.db") as sessions:
            await talk(sessions)
            return modes(tmp_path)

    assert asyncio.run(keep()) == {"agent.db": 0o600, "agent.db-shm": 0o600, "agent.db-wal": 0o600}
    assert modes(tmp_path) == {"agent.db": 0o600}


@pytest.mark.usefixtures("umask")
def test_a_store_for_a_group_is_accessible_to_the_group_only(tmp_path: Path) -> None:
    async def keep() -> dict[str, int]:
        async with await SessionManager.open(f"sqlite:///{tmp_path}/agent.db?mode=0660") as sessions:
            await talk(sessions)
            return modes(tmp_path)

    assert asyncio.run(keep()) == {"agent.db": 0o660, "agent.db-shm": 0o660, "agent.db-wal": 0o660}


@pytest.mark.parametrize(
    "query", ["mode=0666", "mode=0664", "mode=0700", "mode=rw", "mode=", "mod=0660", "x"]
)
def test_a_mode_that_admits_everyone_or_is_invalid_is_rejected(query: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mode=0660"):
        asyncio.run(SessionManager.open(f"sqlite:///{tmp_path}/agent.db?{query}"))
    assert modes(tmp_path) == {}


@pytest.mark.usefixtures("umask")
def test_a_store_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    path.touch()
    path.chmod(0o640)
    asyncio.run(SqliteStore(str(path), mode=0o660).close())
    assert modes(tmp_path) == {"agent.db": 0o640}


@pytest.mark.usefixtures("umask")
def test_a_salvaged_copy_is_private(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"

    async def keep() -> None:
        async with await SessionManager.open(f"sqlite:///{path}") as sessions:
            await talk(sessions)

    async def save() -> None:
        async for _ in rescue(str(path)):
            assert not any("salvaged" in name for name in wrong(tmp_path))

    asyncio.run(keep())
    path.chmod(0o644)
    asyncio.run(save())
    assert modes(tmp_path)["agent.db.salvaged"] == 0o600
    assert modes(tmp_path)["agent.db"] == 0o644


@pytest.mark.usefixtures("umask", "home")
def test_what_commands_write_is_private(tmp_path: Path) -> None:
    talk = tmp_path / "talk.json"
    messages = [{"role": "user", "content": "a secret"}, {"role": "assistant", "content": "kept"}]
    talk.write_text(json.dumps({"id": "talk", "messages": messages}))
    talk.chmod(0o600)
    for line in (
        ["import", talk, "--from", "openai-chat"],
        ["export", "talk", "--output", tmp_path / "archive.jsonl"],
        ["export", "talk", "--format", "markdown", "--output", tmp_path / "talk.md"],
        [
            "convert",
            "--from",
            "openai-chat",
            "--to",
            "anthropic",
            "--output",
            tmp_path / "converted.json",
            talk,
        ],
        [
            "fit",
            "--budget",
            "5000",
            "--report",
            tmp_path / "report.json",
            "--output",
            tmp_path / "fit.json",
            talk,
        ],
        ["amazon-q", "export", "talk", "-o", tmp_path / "original.json"],
    ):
        outcome = turnstate(*line)
        assert outcome.code == 0, (line, outcome)
    assert {"archive.jsonl", "converted.json", "report.json", "made/home"} <= modes(tmp_path).keys()
    assert wrong(tmp_path) == {}


@pytest.mark.usefixtures("umask")
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path) -> None:
    talk, target = tmp_path / "talk.json", tmp_path / "out.json"
    talk.write_text(json.dumps([{"role": "user", "content": "a secret"}]))
    target.touch()
    target.chmod(0o644)
    assert (
        turnstate(
            "convert", "--from", "openai-chat", "--to", "anthropic", "--force", "--output", target, talk
        ).code
        == 0
    )
    assert target.stat().st_mode & 0o777 == 0o644


@pytest.mark.usefixtures("umask", "home")
def test_memories_and_snapshots_are_private(tmp_path: Path) -> None:
    async def keep() -> None:
        engine = await open_engine(f"builtin:{tmp_path}/memory.db")
        try:
            async with await SessionManager.open(
                f"sqlite:///{tmp_path}/agent.db", snapshots=Snapshots(tmp_path / "snapshots")
            ) as sessions:
                await talk(sessions)
                await (await sessions.open("talk")).end()
                await Worker(sessions.store, engine).run_once()
            assert {"memory.db", "memory.db-shm", "memory.db-wal"} <= modes(tmp_path).keys()
            assert wrong(tmp_path) == {}
        finally:
            await engine.close()

    asyncio.run(keep())
    assert any(name.startswith("snapshots/") for name in modes(tmp_path))
    assert wrong(tmp_path) == {}


def test_doctor_names_what_is_accessible_to_everyone_and_how_to_change_that(
    tmp_path: Path, home: Path
) -> None:
    path = tmp_path / "agent.db"
    asyncio.run(SqliteStore(str(path)).close())
    url = f"sqlite:///{path}"

    def told() -> dict[str, tuple[str, str]]:
        return {
            one["name"]: (one["result"], one["text"])
            for one in turnstate("doctor", "--store", url, "--json").objects
        }

    assert told()["store.permissions"] == ("ok", "not accessible to other users")
    path.chmod(0o644)
    home.mkdir(parents=True)
    home.chmod(0o755)
    (home / "key").touch(0o604)
    result, text = told()["store.permissions"]
    assert result == "warning"
    assert f"chmod o-rwx {path}" in text
    assert told()["home.permissions"] == (
        "warning",
        f"accessible to every user of this machine: run chmod o-rwx {home} {home / 'key'}",
    )
    assert path.stat().st_mode & 0o777 == 0o644
