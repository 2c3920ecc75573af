"""Stores that earlier versions of Turnstate wrote, kept with the tests: their content, and how to load them.

`tools/keep_stores.py` writes a set with the code of its day: a store of every kind with every kind of entry,
branches, tangents, cuts, epochs, keys, parcels and leases, and what is kept beside stores. A set is never
written again once it is published: it stands for the files that people have. Beside it is what could be read
from it at the time, and every later version must read at least that.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import json
import subprocess
import tarfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, get_args

import apsw
import msgspec
from redis import Redis

from tests.harness.postgres_server import _programs, dumped, execute, fresh_url, shared_url
from tests.harness.valkey_server import empty_server, shared_server
from turnstate import Budget, Message, SessionManager, ToolCallRequest, ToolCallResult
from turnstate.archive import archive, encode_line
from turnstate.archive import format as archive_format
from turnstate.checkpoints import ShadowRepository
from turnstate.context import snapshot as snapshot_format
from turnstate.entry import (
    Answer,
    Bootstrap,
    Checkpoint,
    Entry,
    FileLines,
    Mask,
    Note,
    Restore,
    SettingsChange,
    Started,
    Usage,
)
from turnstate.home import Home
from turnstate.log.operations import write
from turnstate.memory.builtin import BuiltinEngine
from turnstate.memory.builtin import postgres as memory_postgres
from turnstate.memory.builtin import sqlite as memory_sqlite
from turnstate.memory.engines import open_engine
from turnstate.memory.port import MemoryEngine, User
from turnstate.part import ImagePart, ReasoningPart, TextPart
from turnstate.session.names import OWNERS
from turnstate.shadow import contents as shadow_contents
from turnstate.shadow import folder as shadow_folder
from turnstate.snapshots import Snapshots
from turnstate.stores import connect
from turnstate.stores.port import Store
from turnstate.stores.postgres.queries import migrations
from turnstate.stores.postgres.server import target
from turnstate.stores.redis import layout
from turnstate.stores.sqlite.queries import MIGRATIONS
from turnstate.stores.values import Address, SessionFilter
from turnstate.testing import FixedClock, ScriptedModel
from turnstate.testing.samples import TINY_PNG

KEPT = Path(__file__).parents[1] / "kept"
TENANT, USER = "kept", "keeper"
STORES = ("sqlite", "postgres", "valkey")
TOLD = ("My name is Ada.", "I live in Skagen.", "I prefer short answers.")
ENGINES = ("builtin on SQLite", "builtin on PostgreSQL")
DAY = 24 * 3600.0
_SCHEMA = b"kept_schema"  # stands for the schema's name in a dump


def schemas() -> dict[str, Any]:
    """Return the version of everything that is kept in files or on servers."""
    return {
        "sqlite": len(MIGRATIONS),
        "postgres": len(migrations("turnstate")),
        "valkey": layout.VERSION,
        "builtin on SQLite": memory_sqlite.VERSION,
        "builtin on PostgreSQL": memory_postgres.VERSION,
        "snapshot": snapshot_format.VERSION,
        "archive": archive_format.VERSION,
        "shadow": f"{shadow_folder._FORMAT}.{shadow_contents._VERSION}",
    }


def kinds() -> list[str]:
    """Return all kinds of entries."""
    tags = [one.__struct_config__.tag for one in get_args(Entry) if one is not Message]
    return sorted(["message", *map(str, tags)])


def sets() -> list[Path]:
    """Return the folders of all sets, the oldest first."""
    return sorted(path for path in KEPT.iterdir() if path.is_dir())


def about() -> dict[str, Any]:
    """Return what a set is for; when it changes, a new set is due."""
    return {"schemas": schemas(), "kinds": kinds()}


# The content.


async def fill(store: Store) -> None:
    """Write sessions that have everything a store can hold."""
    clock = FixedClock()
    writer = ScriptedModel(*["The keeper lit the lamp, and the lens was cleaned."] * 9)
    sessions = SessionManager(store, tenant=TENANT, clock=clock, idle=DAY, model=writer)
    await _everything(sessions)
    leased = await sessions.create(id="leased", user=USER)
    await leased.acquire(seconds=DAY)
    await leased.append(Message.user("I hold the lease."))
    ended = await sessions.create(id="ended", user=USER, system="You keep a lighthouse.")
    await ended.append(Message.user("My name is Ada."), Message.assistant("Hello Ada."))
    await ended.end("closed")
    again = await sessions.create(id="again")
    await again.append(Message.user("In the first epoch."), key="epoch-1")
    again = await again.reset(system="Another prompt.")
    await again.append(Message.user("In the second epoch."), key="epoch-2")
    await sessions.user_state(USER).set("app", "theme", {"dark": True})
    await sessions.tenant_state.set("app", "limit", 3)


async def _everything(sessions: SessionManager) -> None:
    session = await sessions.create(
        id="everything",
        user=USER,
        system="You keep a lighthouse.",
        title="The lamp",
        tags=("lamp", "日本"),
        meta={"a": [1, None, "x"]},
        model="gpt-4o",
    )
    for number in range(6):
        call = ToolCallRequest(name="read_file", args={"path": f"log {number}.txt"})
        asks = Message.user(f"Question {number}: please read the log of the lamp. 灯台")
        result = ToolCallResult(tool_call_id=call.id, result="lamp was lit\n" * 300)
        await session.append(asks, key=f"question-{number}")
        await session.append(Message.assistant("I will look.", tool_calls=[call]), key=f"call-{number}")
        await session.append(Message.tool([result]), key=f"result-{number}")
        await session.append(Message.assistant(f"Answer {number}: the lamp was lit."), key=f"answer-{number}")
    parts = (TextPart("Look."), ImagePart(data=TINY_PNG, media_type="image/png"))
    await session.append(Message.user(parts), key="picture")
    reasoning = (ReasoningPart(text="A lamp.", signature="c2ln"), TextPart("A lamp."))
    await session.append(Message.assistant(reasoning), key="reasoning")
    await session.window(Budget(2_500, output=300))
    await sessions.settled()
    await session.compact()
    for number in range(4):
        await session.append(Message.user(f"And {number}?"), Message.assistant(f"It is {number}."))
    await session.compact(model=False)
    await session.undo()
    path = await session.messages()
    await session.fork(at=path[7].id, name="another way")
    await session.append(Message.user("On another branch."), key="branch")
    await session.rewind(path[3].id)
    await session.append(Message.user("Before the tangent."), Message.assistant("Yes."))
    await session.note("a line for people")
    await session.begin_tangent()
    await session.append(Message.user("In the tangent."), Message.assistant("Aside."))
    await session.leave_tangent()
    waiting = ToolCallRequest(name="run", args={})
    last = Message.assistant("Running.", tool_calls=[waiting])
    await session.append(Message.user("Run it."), last)
    entries: list[Entry] = [
        Bootstrap("The user keeps a lighthouse."),
        Started((waiting.id,)),
        Answer.give(waiting.id, "It ran."),
        Usage(input=900, output=30, cached=500, model="gpt-4o", details={"purpose": "x"}, counted=880),
        Note("a note", lines=("earlier",)),
        SettingsChange({"theirs": {"kept": True}}),
        FileLines("lamp.txt", {"lines": 3}),
        Mask(ids=(), saved=0, limit=2_500, scale=2_000),
        Checkpoint(label="0", commit="a" * 40, description="the start", at=5, work_tree="/project"),
        Restore(label="0", commit="a" * 40, undo="undo-1", conversation=False),
    ]
    await session.operate(write(*entries))
    await session.state.set("app", "place", "Skagen")


# What can be read from it.


async def contents(store: Store) -> Any:
    """Return everything that a store holds, as JSON."""
    addresses = await _addresses(store, TENANT) + await _addresses(store, OWNERS + TENANT)
    rows = {f"{at.tenant} {at.session}": msgspec.to_builtins(await store.get(at)) for at in addresses}
    parcels = [msgspec.to_builtins(one) for one in await store.parcels(limit=1_000)]
    hits = await store.search(TENANT, ["lamp"], user=None, before=None, limit=1_000)
    page, feed = "", list[str]()
    while (found := await store.feed(TENANT, page, limit=50)).items:
        feed += [f"{item.session} {item.row.id}" for item in found.items]
        page = found.cursor
    everything = {
        "lines": await archived(store, addresses),
        "rows": rows,
        "parcels": sorted(parcels, key=lambda one: one["id"]),
        "found": sorted(hit.row.id for hit in hits),
        "feed": sorted(feed),
    }
    return _plain(everything)


async def archived(store: Store, addresses: Sequence[Address]) -> list[Any]:
    """Return the lines of an archive of sessions."""

    async def each() -> AsyncIterator[Address]:
        for at in addresses:
            yield at

    return [json.loads(encode_line(line)) async for line in archive(store, each())]


async def _addresses(store: Store, tenant: str) -> list[Address]:
    rows = await store.page(tenant, SessionFilter(), limit=1_000)
    return sorted(row.address for row in rows)


async def own_lines(store: Store) -> list[Any]:
    """Return the lines of an archive of the tenant's sessions."""
    return await archived(store, await _addresses(store, TENANT))


