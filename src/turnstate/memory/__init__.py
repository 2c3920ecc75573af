"""Long-term memory: the port of memory engines, and the worker that delivers to them.

``port`` defines what an engine does, ``engines`` opens one by name, ``builtin`` is the engine that
comes with Turnstate, and ``worker`` delivers the parcels of a store's outbox to an engine.
"""

from .engines import open_engine
from .port import Evicted, Filter, Listed, MemoryEngine, Recollection, SessionRecord, User
from .worker import Worker

__all__ = [
    "Evicted",
    "Filter",
    "Listed",
    "MemoryEngine",
    "Recollection",
    "SessionRecord",
    "User",
    "Worker",
    "open_engine",
]
