"""The client library, or a word on how to get it."""

from __future__ import annotations

from ...errors import StoreUnavailable

try:
    from redis import exceptions
    from redis.asyncio import Redis, RedisCluster
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
except ModuleNotFoundError as missing:
    raise StoreUnavailable(
        "the Redis store needs the package `redis`: pip install 'turnstate[redis]'"
    ) from missing

__all__ = ["NoBackoff", "Redis", "RedisCluster", "Retry", "exceptions"]
