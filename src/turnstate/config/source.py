"""Configuration files: read once and safely, then parsed and checked.

A workspace may be anything that someone unpacked. Its files are opened by descriptor from the folder down,
without following links or waiting for a pipe, and at most `MAX_BYTES` are read. The bytes that are hashed for
approval are the bytes that are parsed. The user's own files are in ``TURNSTATE_HOME``; they may be links,
since that is how people share them between machines.

An unknown key is an error that suggests the likely one: otherwise a misspelled key would silently have no
effect.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import tomllib
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from .. import files, folder_gate
from ..errors import InputError
from ..home import check_own

MAX_BYTES = 262_144
"""Maximum size of a file; the longest prompts that people write have a tenth of it."""

MAX_FILES = 1_000
"""Maximum number of names to list in a folder."""

_DEEPEST_KEY = 32
_READING = folder_gate.READING | os.O_NONBLOCK | os.O_NOCTTY
_NOT_A_FILE = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}

# The parser takes quadratic time for a key with many parts: a key of 10 kB takes seconds.
_DEEP_KEY = re.compile(
    r"""(?<![A-Za-z0-9_-])(?:(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){"""
    f"{_DEEPEST_KEY}}}"
)

Place = Literal["workspace", "user"]
T = TypeVar("T")


class ConfigFile(Struct, frozen=True, kw_only=True):
    """The bytes of a file; it is ``foreign`` if its owner is neither this user nor root."""

    path: Path
    name: str
    content: bytes
    place: Place
    foreign: bool = False

    def document(self) -> dict[str, Any]:
        """Parse the bytes; raise `InputError` if they are not TOML or contain a NUL character."""
        try:
            text = self.content.decode("utf-8")
            if deep := _DEEP_KEY.search(text):
                line = text.count("\n", 0, deep.start()) + 1
                raise InputError(f"{self.name}: a key in line {line} has more than {_DEEPEST_KEY} parts")
            document = tomllib.loads(text)
            _refuse_nul(document, self.name)
        except RecursionError:
            raise InputError(f"{self.name}: is nested too deeply") from None
        except InputError:
            raise
        except ValueError as error:  # also raised for a number with thousands of digits
            raise InputError(f"{self.name}: is not TOML: {error}") from None
        return document


def read(folder: Path, *names: str, place: Place) -> ConfigFile | None:
    """Return a file below a folder, or None if there is none; raise `InputError` if it cannot be used."""
    shown = os.path.join(*names)
    opened = list[int]()
    try:
        opened.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        for name in names[:-1]:
            opened.append(_entered(opened[-1], name, place))
        refuse_links = os.O_NOFOLLOW if place == "workspace" else 0
        with folder_gate.opened(names[-1], _READING | refuse_links, folder=opened[-1]) as file:
            content, owner = _bytes(file, shown)
            if place == "user":  # by everyone only: a text editor may let the user's own group write
                check_own(folder.joinpath(*names), os.fstat(file), writers=stat.S_IWOTH)
    except FileNotFoundError:
        return None
    except OSError as error:
        link = error.errno in (errno.ELOOP, errno.ENOTDIR)
        reason = "it is a link, or goes through one" if link else error.strerror or str(error)
        raise InputError(f"{shown}: cannot be read: {reason}") from None
    finally:
        for descriptor in opened:
            os.close(descriptor)
    path = Path(os.path.realpath(folder)).joinpath(*names)
    foreign = place == "workspace" and owner not in (0, os.geteuid())
    return ConfigFile(path=path, name=shown, content=content, place=place, foreign=foreign)


def read_folder(folder: Path, *names: str, place: Place) -> list[str]:
    """Return the names of the TOML files in a subfolder, sorted and without the suffix."""
    opened = list[int]()
    try:
        opened.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        for name in names:
            opened.append(_entered(opened[-1], name, place))
        with os.scandir(opened[-1]) as entries:
            found = [entry.name for _, entry in zip(range(MAX_FILES), entries, strict=False)]
    except OSError:
        return []
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))


def checked(document: dict[str, Any], kind: type[T], *, where: str) -> T:
    """Convert a document to a type; raise `InputError` for an unknown key or a wrong value."""
    _check_keys(document, kind, where, "")
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        said, _, at = str(error).partition(" - at `$.")
        key = f"{at.removesuffix('`')}: " if at else ""
        raise InputError(f"{where}: {key}{said[:1].lower()}{said[1:].removesuffix(' - at `$`')}") from None


def suggestion(name: str, known: Any) -> str:
    """Return "; did you mean …?" if a known name is spelled similarly, else an empty string."""
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _entered(above: int, name: str, place: Place) -> int:
    if place == "workspace":
        return files.enter(above, name)
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=above)


def _bytes(descriptor: int, shown: str) -> tuple[bytes, int]:
    """Return the bytes of an open file and its owner."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        kind = _NOT_A_FILE.get(stat.S_IFMT(status.st_mode), "a device")
        raise InputError(f"{shown}: cannot be read: it is {kind}")
    data = bytearray()
    while len(data) <= MAX_BYTES and (piece := os.read(descriptor, MAX_BYTES + 1 - len(data))):
        data += piece
    if len(data) > MAX_BYTES:
        raise InputError(f"{shown}: has more than {MAX_BYTES:,} bytes, which no configuration needs")
    return bytes(data), status.st_uid


def _refuse_nul(value: Any, where: str) -> None:
    match value:
        case str() if "\0" in value:
            raise InputError(f"{where}: a text contains a NUL character")
        case dict():
            for name, one in value.items():
                _refuse_nul(name, where)
                _refuse_nul(one, where)
        case list():
            for one in value:
                _refuse_nul(one, where)
        case _:
            pass


def _check_keys(document: Any, kind: Any, where: str, above: str) -> None:
    """Raise `InputError` for keys that a struct, or a struct nested in it, does not have."""
    if isinstance(document, dict) and isinstance(kind, type) and issubclass(kind, Struct):
        hints = get_type_hints(kind)
        for name, value in document.items():
            if name not in kind.__struct_encode_fields__:
                known = kind.__struct_encode_fields__
                advice = suggestion(name, known) or f"; the keys are {', '.join(known)}"
                raise InputError(f"{where}: there is no setting {above + name!r:.80}{advice}")
            field = kind.__struct_fields__[kind.__struct_encode_fields__.index(name)]
            _check_keys(value, hints[field], where, f"{above}{name}.")
        return
    inner = get_args(kind)
    if isinstance(document, dict) and get_origin(kind) is dict:
        for name, value in document.items():
            _check_keys(value, inner[1], where, f"{above}{name}.")
    elif isinstance(document, list) and get_origin(kind) in (tuple, list):
        for value in document:
            _check_keys(value, inner[0], where, above)
    elif inner and get_origin(kind) not in (dict, tuple, list):  # a union of types
        for one in inner:
            with suppress(TypeError):
                _check_keys(document, one, where, above)
