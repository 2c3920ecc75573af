"""The contract is worth something only if it catches stores that break it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.broken_stores import BROKEN
from turnstate.errors import TurnstateError
from turnstate.stores.memory import MemoryStore
from turnstate.stores.port import Store
from turnstate.testing import StoreContract


def held_to(kind: type[MemoryStore], name: str) -> None:
    """Run one test of the contract on a store of a kind."""

    class Contract(StoreContract):
        def __init__(self) -> None:
            self.store = kind()

        async def connect(self) -> Store:
            return self.store

    getattr(Contract(), name)()


@pytest.mark.req("G4", "G5", "G6")
@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.__name__) for kind in BROKEN])
def test_a_planted_bug_is_caught_by_the_test_that_names_its_promise(kind: Any) -> None:
    held_to(MemoryStore, kind.caught_by)
    with pytest.raises((AssertionError, TurnstateError)):
        held_to(kind, kind.caught_by)


def test_a_contract_without_a_store_says_what_is_missing() -> None:
    with pytest.raises(NotImplementedError, match="connect"):
        StoreContract().test_an_unknown_session_is_not_found()


def test_the_contract_needs_no_plugin_and_no_fixtures() -> None:
    for name in (name for name in dir(StoreContract) if name.startswith("test_")):
        method = getattr(StoreContract, name)
        assert method.__code__.co_varnames[: method.__code__.co_argcount] == ("self",), name
