"""Sessions on a Redis or Valkey server, or on a Cluster: as durable as the server is configured to be."""

from .store import RedisStore, connect

__all__ = ["RedisStore", "connect"]
