"""The store, tenant and user that a command works on.

The store is the --store flag, else TURNSTATE_STORE, else ``turnstate.toml`` in the current folder or in the
installation's own folder, else the SQLite file there. Read-only commands never create a store: the default
store counts as empty until it is first written, and any other missing file is an error.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..config.effects import file_of, shown_url
from ..config.settings import Settings
from ..config.table import FILE, SETTINGS, default_store
from ..errors import NewerFormat, StoreUnavailable

if TYPE_CHECKING:
    from ..session import SessionManager
    from ..stores.port import Store

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

STORE_VARIABLE = SETTINGS["store"].variable
DEFAULT_TENANT = "default"
MEMORY = ":memory:"  # not a file; the store refuses it with advice

EXIT_CODES = """\b
Exit codes:
  0  success
  1  not found, refused or failed
  2  bad usage, or input that cannot be read
  3  the store cannot be used
"""


def setting(key: str) -> str | None:
    """Return a setting from the files, for an option that neither a flag nor the environment sets."""
    return Settings.load(environment={}).text(key)


def store_option(command: Decorated) -> Decorated:
    """Add the option for the store, passed on as a URL in ``store``."""
    return _store_option(command, envvar=STORE_VARIABLE, callback=_resolved)


def tenant_option(command: Decorated) -> Decorated:
    """Add the options for the store and the tenant."""
    return store_option(_tenant_option(command))


def store_flags(command: Decorated) -> Decorated:
    """Add the options for the store and the tenant; ``store`` is None unless the flag is given.

    For a command that asks the user to approve the files before it takes a setting from them.
    """
    return _store_option(_tenant_option(command))


def _store_option(command: Decorated, **settings: Any) -> Decorated:
    text = f"URL of the store.  [default: ${STORE_VARIABLE}, {FILE}, or your own SQLite file]"
    return click.option("--store", metavar="URL", help=text, **settings)(command)


def _tenant_option(command: Decorated) -> Decorated:
    text = "Tenant that the sessions belong to."
    option = click.option("--tenant", metavar="NAME", default=DEFAULT_TENANT, show_default=True, help=text)
    return option(command)


def user_option(command: Decorated) -> Decorated:
    """Add the option that restricts a command to one user's sessions."""
    return click.option("--user", metavar="NAME", help="Only sessions of this user.")(command)


@asynccontextmanager
async def opened(url: str, *, to_read: bool = False) -> AsyncIterator[Store]:
    """Open a store and close it afterwards; create the installation's folder if needed.

    One that is only read is left as it is: the files of a killed process are evidence, and another process
    may be writing.
    """
    from ..home import Home
    from ..stores import connect, connect_to_read

    if url == default_store():
        Home.from_environment().make()
    try:
        store = await (connect_to_read if to_read else connect)(url)
    except NewerFormat as newer:  # here it means an unusable store, not a bad input file
        raise StoreUnavailable(newer.text) from None
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def existing(url: str, *, to_read: bool = False) -> AsyncIterator[Store]:
    """Open a store without creating it; a missing default store counts as empty."""
    path = file_of(url)
    missing = path is not None and path != MEMORY and not os.path.exists(path)
    if missing and url != default_store():
        raise StoreUnavailable(
            f"{shown_url(url)}: the file {path} does not exist; check --store, or import sessions into it"
        )
    async with opened("memory:" if missing else url, to_read=to_read) as store:
        yield store


@asynccontextmanager
async def managed(url: str, tenant: str, *, to_read: bool = False) -> AsyncIterator[SessionManager]:
    """Open the sessions of an existing store."""
    from ..session import SessionManager  # deferred: help does not need it

    async with existing(url, to_read=to_read) as store:
        yield SessionManager(store, tenant=tenant)


def _resolved(_ctx: click.Context, _option: click.Parameter, given: str | None) -> str:
    return given or setting("store") or default_store()
