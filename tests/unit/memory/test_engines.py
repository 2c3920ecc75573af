from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.memory.offload import evicted, said, session_record
from turnstate.errors import InputError, UnknownName
from turnstate.memory import User, open_engine
from turnstate.memory.builtin import BuiltinEngine
from turnstate.memory.engines import NoEngine, known_engines
from turnstate.stores.values import Address

pytestmark = pytest.mark.req("F1")

MODULE = """
from turnstate.memory.engines import NoEngine

class Elsewhere(NoEngine):
    def __init__(self, address):
        self.address = address

async def connect(address):
    return Elsewhere(address)
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package that offers engines."""
    (tmp_path / "elsewhere_engine.py").write_text(MODULE)
    (tmp_path / "broken_engine.py").write_text("import no_such_module_at_all")
    info = tmp_path / "elsewhere-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    points = [
        "[turnstate.memory]",
        "elsewhere = elsewhere_engine:connect",
        "broken = broken_engine:connect",
        "builtin = elsewhere_engine:connect",
    ]
    (info / "entry_points.txt").write_text("\n".join(points))
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("elsewhere_engine", "broken_engine"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def opened(name: str) -> Any:
    return asyncio.run(open_engine(name))


def test_a_removed_engine_names_what_to_use_instead(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="the memory engine jsonl was removed; use builtin:PATH"):
        opened(f"jsonl:{tmp_path}/memory")
    assert list(tmp_path.iterdir()) == []


def test_none_is_built_in_and_remembers_nothing() -> None:
    async def test() -> None:
        engine = await open_engine("none")
        assert isinstance(engine, NoEngine)
        await engine.ingest(session_record(said("tea")))
        await engine.archive(evicted(said("tea")), "")
        user = User("default", "u1")
        assert (await engine.profile(user), await engine.search(user, "tea", 3)) == ("", [])
        assert await engine.forget(user) == await engine.forget(Address("default", "s1")) == 0
        await engine.close()

    asyncio.run(test())


@pytest.mark.usefixtures("installed")
def test_an_installed_package_offers_an_engine_by_its_entry_point() -> None:
    assert opened("elsewhere:tcp://host:1/x").address == "tcp://host:1/x"
    assert opened("elsewhere").address == ""


@pytest.mark.usefixtures("installed")
def test_no_package_takes_the_name_of_a_built_in_engine() -> None:
    assert isinstance(opened("builtin:"), BuiltinEngine)


@pytest.mark.usefixtures("installed")
def test_an_unknown_name_is_an_error_that_lists_the_known_ones() -> None:
    assert known_engines() == ["none", "builtin", "broken", "elsewhere"]
    with pytest.raises(UnknownName, match="'parrot'; known engines: none, builtin, broken, elsewhere"):
        opened("parrot:x")


@pytest.mark.usefixtures("installed")
def test_an_engine_that_cannot_be_loaded_is_told() -> None:
    with pytest.raises(InputError, match=r"broken .* cannot be loaded: ModuleNotFoundError"):
        opened("broken")


def test_a_wrong_address_is_told() -> None:
    with pytest.raises(InputError, match="takes no address"):
        opened("none:x")
