"""The server benches run, write alike and judge rightly: on real servers, tiny sizes, without the peers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from bench import peer_process, server_appends, server_start, servers, session_messages
from bench.peer_process import PeerMissing
from bench.server_contest import session_name, settings_text
from bench.server_ours import ServerOurs
from bench.server_peer import ON_POSTGRES
from bench.server_raw_postgres import BarePostgres, RawPostgres
from bench.server_raw_redis import BareRedis, RawRedis
from bench.session_contest import Place, Portion
from bench.session_messages import Book
from tests.harness.postgres_server import execute, shared_url

ENTRIES = """SELECT s.id, e.branch, e.seq, e.id, e.kind, e.body, e.tokens, e.total,
    e.checksum # ((s.key * 1000003 + e.branch * 10007 + e.seq) & 4294967295) AS content
FROM {schema}.entry e JOIN {schema}.session s ON s.key = e.session ORDER BY s.id, e.seq"""
HEADS = "SELECT id, branch, seq, total, version FROM {schema}.session ORDER BY id"
PLACES = [Place("file", f"client {n}") for n in range(3)]


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path, "agent", session_messages.agent(24))


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TEST_PG_URL", shared_url())
    with server_start.postgres() as url:
        yield url


@pytest.fixture
def keys() -> Iterator[str]:
    with server_start.valkey(server_start.ALWAYS) as url:
        yield url


@pytest.mark.parametrize("makes", [False, True])
def test_the_bare_loop_writes_the_rows_that_we_write_to_postgresql(
    database: str, book: Book, makes: bool
) -> None:
    ours, bare = ServerOurs(database), BarePostgres(database, makes=makes)
    for one in (ours, bare):
        one.clients(PLACES, book)
        one.append(Place("file", "alone"), book, range(8))
        one.end()
    schema = "bare_makes" if makes else "bare"
    for sql in (ENTRIES, HEADS):
        written = execute(sql.format(schema="turnstate"), url=database)
        assert len(written) >= 4
        assert written == execute(sql.format(schema=schema), url=database)


def test_the_bare_loop_sets_as_many_fields_and_members_as_we_set_on_redis(keys: str, book: Book) -> None:
    ours, bare = ServerOurs(keys), BareRedis(keys)
    ours.append(Place("file"), book, range(8))
    bare.append(Place("file"), book, range(8))
    for one in (ours, bare):
        one.end()
    with Redis.from_url(server_start.plain(keys)) as client:
        counted = [_counted(client, tenant) for tenant in (b"default", b"bare")]
    assert counted[0] == counted[1]
    assert counted[0][b"body"] == counted[0][b"entry"] == counted[0][b"id"] == 8


def _counted(client: Redis, tenant: bytes) -> dict[bytes, int]:
    """Count the fields of the hashes that hold one for each entry."""
    named = b"%d:%s" % (len(tenant), tenant)
    found = [key for key in client.keys(b"*") if named in key]
    kinds = {key.split(b":")[2]: key for key in found}
    return {
        kind: client.hlen(key) for kind, key in kinds.items() if kind in (b"entry", b"body", b"id", b"word")
    }


def test_raw_contestants_keep_what_they_are_given(database: str, keys: str, book: Book) -> None:
    for raw in (RawPostgres(database), RawRedis(keys)):
        raw.fill(PLACES[0], book, range(8))
        assert len(raw.append(PLACES[0], book, range(8, 12))) == 4
        assert len(raw.append(PLACES[0], book, range(12, 16), seconds=0.0)) == 1
        assert raw.read(PLACES[0], Portion(4_000, 5)) > 0
        raw.end()
    with Redis.from_url(server_start.plain(keys)) as client:
        assert client.lrange(f"raw:{session_name(PLACES[0])}", 0, -1) == book.bodies[:13]
    bodies = execute("SELECT body FROM message ORDER BY key", url=database)
    assert [row["body"] for row in bodies] == book.bodies[:13]


def test_settings_are_said_as_the_connection_was_told(database: str, keys: str) -> None:
    said = "fsync on, synchronous_commit on, full_page_writes on"
    assert (
        settings_text({"store": "x", "fsync": "on", "synchronous_commit": "off"})
        == "fsync on, synchronous_commit off"
    )
    for one, expected in (
        (ServerOurs(database), f"{said} (fsync)"),
        (RawPostgres(database), said),
        (ServerOurs(keys), "appendonly yes, appendfsync always (fsync)"),
        (RawRedis(keys), "appendonly yes, appendfsync always"),
    ):
        assert one.settings == expected
        one.end()


def test_it_is_said_whom_we_are_slower_than() -> None:
    said = server_appends.verdict({"we": 2.0, "raw": 1.0, "peer": 5.0})
    assert said == "we is slower than raw (2.00 ×); quicker than peer (2.50 ×)"
    assert server_appends.verdict({"we": 1.0, "raw": 2.0}) == "we is quicker than raw (2.00 ×)"


def test_a_redis_database_that_is_not_empty_is_left_alone(keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_REDIS_URL", server_start.plain(keys))
    with Redis.from_url(server_start.plain(keys)) as client:
        client.set("theirs", 1)
        with pytest.raises(PeerMissing, match="not empty"), server_start.valkey(server_start.ALWAYS):
            pass
        assert client.get("theirs") == b"1"


def test_an_environment_is_made_once_and_again_for_other_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = list[tuple[str, ...]]()

    def run(command: tuple[str, ...], **_: object) -> subprocess.CompletedProcess[str]:
        (tmp_path / ".bench" / "peer").mkdir(parents=True, exist_ok=True)
        made.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(peer_process, "ROOT", tmp_path)
    monkeypatch.setattr(subprocess, "run", run)
    for packages in (("one",), ("one",), ("one", "two")):
        peer_process.python("peer", packages)
    assert [command[-1] for command in made if "pip" in command] == ["one", "two"]


def test_a_peer_that_cannot_be_installed_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: object) -> str:
        raise PeerMissing("not here")

    monkeypatch.setattr(peer_process, "python", missing)
    assert servers._peers(ON_POSTGRES, "postgresql://nowhere") == []
    assert "without LangGraph: not here" in capsys.readouterr().out


def test_everything_is_reported_without_peers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: object) -> str:
        raise PeerMissing("not here")

    monkeypatch.setattr("gc.collect", lambda: 0)  # the heap of all tests, again and again
    monkeypatch.setattr(peer_process, "python", missing)
    monkeypatch.setattr(servers, "LENGTHS", (100, 200))
    monkeypatch.setattr(servers, "TURNS", 1)
    monkeypatch.setattr(server_appends, "EACH", 4)
    monkeypatch.setattr(server_appends, "CLIENTS", 4)
    monkeypatch.setattr(server_appends, "CLIENT_EACH", 4)
    monkeypatch.setattr(servers.session_length, "READS", 2)
    servers.main()
    printed = capsys.readouterr().out
    assert printed.count("goal: open and window at 4,000: 200 messages at most 1.2 × 100") == 2
    assert printed.count("goal: append: 200 messages at most 1.2 × 100") == 2
    assert printed.count("agent: Turnstate is ") == 6
    assert "without openai-agents: not here" in printed
