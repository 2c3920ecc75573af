"""``turnstate doctor``: check this installation, one line per check."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from ... import tokens
from ..._version import __version__
from ...config.effects import file_of, shown_url
from ...errors import TurnstateError
from ...home import Home
from ...terminal import screen
from ...terminal.screen import styled
from .. import documents
from ..options import json_option
from ..store import opened, store_option

Result = Literal["ok", "warning", "failed"]

MIN_PYTHON = (3, 11)
GIT_TIMEOUT = 10.0  # seconds for `git --version`
SAMPLE = "Never lose a message. 会話を失わない。 👩‍👩‍👧 don't <|endoftext|> 1234567\n\tend()"
SAMPLE_TOKENS = {"cl100k_base": 41, "o200k_base": 35}  # by tiktoken
TIKTOKEN_FILES = "https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"
MEANINGS: dict[str, tuple[Result, str]] = {
    "fsync": ("ok", "acknowledged writes survive a power cut"),
    "best_effort": ("warning", "a power cut may lose the last acknowledged writes"),
    "memory": ("warning", "everything is lost when the process ends"),
}
MAX_NAMED = 5  # files to name; the others are only counted
WANTED = {"journal_mode": "wal", "synchronous": "FULL"}
FOREIGN = "may run with the privileges of every user of the store; drop what you do not know"


@dataclass(frozen=True)
class Check:
    """The result of checking one thing."""

    name: str
    result: Result
    text: str


async def checks(store: str) -> AsyncIterator[Check]:
    """Run all checks, one after another."""
    yield _python()
    yield Check("turnstate", "ok", __version__)
    yield _sqlite()
    async for check in _store(store):
        yield check
    for check in _counters():
        yield check
    yield _git()
    yield _home()
    for check in _home_permissions():
        yield check


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    least = ".".join(map(str, MIN_PYTHON))
    good = sys.version_info >= MIN_PYTHON
    return Check(
        "python", "ok" if good else "failed", found if good else f"{found}; {least} or newer is required"
    )


def _sqlite() -> Check:
    try:
        import apsw

        from ...stores.sqlite.connection import LEAST_SQLITE
    except ImportError as error:
        return Check("sqlite", "failed", f"{error}; install apsw")
    found, least = apsw.sqlite_lib_version(), ".".join(map(str, LEAST_SQLITE))
    if tuple(int(number) for number in found.split(".")) >= LEAST_SQLITE:
        return Check("sqlite", "ok", found)
    text = f"{found} can damage databases in WAL mode; install an apsw with SQLite {least} or newer"
    return Check("sqlite", "failed", text)


async def _store(url: str) -> AsyncIterator[Check]:
    path, shown = file_of(url), shown_url(url)
    if path is not None and not os.path.exists(path):
        yield _missing(path, shown)
        return
    if path is not None:
        yield _permissions("store.permissions", _files_of(path))
    try:
        async with opened(url) as store:
            durability, facts = store.durability, await store.facts()
    except TurnstateError as error:
        yield Check("store", "failed", f"{shown}: {error}")
        return
    yield Check("store", "ok", shown)
    result, meaning = MEANINGS[durability]
    yield Check("durability", result, f"{durability}: {meaning}")
    for name, text in facts.items():
        if name != "store":  # the URL already shows it
            yield _fact(name, text)


def _files_of(path: str) -> list[str]:
    """Return the existing files of an SQLite store."""
    names = [path, *(f"{path}{suffix}" for suffix in ("-wal", "-shm", "-journal", ".salvaged"))]
    return [name for name in names if os.path.exists(name)]


def _permissions(name: str, paths: Sequence[str | Path]) -> Check:
    """Warn about files and folders that every user of this machine may read or write."""
    wide = [str(path) for path in paths if os.stat(path).st_mode & stat.S_IRWXO]
    if not wide:
        return Check(name, "ok", "not accessible to other users")
    shown = " ".join(map(shlex.quote, wide[:MAX_NAMED]))
    more = f" and {len(wide) - MAX_NAMED} more" if len(wide) > MAX_NAMED else ""
    return Check(name, "warning", f"accessible to every user of this machine: run chmod o-rwx {shown}{more}")


def _fact(name: str, text: str) -> Check:
    if name == "foreign" and text != "none":
        return Check("store.foreign", "warning", f"{text}: not made by Turnstate, and {FOREIGN}")
    wanted = WANTED.get(name, text)
    shown = text if text == wanted else f"{text}, and should be {wanted}"
    return Check(f"store.{name}", "ok" if text == wanted else "failed", shown)


def _missing(path: str, shown: str) -> Check:
    """Check that a missing store can be created when it is first used."""
    folder = next((parent for parent in Path(path).absolute().parents if parent.exists()), Path("/"))
    if folder.is_dir() and os.access(folder, os.W_OK):
        return Check("store", "ok", f"{shown}: does not exist yet; the first session creates it")
    return Check("store", "failed", f"{shown}: does not exist, and {folder} is not writable")


def _counters() -> Iterator[Check]:
    for name, known in SAMPLE_TOKENS.items():
        try:
            counted = tokens.counter(name).count(SAMPLE)
        except ImportError as error:
            yield Check(name, "failed", f"the tokenizer cannot be loaded ({error}): reinstall toktok-rs")
            continue
        theirs = _by_tiktoken(name)
        wanted = known if theirs is None else theirs
        if counted.tokens == wanted:
            compared = "" if theirs is None else "; counts as tiktoken does"
            yield Check(name, "ok", f"loads offline ({counted.quality}){compared}")
        else:
            wrong = f"counts {counted.tokens} tokens where tiktoken counts {wanted}"
            yield Check(name, "failed", f"{wrong}: reinstall toktok-rs")


def _by_tiktoken(name: str) -> int | None:
    """Count the sample with tiktoken, if it is installed and has downloaded this vocabulary before."""
    cache = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    folder = Path(tempfile.gettempdir(), "data-gym-cache") if cache is None else Path(cache)
    url = TIKTOKEN_FILES.format(name=name)
    if cache == "" or not (folder / hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()).exists():
        return None
    try:
        import tiktoken

        return len(tiktoken.get_encoding(name).encode(SAMPLE, disallowed_special=()))
    except (ImportError, OSError, ValueError):  # not installed, or not usable, which is no fault of ours
        return None


def _git() -> Check:
    program = shutil.which("git")
    if program is None:
        return Check("git", "warning", "not found; checkpoints need it")
    try:
        line = [program, "--version"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=GIT_TIMEOUT, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return Check("git", "warning", f"{program} does not run: {error}")
    return Check("git", "ok", done.stdout.strip().removeprefix("git version "))


def _home() -> Check:
    try:
        path = Home.from_environment().path
    except TurnstateError as error:
        return Check("home", "failed", str(error))
    if not path.exists():
        folder = next((parent for parent in path.parents if parent.exists()), path)
        if os.access(folder, os.W_OK):
            return Check("home", "ok", f"{path}: does not exist yet; created when needed")
        return Check(
            "home", "failed", f"{path}: does not exist, and {folder} is not writable; set TURNSTATE_HOME"
        )
    try:
        with tempfile.TemporaryFile(dir=path):
            return Check("home", "ok", str(path))
    except OSError as error:
        return Check("home", "failed", f"{path}: {error.strerror or error}; set TURNSTATE_HOME")


def _home_permissions() -> Iterator[Check]:
    """Check the home folder and its direct contents; deeper files are protected by these folders."""
    with suppress(TurnstateError, OSError):
        path = Home.from_environment().path
        if path.is_dir():
            yield _permissions("home.permissions", [path, *sorted(path.iterdir())])


EXIT_CODES = """\b
Exit codes:
  0  success
  1  a check failed
  2  bad usage, or input that cannot be read
"""


@click.command("doctor", epilog=EXIT_CODES)
@store_option
@json_option("Print one JSON object per check.")
def command(store: str, as_json: bool) -> int:
    """Check this installation: Python, SQLite, the store, the counters, git, the home folder.

    Nothing is changed, and the network is not used except for the store itself. Warnings do not
    affect the exit code.

    \b
    Example:
      turnstate doctor
      turnstate doctor --store sqlite:///agent.db --json

    \b
    With --json, one object per check:
      name
      result  ok, warning or failed
      text    what was found, and what to do
    """
    return asyncio.run(_run_checks(store, as_json=as_json))


async def _run_checks(store: str, *, as_json: bool) -> int:
    failed = False
    async for check in checks(store):
        failed |= check.result == "failed"
        _show(check, as_json=as_json)
    return 1 if failed else 0


def _show(check: Check, *, as_json: bool) -> None:
    if as_json:
        screen.show(documents.compact({"name": check.name, "result": check.result, "text": check.text}))
    else:
        result = styled(f"{check.result:<7}", bold=check.result != "ok")
        screen.show(f"{result}  {check.name:<19}  {screen.escaped(check.text)}")
    screen.flush()
