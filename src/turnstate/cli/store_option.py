"""Which store a command works on: the flag, else the environment, else ``turnstate.toml``, else one's own.

A ``turnstate.toml`` may have come with somebody else's files, so a store that it names on another
machine is told before it is used.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import click

from ..errors import InputError, NewerFormat, StoreUnavailable
from . import screen

if TYPE_CHECKING:
    from ..stores.port import Store

__all__ = ["EXIT_CODES", "SETTINGS", "VARIABLE", "default_store", "opened", "shown_url", "store_option"]

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
