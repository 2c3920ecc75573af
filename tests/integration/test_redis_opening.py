"""A Redis server that cannot be used is refused at opening, with a clear error without the password."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.redis_proxy import Proxy
from tests.harness.valkey_server import Valkey, empty_server, free_port, fresh_cluster, fresh_server
from turnstate.errors import InputError, NewerFormat, StoreDamaged, StoreError, StoreUnavailable
from turnstate.stores.redis import RedisStore, connect
from turnstate.testing.contract.scenes import change, message, session

PASSWORD = "correct-horse"
Server = Callable[..., Valkey]


@pytest.fixture
def server() -> Iterator[Server]:
    """Start servers with options, and stop them after the test."""
    started = list[Valkey]()

    def start(*options: str, **fields: int) -> Valkey:
        started.append(Valkey(*options, **fields))
        return started[-1]

    yield start
    for one in started:
        one.stop()


async def opened(url: str) -> RedisStore:
    store = await connect(url)
    await store.close()
    return store


async def facts(url: str) -> dict[str, str]:
    store = await connect(url)
    try:
        return await store.facts()
    finally:
        await store.close()


@contextmanager
def refused(kind: type[Exception], *words: str) -> Iterator[None]:
    with pytest.raises(kind) as caught:
        yield
    shown = f"{caught.value} {caught.value!r}"
    assert all(word in shown for word in words), shown
    assert PASSWORD not in shown


def test_a_server_that_is_not_there_is_told_at_once() -> None:
    begun = time.monotonic()
    for scheme in ("redis", "rediss", "redis+cluster", "rediss+cluster"):
        with refused(StoreUnavailable, "cannot be reached"):
            asyncio.run(opened(f"{scheme}://:{PASSWORD}@127.0.0.1:{free_port()}"))
    with refused(StoreUnavailable, "cannot be reached"):
        asyncio.run(opened("redis+unix:///nowhere/valkey.sock"))
    assert time.monotonic() - begun < 60


def test_a_server_that_never_answers_is_given_up() -> None:
    async def asked() -> None:
        async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        listener = await asyncio.start_server(swallow, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        try:
            for scheme in ("redis", "redis+cluster"):
                with refused(StoreUnavailable, f"127.0.0.1:{port}"):
                    await opened(f"{scheme}://127.0.0.1:{port}?timeout=0.3")
        finally:
            listener.close()
            await listener.wait_closed()

    asyncio.run(asked())


def test_what_is_no_redis_server_is_told() -> None:
    async def asked() -> None:
        async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await writer.drain()
            writer.close()

        listener = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        try:
            with refused(StoreError, f"127.0.0.1:{port}"):
                await opened(f"redis://127.0.0.1:{port}?timeout=2")
        finally:
            listener.close()
            await listener.wait_closed()

    asyncio.run(asked())


def test_a_wrong_password_is_told_and_never_shown(server: Server) -> None:
    one = server("--requirepass", "another")
    with refused(StoreUnavailable, "password"):
        asyncio.run(opened(one.url.replace("unix://", f"unix://u:{PASSWORD}@")))
    with refused(StoreUnavailable, "password"):
        asyncio.run(opened(one.url))
    asyncio.run(opened(one.url.replace("unix://", "unix://:another@")))


def test_a_database_that_is_not_there_is_told() -> None:
    with refused(StoreUnavailable, "no such database"):
        asyncio.run(opened(f"{fresh_server()}?db=9999"))


def test_databases_of_one_server_are_stores_of_their_own() -> None:
    async def both(url: str) -> None:
        first, second = await connect(url), await connect(f"{url}?db=3")
        try:
            await first.create(session())
            await second.create(session())
        finally:
            await first.close()
            await second.close()

    asyncio.run(both(fresh_server()))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"redis://:{PASSWORD}@host:port", "cannot be read"),
        (f"redis://:{PASSWORD}@host/zero", "is not a database number"),
        (f"redis://:{PASSWORD}@host/0?color=blue", "color"),
        (f"redis://:{PASSWORD}@host?timeout=never", "timeout"),
        (f"redis://:{PASSWORD}@host?timeout=0", "timeout"),
        (f"redis://:{PASSWORD}@host?durability=total", "durability"),
        (f"redis+cluster://:{PASSWORD}@host/2", "only database 0"),
        (f"redis+carrier-pigeon://:{PASSWORD}@host", "redis://host:port/db"),
        (f"redis+unix://:{PASSWORD}@", "redis+unix:///path"),
    ],
)
def test_a_url_that_cannot_be_used_is_told(url: str, said: str) -> None:
    with refused(InputError, said):
        asyncio.run(opened(url))


def test_a_replica_is_refused(server: Server) -> None:
    master = server(port=free_port())
    replica = server("--replicaof", f"127.0.0.1 {master.port}")
    with refused(StoreUnavailable, "replica", "master"):
        asyncio.run(opened(replica.url))


def test_a_single_server_and_a_cluster_are_told_apart(server: Server) -> None:
    single = server(port=free_port())
    with refused(StoreUnavailable, "redis://"):
        asyncio.run(opened(f"redis+cluster://127.0.0.1:{single.port}"))
    with refused(StoreUnavailable, "redis+cluster://"):
        asyncio.run(opened(fresh_cluster().replace("redis+cluster", "redis")))


def test_a_server_that_throws_data_away_is_refused_unless_that_is_allowed(server: Server) -> None:
    one = server("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with refused(StoreUnavailable, "allkeys-lru", "noeviction", "allow_eviction"):
        asyncio.run(opened(one.url))
    asyncio.run(opened(f"{one.url}?allow_eviction=1"))
    one.ask("CONFIG", "SET", "maxmemory-policy", "volatile-lru")  # no key of ours has a time to live
    asyncio.run(opened(one.url))


def test_durability_is_what_the_server_is_set_to(server: Server) -> None:
    one = server("--appendonly", "yes", "--appendfsync", "always")
    assert asyncio.run(opened(one.url)).durability == "fsync"
    asyncio.run(opened(f"{one.url}?durability=fsync"))
    for name, value, back in [
        ("appendfsync", "everysec", "always"),
        ("appendfsync", "no", "always"),
        ("no-appendfsync-on-rewrite", "yes", "no"),
        ("appendonly", "no", "yes"),
    ]:
        one.ask("CONFIG", "SET", name, value)
        assert asyncio.run(opened(one.url)).durability == "best_effort"
        told = asyncio.run(facts(one.url))["durability"]
        assert told.startswith("best_effort (")
        assert name in told
        with refused(StoreUnavailable, name, "appendfsync always"):
            asyncio.run(opened(f"{one.url}?durability=fsync"))
        one.ask("CONFIG", "SET", name, back)
    assert asyncio.run(opened(one.url)).durability == "fsync"


def test_a_server_whose_replica_may_take_over_promises_less(server: Server) -> None:
    master = server("--appendonly", "yes", "--appendfsync", "always", port=free_port())
    server("--replicaof", f"127.0.0.1 {master.port}")
    deadline = time.monotonic() + 60
    while asyncio.run(facts(master.url))["replicas"] != "1":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert asyncio.run(opened(master.url)).durability == "best_effort"


def test_where_settings_are_not_told_nothing_is_promised(server: Server) -> None:
    one = server("--appendonly", "yes", "--appendfsync", "always")
    rights = ["~{ts:*", "~ts:*", "+@all", "-@dangerous", "+info"]
    one.ask("ACL", "SETUSER", "agent", "on", f">{PASSWORD}", *rights)
    url = one.url.replace("unix://", f"unix://agent:{PASSWORD}@")

    async def used() -> None:
        store = await connect(url)
        try:
            assert store.durability == "best_effort"
            assert "appendfsync is unknown" in (await store.facts())["durability"]
            await store.create(session())
            await store.commit(change(message("a", words=["w"])))
            assert len(await store.search("acme", ["w"], user=None, before=None, limit=9)) == 1
        finally:
            await store.close()

    asyncio.run(used())
    with refused(StoreUnavailable, "appendfsync is unknown"):
        asyncio.run(opened(f"{url}?durability=fsync"))


def test_a_user_without_the_rights_is_told(server: Server) -> None:
    one = server()
    one.ask("ACL", "SETUSER", "agent", "on", f">{PASSWORD}", "~other:*", "+@all")
    with refused(StoreUnavailable, "may not"):
        asyncio.run(opened(one.url.replace("unix://", f"unix://agent:{PASSWORD}@")))


def test_a_newer_layout_is_refused_untouched(server: Server) -> None:
    one = server()
    one.ask("SET", "ts:version", "2")
    with refused(NewerFormat, "layout 2"):
        asyncio.run(opened(one.url))
    assert one.ask("KEYS", "*") == [b"ts:version"]
    one.ask("SET", "ts:version", "somebody's")
    with refused(StoreDamaged, "ts:version"):
        asyncio.run(opened(one.url))


def test_a_server_that_still_loads_is_waited_for_and_then_told(server: Server) -> None:
    one = server("--appendonly", "yes")
    one.ask("EVAL", "for n = 1, 3000 do redis.call('SET', 'key ' .. n, 'x') end", 0)
    one.kill()
    slow = Valkey("--appendonly", "yes", "--key-load-delay", "1000000", folder=one.folder, wait=False)
    try:
        begun = time.monotonic()
        with refused(StoreUnavailable):
            asyncio.run(opened(f"{one.url}?timeout=1"))
        assert time.monotonic() - begun < 60
    finally:
        slow.kill()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls_is_used_and_the_certificate_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-keyout", str(key), "-out", str(certificate), "-subj", "/CN=test", "-days", "2"]
    subprocess.run([*made, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)

    async def asked() -> None:
        secret = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        secret.load_cert_chain(certificate, key)
        async with Proxy(tmp_path, empty_server().socket, port=free_port(), tls=secret) as proxy:
            url = f"rediss://127.0.0.1:{proxy.port}"
            with refused(StoreUnavailable, "certificate"):
                await opened(url)
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            await opened(url)

    asyncio.run(asked())


def test_without_its_library_the_error_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['redis'] = None\n"
        "import asyncio\n"
        "from turnstate.errors import StoreUnavailable\n"
        "try:\n"
        "    import turnstate.stores.redis\n"
        "except StoreUnavailable as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "turnstate[redis]" in done.stdout


@pytest.mark.parametrize("fresh", [fresh_server, fresh_cluster])
def test_facts_tell_what_the_servers_are_set_to(fresh: Callable[[], str]) -> None:
    told = asyncio.run(facts(fresh()))
    assert told["store"] == "redis"
    assert told["masters"] == ("3" if fresh is fresh_cluster else "1")
    assert told["appendonly"] == "no"
    assert "10,000" in told["search"]
