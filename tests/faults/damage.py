"""Ways to damage the files of a store; each changes a file and returns a description."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random

Damage = Callable[[Path, Random], str]

PAGE = 4096


def _flip(path: Path, random: Random, first: int = 0, last: int | None = None) -> str:
    data = bytearray(path.read_bytes())
    place = random.randrange(first, last or _used(data))
    data[place] ^= random.randrange(1, 256)
    path.write_bytes(data)
    return f"{path.name}: byte {place} of {len(data)} changed"


def _used(data: bytes | bytearray) -> int:
    """Return the length without the zeros that a WAL is grown by."""
    return max(1, len(data.rstrip(b"\0")))


def flip_a_byte(path: Path, random: Random) -> str:
    """Change one byte anywhere."""
    return _flip(path, random)


def flip_a_byte_of_the_header(path: Path, random: Random) -> str:
    """Change one byte of the first hundred."""
    return _flip(path, random, 0, 100)


def flip_a_body(path: Path, random: Random) -> str:
    """Change one character of a stored message, so that it is still good JSON."""
    data = path.read_bytes()
    places = [place for place in range(len(data)) if data.startswith(b'"told-', place)]
    place = random.choice(places) + 1
    path.write_bytes(data[:place] + b"s" + data[place + 1 :])
    return f"{path.name}: the text at byte {place} changed"


def blank_a_page(path: Path, random: Random) -> str:
    """Write zeros over one page."""
    data = bytearray(path.read_bytes())
    page = random.randrange(len(data) // PAGE)
    data[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
    path.write_bytes(data)
    return f"{path.name}: page {page} blanked"


def scramble_a_stretch(path: Path, random: Random) -> str:
    """Write random bytes over up to a thousand."""
    data = bytearray(path.read_bytes())
    place, size = random.randrange(_used(data)), random.randrange(1, 1_000)
    data[place : place + size] = random.randbytes(min(size, len(data) - place))
    path.write_bytes(data)
    return f"{path.name}: {size} bytes from {place} on scrambled"


def cut_off_the_end(path: Path, random: Random) -> str:
    """Shorten the file, at a page or anywhere."""
    size = random.randrange(_used(path.read_bytes()))
    size = random.choice([size, size // PAGE * PAGE])
    with path.open("r+b") as file:
        file.truncate(size)
    return f"{path.name}: cut to {size} bytes"


def replace_with_something_else(path: Path, random: Random) -> str:
    """Replace the file with another: empty, text, noise, or a foreign database."""
    path.unlink()
    kind = random.choice(["empty", "text", "noise", "database"])
    if kind == "database":
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE entry (a, b)")
        other.close()
    else:
        path.write_bytes({"empty": b"", "text": b"hello\n" * 900, "noise": random.randbytes(9_000)}[kind])
    return f"{path.name}: replaced ({kind})"


def remove(path: Path, _: Random) -> str:
    """Delete the file."""
    path.unlink()
    return f"{path.name}: deleted"


TO_DATABASE: list[Damage] = [
    *(flip_a_byte, flip_a_byte_of_the_header, flip_a_body, blank_a_page),
    *(scramble_a_stretch, cut_off_the_end, replace_with_something_else),
]
TO_LOG: list[Damage] = [flip_a_byte, flip_a_byte_of_the_header, scramble_a_stretch, cut_off_the_end, remove]