def missing(found: Any, expected: Any, at: str = "$") -> list[str]:
    """Return where something that was there is missing or differs; what is new in an object may be more."""
    if isinstance(expected, dict) and isinstance(found, dict):
        gone = [f"{at}.{name} is gone" for name in expected.keys() - found.keys()]
        both = expected.keys() & found.keys()
        return gone + [one for name in both for one in missing(found[name], expected[name], f"{at}.{name}")]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(found, expected, strict=True))
        return [one for n, (a, b) in pairs for one in missing(a, b, f"{at}[{n}]")]
    return [] if found == expected else [f"{at} is {found!r:.200}, and was {expected!r:.200}"]


# Files of a set: written once, loaded by the tests.


def keep(folder: Path, scratch: Path) -> None:
    """Write a set with the code of today."""
    folder.mkdir(parents=True, exist_ok=True)
    expected = dict[str, Any]()
    for kind in STORES:
        with _empty(kind, scratch) as url:
            expected[kind] = asyncio.run(_filled(url))
            _write(folder / f"{kind}.gz", _dumped(kind, url, scratch))
    for kind in ENGINES:
        with _empty(kind, scratch) as url:
            expected[kind] = asyncio.run(_remembered(url))
            _write(folder / f"{kind}.gz", _dumped(kind, url, scratch))
    for kind, make in (("archive", _make_archive), ("snapshot", _make_snapshot), ("shadow", _make_shadow)):
        place = scratch / kind
        place.mkdir()
        expected[kind] = make(place)
        _write(folder / f"{kind}.gz", _packed(place))
    _write(folder / "expected.json.gz", json.dumps(expected, ensure_ascii=False, sort_keys=True).encode())
    (folder / "about.json").write_text(json.dumps(about(), indent=1) + "\n")


