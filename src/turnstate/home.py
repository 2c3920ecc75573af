"""The installation's own folder, outside every workspace, and its signing key.

`TURNSTATE_HOME` names the folder; the default is `$XDG_DATA_HOME/turnstate`, or else
`~/.local/share/turnstate`. Reading never creates it: folder and key are created when something is first
stored or signed. The key marks what this installation wrote in places where others can write too. A
signature covers its purpose, so a signature for one use is invalid for another. A key or a document that
other users can write is refused: whoever wrote it could sign and approve in the user's name.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import shlex
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from . import files, strict_json
from .errors import HomeUnusable, InputError

__all__ = ["KEY_FILE", "Home", "HomeDocument", "SigningKey", "check_own"]

KEY_FILE = "key"
KEY_BYTES = 32

T = TypeVar("T")

_LOCK_SECONDS = 5.0


class SigningKey:
    """The secret key of an installation, which signs and verifies and is never shown."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, purpose: str, *pieces: bytes | memoryview) -> str:
        """Sign the pieces and their boundaries for one purpose; return 64 hexadecimal digits."""
        signature = hmac.new(self._secret, digestmod=hashlib.sha256)
        for piece in (purpose.encode(), *pieces):
            signature.update(len(piece).to_bytes(8, "big"))
            signature.update(piece)
        return signature.hexdigest()

    def signed(self, signature: str, purpose: str, *pieces: bytes | memoryview) -> bool:
        """Return True if this key made the signature for this purpose."""
        return hmac.compare_digest(self.sign(purpose, *pieces).encode(), signature.encode())


class Home:
    """The installation's folder and its key."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))

    @classmethod
    def from_environment(cls) -> Home:
        """Return the home that the environment names, or the default."""
        if named := os.environ.get("TURNSTATE_HOME"):
            return cls(_expanded(named))
        data = os.environ.get("XDG_DATA_HOME", "")
        return cls(Path(data if os.path.isabs(data) else _expanded("~/.local/share")) / "turnstate")

    def make(self) -> Path:
        """Create the folder, private to its owner, unless it exists; return its path."""
        try:
            files.make_folder(self.path)
        except OSError as error:
            raise _unusable(self.path, error) from error
        if not self.path.is_dir():
            raise HomeUnusable(f"{self.path} is not a folder; set TURNSTATE_HOME to one of your own")
        return self.path

    def key(self) -> SigningKey:
        """Return the key of this installation, creating it on first use; of several processes, one wins."""
        return self.known_key() or self._new_key()

    def known_key(self) -> SigningKey | None:
        """Return the key, or None if it does not exist yet."""
        path = self.path / KEY_FILE
        try:
            with path.open("rb") as file:
                check_own(path, os.fstat(file.fileno()))
                secret = file.read(KEY_BYTES + 1)
                wide = os.fstat(file.fileno()).st_mode & 0o077
            _check_folder(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(path, error) from error
        if len(secret) != KEY_BYTES:
            raise HomeUnusable(
                f"the key {path} does not have {KEY_BYTES} bytes; restore it from a backup, or remove it "
                "to get a new one; everything written so far will then count as foreign"
            )
        if wide:  # others could read it, which is mended; what they have read, nobody can take back
            with suppress(OSError):  # a key on a read-only mount keeps its mode
                path.chmod(files.FILE_MODE)
        return SigningKey(secret)

    def _new_key(self) -> SigningKey:
        try:
            with files.open_folder(self.make()) as folder:
                _place_once(KEY_FILE, secrets.token_bytes(KEY_BYTES), folder)
        except OSError as error:
            raise _unusable(self.path / KEY_FILE, error) from error
        key = self.known_key()
        if key is None:
            raise HomeUnusable(f"the key {self.path / KEY_FILE} was removed as soon as it was created")
        return key


class HomeDocument(Generic[T]):
    """A JSON file in the home that several processes may read and change."""

    def __init__(self, home: Home, name: str, kind: type[T]) -> None:
        self._home, self._name, self._kind = home, name, kind

    def read(self) -> T:
        """Return its value; an empty value if there is no file."""
        path = self._home.path / self._name
        try:
            with path.open("rb") as file:
                check_own(path, os.fstat(file.fileno()))
                return msgspec.convert(strict_json.read(file.read()), self._kind)
        except FileNotFoundError:
            return self._kind()
        except (OSError, InputError, msgspec.ValidationError) as error:
            raise HomeUnusable(f"{path} cannot be read ({error}); correct it, or remove it") from error

    def change(self, change: Callable[[T], T]) -> None:
        """Replace the value with the result of `change`; other processes wait until this is done."""
        folder = self._home.make()
        try:
            held = files.lock(folder / f"{self._name}.lock", seconds=_LOCK_SECONDS)
            try:
                data = msgspec.json.encode(change(self.read()))
                files.replace(folder / self._name, msgspec.json.format(data, indent=2))
            finally:
                files.unlock(held)
        except (OSError, files.LockTimeout) as error:
            raise HomeUnusable(f"{folder / self._name} cannot be written: {error}") from error


def check_own(path: Path, status: os.stat_result, *, writers: int = stat.S_IWGRP | stat.S_IWOTH) -> None:
    """Raise `HomeUnusable` if others can write a file of the installation: its content may be theirs."""
    mode, me = stat.S_IMODE(status.st_mode), os.geteuid()
    if mode & writers:
        raise HomeUnusable(
            f"{path} can be written by other users (mode {mode:04o}), so its content may not be yours; if "
            f"you are sure that it is, run: chmod 600 {shlex.quote(str(path))}; otherwise remove it"
        )
    if me and status.st_uid not in (0, me):  # root may use the files of whoever started it
        raise HomeUnusable(
            f"{path} belongs to another user (uid {status.st_uid}); set TURNSTATE_HOME to your own folder"
        )


def _check_folder(path: Path) -> None:
    """Raise `HomeUnusable` if anyone can replace the files in a folder."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise HomeUnusable(
            f"the folder {path} can be written by everyone (mode {mode:04o}), so its key may not be yours; "
            f"if you are sure that it is, run: chmod 700 {shlex.quote(str(path))}"
        )


def _place_once(name: str, data: bytes, folder: int) -> None:
    """Create a file atomically unless it exists; the first of several processes wins."""
    temporary = f".{name}.{secrets.token_hex(8)}.tmp"
    files.write_new(temporary, data, folder=folder)
    try:
        with suppress(FileExistsError):
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    finally:
        os.unlink(temporary, dir_fd=folder)
    files.sync_folder(folder)


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise HomeUnusable(
            "the user's home folder is unknown; set TURNSTATE_HOME to an absolute path"
        ) from None


def _unusable(path: Path, error: OSError) -> HomeUnusable:
    return HomeUnusable(f"{path}: {error.strerror or error}; set TURNSTATE_HOME to a folder of your own")
