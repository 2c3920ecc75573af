"""Real PgBouncer processes in front of the PostgreSQL server of the tests.

No package of PyPI has the program. It is taken from the path; where tests run as root on a machine with
`apt-get`, as in CI, it is installed first. Otherwise `missing` says why the tests are skipped.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.harness.postgres_server import PATIENCE, _identity, _user, execute, local_server, with_settings

PORT = 6432
POOL = 2
"""Connections to the server: fewer than the clients that share them."""


@cache
def program() -> str | None:
    """Return the path of the program, installing it if that is possible."""
    if (found := _found()) or os.geteuid() or not shutil.which("apt-get"):
        return found
    with open(Path(tempfile.gettempdir()) / "turnstate-pgbouncer.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", "pgbouncer"]):
            if _found():
                break
            environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run(command, env=environment, capture_output=True, check=False)
    return _found()


def _found() -> str | None:
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def missing() -> str:
    """Return why there is no PgBouncer; empty if there is one."""
    return "" if program() else "PgBouncer is not installed: apt-get install pgbouncer"


class PgBouncer:
    """A pooler with a socket in its own temporary folder."""

    def __init__(self, mode: str = "transaction", **settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="turnstate-pgbouncer-"))
        user = _user()
        lines = {
            "listen_addr": "",
            "listen_port": str(PORT),
            "unix_socket_dir": str(self.folder),
            "auth_type": "any",
            "pool_mode": mode,
            "default_pool_size": str(POOL),
            "max_client_conn": "200",
            "logfile": str(self.folder / "log"),
            "pidfile": str(self.folder / "pid"),
        } | settings
        databases = f"[databases]\n* = host={local_server().folder} user=postgres\n"
        text = "\n".join(f"{name} = {value}" for name, value in lines.items())
        (self.folder / "pgbouncer.ini").write_text(f"{databases}[pgbouncer]\n{text}\n")
        if user:
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        self.folder.chmod(0o755)
        command = [str(program()), "-q", str(self.folder / "pgbouncer.ini")]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **_identity(user))
        atexit.register(self.remove)
        deadline = time.monotonic() + PATIENCE
        while not (self.folder / f".s.PGSQL.{PORT}").exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.01)

    def remove(self) -> None:
        """Stop the pooler, and remove its folder."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE)
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.remove)

    def url(self, **settings: str) -> str:
        """Return the URL of the server's database through the pooler."""
        return with_settings(
            "postgresql://postgres@/postgres", host=str(self.folder), port=str(PORT), **settings
        )


@contextmanager
def pooled_url(bouncer: PgBouncer, name: str, **settings: str) -> Iterator[str]:
    """Yield the URL of an empty store behind a pooler, and drop it afterwards."""
    schema = f"pooled_{os.getpid()}_{name}"
    try:
        yield bouncer.url(schema=schema, **settings)
    finally:
        for one in (schema, f"{schema}_memory"):
            execute(f"DROP SCHEMA IF EXISTS {one} CASCADE")
