"""What every store promises, as tests that come with the library: prove your own store with them.

    class TestMyStore(StoreContract):
        async def connect(self) -> Store:
            return await my_store.connect(self.url)

        @pytest.fixture(autouse=True)
        def fresh(self, tmp_path):
            self.url = f"mine:{tmp_path}"

``connect`` opens an empty store, and when a test calls it again, the same one: that is how tests
restart a store, and how two workers share one. The tests are plain methods that need no plugin. A
part of the promises can be tested alone, by the contract of its name.
"""

from __future__ import annotations

from .admission import AdmissionContract
from .directory import DirectoryContract
from .health import HealthContract, TenantContract
from .leases import LeaseContract, OutboxContract
from .log import BranchContract, LogContract
from .races import RaceContract
from .search import SearchContract
from .texts import TextContract

__all__ = ["StoreContract"]


class StoreContract(
    LogContract,
    BranchContract,
    AdmissionContract,
    DirectoryContract,
    LeaseContract,
    OutboxContract,
    SearchContract,
    TenantContract,
    TextContract,
    RaceContract,
    HealthContract,
):
    """All promises of a store; a subclass says how one is opened."""
