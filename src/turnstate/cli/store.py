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

if TYPE_CHECKING:
    from ..session import SessionManager
    from ..stores.port import Store
import tomllib
from pathlib import Path
from urllib.parse import quote

from ..cli_kit import screen
from ..errors import InputError, NewerFormat

if TYPE_CHECKING:
    from ..stores.port import Store

__all__ = [
    "DEFAULT_TENANT",
    "EXIT_CODES",
    "SETTINGS",
    "VARIABLE",
    "as_json",
    "default_store",
    "existing",
    "file_of",
    "managed",
    "opened",
    "shown_url",
    "store_option",
    "tenant_option",
    "user_option",
]

# Which store a command works on: the flag, else the environment, else ``turnstate.toml``, else one's own.


Decorated = TypeVar("Decorated", bound=Callable[..., Any])

VARIABLE = "TURNSTATE_STORE"
SETTINGS = "turnstate.toml"
LOCAL = ("sqlite:", "memory:")

EXIT_CODES = """\b
Exit codes:
  0  good
  1  not found, refused or failed
  2  bad usage, or input that cannot be read
  3  the store cannot be used
"""


def store_option(command: Decorated) -> Decorated:
    """Add the option that says where the sessions are kept, as a URL in ``store``."""
    text = f"Where sessions are kept.  [default: ${VARIABLE}, {SETTINGS}, or your own SQLite file]"
    option = click.option("--store", metavar="URL", envvar=VARIABLE, callback=_resolved, help=text)
    return option(command)


def default_store() -> str:
    """Name the SQLite file in the installation's own folder."""
    from ..home import Home  # only now: help does not need it

    return f"sqlite:///{quote(str(Home.from_environment().path / 'turnstate.db'))}"


def shown_url(url: str) -> str:
    """Give a URL without user, password and settings, for people and logs."""
    scheme, slashes, rest = url.partition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2].partition('?')[0]}"


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    """Open the store behind a URL and close it afterwards; one's own folder is made where it is missing."""
    from ..home import Home
    from ..stores import connect

    if url == default_store():
        Home.from_environment().make()
    try:
        store = await connect(url)
    except NewerFormat as newer:  # not a file to be read, but a store that cannot be used
        raise StoreUnavailable(newer.text) from None
    try:
        yield store
    finally:
        await store.close()


def _resolved(_ctx: click.Context, _option: click.Parameter, given: str | None) -> str:
    return given or _from_settings(Path(SETTINGS)) or default_store()


def _from_settings(path: Path) -> str | None:
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not TOML: {error}") from None
    url = settings.get("store")
    if url is None or url == "":
        return None
    if not isinstance(url, str):
        raise InputError(f'{path}: write store = "URL", a text', path="store")
    if not url.startswith(LOCAL):
        screen.say(f"{path} in {os.getcwd()} names the store {shown_url(url)}")
    return url


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
