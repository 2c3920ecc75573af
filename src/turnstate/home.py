"""The installation's own folder, outside every workspace, and the key that is kept in it.

`TURNSTATE_HOME` names it, else it is `$XDG_DATA_HOME/turnstate`, else `~/.local/share/turnstate`.
Looking makes nothing: the folder and the key appear when something is first to be kept or signed.
With the key this installation marks what it wrote where others can write too. A signature names its
purpose, so that what was signed for one use is worth nothing in another.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

from . import files
from .errors import HomeUnusable

__all__ = ["KEY_FILE", "SNAPSHOT_FOLDER", "Home", "Key"]

SNAPSHOT_FOLDER = ".openstarry/snapshots"
"""Where a workspace keeps its snapshots, relative to its root."""

KEY_FILE = "key"
KEY_BYTES = 32


class Key:
    """The secret of an installation; it signs and checks, and is never shown."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, purpose: str, *pieces: bytes | memoryview) -> str:
        """Sign the pieces, told apart, for one purpose: 64 hexadecimal digits."""
        signature = hmac.new(self._secret, digestmod=hashlib.sha256)
        for piece in (purpose.encode(), *pieces):
            signature.update(len(piece).to_bytes(8, "big"))
            signature.update(piece)
        return signature.hexdigest()

    def signed(self, signature: str, purpose: str, *pieces: bytes | memoryview) -> bool:
        """Tell a signature that this key made for this purpose from any other text."""
        return hmac.compare_digest(self.sign(purpose, *pieces).encode(), signature.encode())


class Home:
    """The installation's folder: where it is, and what it keeps for everybody."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))

    @classmethod
    def from_environment(cls) -> Home:
        """Find the folder that the environment names, or the usual one."""
        if named := os.environ.get("TURNSTATE_HOME"):
            return cls(_expanded(named))
        data = os.environ.get("XDG_DATA_HOME", "")
        return cls(Path(data if os.path.isabs(data) else _expanded("~/.local/share")) / "turnstate")

    def make(self) -> Path:
        """Make the folder, private to its owner, unless it is there."""
        try:
            files.make_folder(self.path)
        except OSError as error:
            raise _unusable(self.path, error) from error
        if not self.path.is_dir():
            raise HomeUnusable(f"{self.path} is not a folder; set TURNSTATE_HOME to one of your own")
        return self.path

    def key(self) -> Key:
        """Return the key of this installation. The first use creates it; of several processes, one wins."""
        return self.known_key() or self._new_key()

    def known_key(self) -> Key | None:
        """Return the key if there is one already."""
        path = self.path / KEY_FILE
        try:
            with path.open("rb") as file:
                secret = file.read(KEY_BYTES + 1)
                wide = os.fstat(file.fileno()).st_mode & 0o077
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(path, error) from error
        if len(secret) != KEY_BYTES:
            raise HomeUnusable(
                f"the key {path} does not have {KEY_BYTES} bytes; put it back from a backup, or remove it "
                "for a new one, to which everything written so far is foreign"
            )
        if wide:
            with suppress(OSError):  # a key that somebody mounted read-only keeps the mode they chose
                path.chmod(files.FILE_MODE)
        return Key(secret)

    def _new_key(self) -> Key:
        try:
            with files.open_folder(self.make()) as folder:
                _place_once(KEY_FILE, secrets.token_bytes(KEY_BYTES), folder)
        except OSError as error:
            raise _unusable(self.path / KEY_FILE, error) from error
        key = self.known_key()
        if key is None:
            raise HomeUnusable(f"the key {self.path / KEY_FILE} went away as soon as it was made")
        return key


def _place_once(name: str, data: bytes, folder: int) -> None:
    """Return a whole file its name unless the name is taken: of several at once, the first wins."""
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
            "nobody's home folder is known here; set TURNSTATE_HOME to an absolute path"
        ) from None


def _unusable(path: Path, error: OSError) -> HomeUnusable:
    return HomeUnusable(f"{path}: {error.strerror or error}; set TURNSTATE_HOME to a folder of your own")
