"""Whose sessions a command works on: the store, the tenant, and a user where only theirs are meant.

Looking makes nothing: where one's own store was never used it is empty, and a file that somebody
named and that is not there is an error rather than a new file.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import click

from ..errors import StoreUnavailable
from .store_option import default_store, opened, shown_url, store_option

if TYPE_CHECKING:
    from ..session import SessionManager
    from ..stores.port import Store

__all__ = ["DEFAULT_TENANT", "as_json", "existing", "file_of", "managed", "tenant_option", "user_option"]

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

DEFAULT_TENANT = "default"


def tenant_option(command: Decorated) -> Decorated:
    """Add the options that say where sessions are kept and whose they are."""
    text = "Whose sessions, where several share a store."
    option = click.option("--tenant", metavar="NAME", default=DEFAULT_TENANT, show_default=True, help=text)
    return store_option(option(command))


def user_option(command: Decorated) -> Decorated:
    """Add the option that leaves all sessions but one user's out."""
    return click.option("--user", metavar="NAME", help="Only sessions of this user.")(command)


def as_json(text: str) -> Callable[[Decorated], Decorated]:
    """Make the switch for output that programs read."""
    return click.option("--json", "as_json", is_flag=True, help=text)


@asynccontextmanager
async def managed(url: str, tenant: str) -> AsyncIterator[SessionManager]:
    """Open the sessions of a store that is there."""
    from ..session import SessionManager  # only now: help does not need it

    async with existing(url) as store:
        yield SessionManager(store, tenant=tenant)


@asynccontextmanager
async def existing(url: str) -> AsyncIterator[Store]:
    """Open a store that is there; one's own, where it is not there yet, is empty."""
    path = file_of(url)
    missing = path is not None and not os.path.exists(path)
    if missing and url != default_store():
        raise StoreUnavailable(f"there is no file {path} as {shown_url(url)} says; check --store")
    async with opened("memory:" if missing else url) as store:
        yield store


def file_of(url: str) -> str | None:
    """Give the path that a URL of an SQLite file names."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None  # the store refuses it, and says what to write
    is_file = parts.scheme == "sqlite" and not parts.netloc
    return unquote(parts.path).removeprefix("/") or None if is_file else None