def expected_of(folder: Path, kind: str) -> Any:
    """Return what could be read from a kept store when it was written."""
    return json.loads(gzip.decompress((folder / "expected.json.gz").read_bytes()))[kind]


@contextmanager
def loaded(folder: Path, kind: str, scratch: Path) -> Iterator[str]:
    """Load a kept store, and yield its URL, or the folder that it is in."""
    data = gzip.decompress((folder / f"{kind}.gz").read_bytes())
    with _empty(kind, scratch) as url:
        match kind:
            case "sqlite" | "builtin on SQLite":
                _path(kind, scratch).write_bytes(data)
            case "postgres" | "builtin on PostgreSQL":
                schema = _schema(url)
                program = [str(_programs() / "psql"), "-q", "-v", "ON_ERROR_STOP=1", shared_url()]
                sql = data.replace(_SCHEMA, schema.encode())
                subprocess.run(program, input=sql, check=True, capture_output=True)
            case "valkey":
                _put_keys(json.loads(data))
            case _:
                with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                    tar.extractall(scratch / kind, filter="fully_trusted")
        yield url


@contextmanager
def _empty(kind: str, scratch: Path) -> Iterator[str]:
    """Yield the URL of an empty store or memory engine, or a folder."""
    match kind:
        case "sqlite":
            yield f"sqlite:///{_path(kind, scratch)}"
        case "builtin on SQLite":
            yield f"builtin:{_path(kind, scratch)}"
        case "postgres":
            with fresh_url() as url:
                yield url
        case "builtin on PostgreSQL":
            with fresh_url() as url:
                yield f"builtin:{url}"
                execute(f"DROP SCHEMA IF EXISTS {_schema(f'builtin:{url}')} CASCADE")
        case "valkey":
            yield empty_server().url
        case _:
            yield str(scratch / kind)


def _schema(url: str) -> str:
    schema = target(url.removeprefix("builtin:")).schema
    return schema + memory_postgres.SUFFIX if url.startswith("builtin:") else schema


def _path(kind: str, scratch: Path) -> Path:
    return scratch / f"{kind}.db"


def _dumped(kind: str, url: str, scratch: Path) -> bytes:
    match kind:
        case "sqlite" | "builtin on SQLite":
            with closing(apsw.Connection(str(_path(kind, scratch)))) as db:
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return _path(kind, scratch).read_bytes()
        case "postgres" | "builtin on PostgreSQL":
            schema = _schema(url)
            return dumped(schema).replace(schema.encode(), _SCHEMA)
        case "valkey":
            return json.dumps(_keys()).encode()
        case _:
            return _packed(scratch / kind)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data, mtime=0))


