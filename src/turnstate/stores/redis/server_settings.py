"""The settings of the servers, and the durability that follows from them.

A store is as durable as its weakest master. Only a server that syncs its append-only file before it answers
(`appendonly yes`, `appendfsync always`) and that no replica can replace keeps acknowledged writes in a power
cut: replicas get a write after the answer, so a failover can lose it. A server that evicts keys when its
memory is full is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from ...errors import NewerFormat, StoreDamaged, StoreError, StoreUnavailable
from ..values import Durability
from .layout import VERSION, VERSION_KEY
from .server import Server
from .target import RedisTarget

LEAST_VERSION = (7, 0)
"""Older versions do not support script flags, and might abort a script halfway."""

_WANTED = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "save", "maxmemory-policy")


class RedisSettings(Struct, frozen=True, kw_only=True):
    """The settings of one server; a setting that it does not reveal is empty."""

    program: str
    version: str
    role: str
    in_cluster: bool
    replicas: int
    appendonly: str
    appendfsync: str
    no_appendfsync_on_rewrite: str
    save: str
    maxmemory: str
    maxmemory_policy: str
    used_memory: str

    @property
    def shortcomings(self) -> list[str]:
        """The reasons why an acknowledged write may be lost."""
        found = list[str]()
        if self.appendonly != "yes":
            found.append(f"appendonly is {self.appendonly or 'unknown'}")
        elif self.appendfsync != "always":
            found.append(f"appendfsync is {self.appendfsync or 'unknown'}")
        elif self.no_appendfsync_on_rewrite != "no":
            found.append("no-appendfsync-on-rewrite is on")
        if self.replicas:
            found.append("a replica may take over without the newest writes")
        return found

    @property
    def durability(self) -> Durability:
        """The durability of an acknowledged write."""
        return "best_effort" if self.shortcomings else "fsync"


def weakest(found: Iterable[RedisSettings]) -> Durability:
    """Return the durability of the weakest server."""
    return "best_effort" if any(one.shortcomings for one in found) else "fsync"


def described(found: Sequence[RedisSettings]) -> dict[str, str]:
    """Return settings for people to read; if masters differ, all values."""

    def values(name: str) -> str:
        return ", ".join(sorted({str(getattr(one, name)) or "unknown" for one in found}))

    reasons, durability = sorted({reason for one in found for reason in one.shortcomings}), weakest(found)
    shown = ("appendonly", "appendfsync", "save", "maxmemory", "maxmemory_policy", "used_memory")
    return {
        values("program"): values("version"),
        "masters": str(len(found)),
        "replicas": str(sum(one.replicas for one in found)),
        "durability": f"{durability} ({'; '.join(reasons)})" if reasons else durability,
        **{name: values(name) for name in shown},
    }


async def settings(server: Server, target: RedisTarget) -> list[RedisSettings]:
    """Return the settings of all masters; raise `StoreUnavailable` if one cannot be used."""
    if target.db:  # some versions of the library use the first database if another one does not exist
        await server.ask("SELECT", target.db)
    found = [await _asked(server, node) for node in await server.nodes()]
    for one in found:
        _check(one, target)
    weak = sorted({reason for one in found for reason in one.shortcomings})
    if target.durability == "fsync" and weak:
        raise StoreUnavailable(
            f"{server.name} cannot promise durability=fsync: {', '.join(weak)}; "
            "set appendonly yes and appendfsync always, or leave durability out of the URL"
        )
    return found


async def claim_layout(server: Server) -> None:
    """Mark the database as ours; raise `NewerFormat` if a newer Turnstate has marked it."""
    kept = await server.ask("GET", VERSION_KEY)
    if kept is None:
        await server.ask("SET", VERSION_KEY, VERSION, "NX")
        kept = await server.ask("GET", VERSION_KEY)
    if not kept or not kept.isdigit():
        raise StoreDamaged(
            f"{server.name} has a key {VERSION_KEY.decode()} that is not ours; use another database"
        )
    if int(kept) > VERSION:
        raise NewerFormat(
            f"{server.name} has layout {int(kept)}, newer than {VERSION}; update Turnstate to open it"
        )


async def _asked(server: Server, node: Any) -> RedisSettings:
    info = _mapping(await server.ask("INFO", node=node))
    if info.get("cluster_enabled") == "1" and not server.is_cluster:
        # Otherwise only a redirection would reveal this, and a key on this node does not cause one.
        raise StoreUnavailable(f"{server.name} is a node of a Cluster; write redis+cluster:// in the URL")
    configured = await _configuration(server, node)
    name = "valkey" if "valkey_version" in info else "redis"
    logged = {"0": "no", "1": "yes"}.get(info.get("aof_enabled", ""), "")
    return RedisSettings(
        program=name,
        version=info.get(f"{name}_version", ""),
        role=info.get("role", ""),
        in_cluster=info.get("cluster_enabled") == "1",
        replicas=int(info.get("connected_slaves", "0")),
        appendonly=configured.get("appendonly", logged),
        appendfsync=configured.get("appendfsync", ""),
        no_appendfsync_on_rewrite=configured.get("no-appendfsync-on-rewrite", ""),
        save=configured.get("save", ""),
        maxmemory=info.get("maxmemory", ""),
        maxmemory_policy=configured.get("maxmemory-policy", info.get("maxmemory_policy", "")),
        used_memory=info.get("used_memory_human", ""),
    )


async def _configuration(server: Server, node: Any) -> dict[str, str]:
    try:
        return _mapping(await server.ask("CONFIG GET", *_WANTED, node=node))
    except StoreError:  # hosted servers often refuse this
        return {}


def _check(one: RedisSettings, target: RedisTarget) -> None:
    numbers = [int(number) for number in one.version.split(".")[:2] if number.isdigit()]
    if tuple(numbers) < LEAST_VERSION:
        raise StoreUnavailable(
            f"{target.shown} is {one.program} {one.version}; Turnstate needs Redis 7 or Valkey"
        )
    if one.in_cluster and not target.cluster:  # a node serves the keys of its own slots only
        raise StoreUnavailable(f"{target.shown} is a node of a Cluster; write redis+cluster:// in the URL")
    if one.role != "master":
        raise StoreUnavailable(
            f"{target.shown} is a replica and takes no writes; give the address of its master"
        )
    if one.maxmemory_policy.startswith("allkeys") and not target.allow_eviction:
        raise StoreUnavailable(
            f"{target.shown} evicts keys when its memory is full (maxmemory-policy "
            f"{one.maxmemory_policy}): set noeviction, or write allow_eviction=1 into the URL"
        )


def _mapping(answer: Any) -> dict[str, str]:
    """Return names and values as strings, from any form that the client library returns."""
    if isinstance(answer, bytes):
        lines = (line.partition(":") for line in answer.decode(errors="replace").splitlines())
        return {name: value for name, colon, value in lines if colon}
    if not isinstance(answer, dict):
        answer = dict(zip(answer[::2], answer[1::2], strict=True))
    return {_text(name): _text(value) for name, value in answer.items()}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
