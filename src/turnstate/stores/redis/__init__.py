"""Sessions on a Redis or Valkey server, or on a Cluster of them: as durable as the server is set to be."""

from .store import RedisStore, connect

__all__ = ["RedisStore", "connect"]