def _packed(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(folder, arcname=".")
    return buffer.getvalue()


def _keys() -> list[list[Any]]:
    """Return the keys of the server in a form that any version of it can load."""
    found = list[list[Any]]()
    with Redis(unix_socket_path=shared_server().socket) as client:
        for key in sorted(client.scan_iter(count=1_000)):
            kind = client.type(key)
            match kind:
                case b"string":
                    value: Any = _text(client.get(key))
                case b"hash":
                    value = [[_text(name), _text(one)] for name, one in client.hgetall(key).items()]
                case b"zset":
                    value = [[_text(one), score] for one, score in client.zrange(key, 0, -1, withscores=True)]
                case _:
                    raise ValueError(f"{key!r} is of the kind {kind!r}, which cannot be kept yet")
            found.append([kind.decode(), _text(key), value])
    return found


def _put_keys(found: list[list[Any]]) -> None:
    with Redis(unix_socket_path=shared_server().socket) as client:
        for kind, key, value in found:
            match kind:
                case "string":
                    client.set(_bytes(key), _bytes(value))
                case "hash":
                    client.hset(_bytes(key), mapping={_bytes(name): _bytes(one) for name, one in value})
                case "zset":
                    client.zadd(_bytes(key), {_bytes(one): score for one, score in value})


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


# One of each kind.


async def _filled(url: str) -> Any:
    store = await connect(url)
    try:
        await fill(store)
        return await contents(store)
    finally:
        await store.close()


async def memories(engine: MemoryEngine) -> Any:
    """Return what an engine knows: what was said, and the facts; how it ranks them may change."""
    user = User(TENANT, USER)
    said = {one.text for word in TOLD for one in await engine.search(user, word, 50)}
    facts = await engine.facts(user) if isinstance(engine, BuiltinEngine) else []
    return _plain({"said": sorted(said & {*TOLD}), "facts": [msgspec.to_builtins(one) for one in facts]})


def _plain(found: Any) -> Any:
    """Return values as JSON has them."""
    return json.loads(json.dumps(found))


async def _remembered(url: str) -> Any:
    engine, clock = await open_engine(url), FixedClock()
    sessions = SessionManager(await connect("memory:"), tenant=TENANT, clock=clock, memory=engine)
    for number, text in enumerate(TOLD):
        session = await sessions.create(id=f"told {number}", user=USER)
        await session.append(Message.user(text), Message.assistant("I will remember that."))
        await session.end()
    await sessions.deliver()
    try:
        return await memories(engine)
    finally:
        await engine.close()


def _make_archive(place: Path) -> Any:
    async def written() -> Any:
        store = await connect("memory:")
        await fill(store)
        lines = await own_lines(store)
        (place / "sessions.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return lines

    return asyncio.run(written())


def _make_snapshot(place: Path) -> Any:
    async def written() -> Any:
        sessions = SessionManager(await connect("memory:"), tenant=TENANT, clock=FixedClock())
        session = await sessions.create(id="everything", system="You keep a lighthouse.")
        await session.append(Message.user("Is the lamp lit?"), Message.assistant("It is. 灯台"))
        return await session.snapshot()

    snapshots = Snapshots(place / "snapshots", Home(place / "home"), clock=FixedClock())
    snapshots.write("everything", asyncio.run(written()))
    return snapshot_document(place)


def snapshot_document(place: Path) -> Any:
    """Return the document of the newest snapshot in a folder."""
    restored = Snapshots(place / "snapshots", Home(place / "home")).restore("everything")
    assert restored is not None
    return json.loads(restored.snapshot.to_json())


def _make_shadow(place: Path) -> Any:
    tree = place / "tree"
    tree.mkdir()
    (tree / "lamp.txt").write_text("dark\n")
    (tree / "run.sh").write_text("#!/bin/sh\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "link").symlink_to("lamp.txt")
    (tree / "empty").mkdir()
    repository = ShadowRepository.open(place / "shadow", tree)
    repository.snapshot("first", "the start")
    (tree / "lamp.txt").write_text("bright\n")
    (tree / "日本.txt").write_text("new\n")
    repository.snapshot("second", "the lamp was lit")
    repository.restore("first", undo="undo-1")
    (tree / "lamp.txt").write_text("red\n")
    repository.snapshot("third", "red")
    return shadow_contents_of(repository)


def shadow_contents_of(repository: ShadowRepository) -> Any:
    """Return the snapshots of a shadow repository, and how each differs from the work tree."""
    return {
        one.tag: [one.commit, one.message, repository.diff(one.tag).text] for one in repository.snapshots()
    }
