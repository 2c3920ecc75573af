"""The memory engine of a command: the same as the worker's, so that all commands use the same memory.

The engine is the --engine flag, else TURNSTATE_MEMORY, else ``memory`` in ``turnstate.toml``, else the
built-in engine beside the store. For a Redis store, which cannot hold the memory, the built-in engine is in
the installation's folder.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..config.table import FILE, SETTINGS
from ..home import Home
from .store import setting

if TYPE_CHECKING:
    from ..memory.port import MemoryEngine

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

ENGINE_VARIABLE = SETTINGS["memory"].variable


def engine_option(command: Decorated) -> Decorated:
    """Add the option for the memory engine."""
    text = f"Memory engine.  [default: ${ENGINE_VARIABLE}, {FILE}, or builtin]"
    return click.option("--engine", metavar="NAME", envvar=ENGINE_VARIABLE, help=text)(command)


def engine_name(store: str, given: str | None) -> str:
    """Return the name of the engine with its address."""
    from ..memory.engines import BUILTIN, beside  # deferred: help does not need it

    name = given or setting("memory") or BUILTIN
    if name == BUILTIN and store.startswith("redis"):
        return f"{BUILTIN}:{Home.from_environment().path / 'memory.db'}"
    return beside(store, name)


@asynccontextmanager
async def opened_engine(store: str, given: str | None) -> AsyncIterator[MemoryEngine]:
    """Open the engine, create it if it is missing, and close it afterwards."""
    from ..memory.engines import open_engine

    name = engine_name(store, given)
    if str(Home.from_environment().path) in name:
        Home.from_environment().make()
    engine = await open_engine(name)
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def existing_engine(store: str, given: str | None) -> AsyncIterator[MemoryEngine]:
    """Open the engine without creating it; a memory that does not exist yet is empty."""
    kind, _, address = engine_name(store, given).partition(":")
    path = address.partition("?")[0].removeprefix("sqlite:///")
    is_file = kind == "builtin" and "://" not in address
    async with opened_engine(
        store, "none" if is_file and path and not os.path.exists(path) else given
    ) as engine:
        yield engine
