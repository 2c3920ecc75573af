"""What every store promises, as tests that are part of the library: run them on your own store.

    class TestMyStore(StoreContract):
        async def connect(self) -> Store:
            return await my_store.connect(self.url)

        @pytest.fixture(autouse=True)
        def fresh(self, tmp_path):
            self.url = f"mine:{tmp_path}"

``connect`` opens an empty store and, if a test calls it again, the same one. This is how tests restart a
store, and share one between two workers. The tests are plain methods that need no plugin. To test only a part
of the contract, subclass the class of that part.
"""

from __future__ import annotations

from .admission import AdmissionContract
from .directory import DirectoryContract
from .engines import MemoryContract
from .feed import FeedContract
from .health import HealthContract, TenantContract
from .leases import LeaseContract, OutboxContract
from .log import BranchContract, LogContract
from .races import RaceContract
from .search import SearchContract
from .texts import TextContract

__all__ = ["MemoryContract", "StoreContract"]


class StoreContract(
    LogContract,
    BranchContract,
    AdmissionContract,
    FeedContract,
    DirectoryContract,
    LeaseContract,
    OutboxContract,
    SearchContract,
    TenantContract,
    TextContract,
    RaceContract,
    HealthContract,
):
    """Everything that a store promises; a subclass opens the store."""
