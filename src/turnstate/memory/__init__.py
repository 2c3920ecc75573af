"""Long-term memory: the port behind which engines stand, and the worker that delivers to them.

``port`` says what an engine does, ``plugins`` finds one by its name, ``jsonl`` is the plainest there is,
and ``delivery`` takes parcels from a store's outbox to an engine.
"""

from .engines import open_engine
from .port import Evicted, Listed, MemoryEngine, Recollection, SessionRecord, User
from .worker import Worker

__all__ = [
    "Evicted",
    "Listed",
    "MemoryEngine",
    "Recollection",
    "SessionRecord",
    "User",
    "Worker",
    "open_engine",
]
