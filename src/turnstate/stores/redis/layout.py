"""The keys on the server, and the members of the ordered lists.

Sessions are distributed over 256 buckets by the CRC-32 of their address. All keys of a bucket have its hash
tag, so they are on one node of a Cluster, and one script changes them together:

    {ts:7}:row:4:acmes1            the session; next to it branch, entry, body, id, asked (its keys), word,
                                   own (its lists), gone (data that is being removed), aside (what a repair
                                   set aside, which nothing writes any more, and a removal still removes)
    {ts:7}:index :parcel :clock    of the bucket: the lists, the outbox, the last stamp of an entry
    ts:version                     the version of this layout

`index` is a sorted set ordered by the bytes of its members; each begins with the letter of its list. Names
are preceded by their length, so that none is a prefix of another, and times have sixteen digits, so that
they sort.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from ...errors import InputError
from ..values import Address

VERSION = 1
"""The version of this layout; a higher one is from a newer Turnstate."""

VERSION_KEY = b"ts:version"

BUCKETS = 256

MOST = 2**53 - 1
"""The largest integer that Lua represents exactly."""

DIGITS = 16
"""The number of digits of a time in a list."""

END = b"\xff"
"""Sorts after every text: UTF-8 has no such byte."""

LISTS = {
    b"d": "sessions of a tenant by creation",
    b"u": "and of a user",
    b"a": "sessions of a tenant by activity",
    b"e": "sessions of a tenant by the time at which they expire",
    b"w": "entries of a tenant by their stamps",
    b"v": "and of a user",
    b"o": "parcels by the time at which they are due",
    b"p": "and of a tenant",
    b"q": "parked parcels",
    b"r": "and of a tenant",
    b"s": "parcels of a session",
}
"""The lists of a bucket, by their letters."""

_OF_A_SESSION = (b"row", b"branch", b"entry", b"body", b"id", b"asked", b"word", b"own", b"aside", b"gone")
_OF_A_BUCKET = (b"index", b"parcel", b"clock")


def bucket_of(at: Address) -> int:
    """Return the bucket of a session, which never changes."""
    return zlib.crc32(named(at.tenant) + text(at.session)) % BUCKETS


def session_keys(at: Address) -> list[bytes]:
    """Return all keys that a script of a session may use, in the order that scripts expect."""
    tag, name = b"{ts:%d}:" % bucket_of(at), named(at.tenant) + text(at.session)
    own = [tag + kind + b":" + name for kind in _OF_A_SESSION]
    return own + [tag + kind for kind in _OF_A_BUCKET]


def session_key(at: Address, kind: bytes) -> bytes:
    """Return one key of a session."""
    return b"{ts:%d}:%s:%s%s" % (bucket_of(at), kind, named(at.tenant), text(at.session))


def index_key(bucket: int) -> bytes:
    """Return the key of the lists of a bucket."""
    return b"{ts:%d}:index" % bucket


def parcel_key(bucket: int) -> bytes:
    """Return the key of the outbox of a bucket."""
    return b"{ts:%d}:parcel" % bucket


def text(value: str) -> bytes:
    """Encode a text, or raise `InputError`."""
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"a text with a lone surrogate cannot be stored: {error}") from None


def named(name: str) -> bytes:
    """Return a name preceded by its length, so that it is not a prefix of any other."""
    encoded = text(name)
    return b"%d:%s" % (len(encoded), encoded)


def integer(value: int) -> int:
    """Return a number, or raise `InputError` if Lua cannot represent it exactly."""
    if not -MOST <= value <= MOST:
        raise InputError(f"{value} has more than 53 bits and cannot be stored")
    return value


def natural(value: int) -> int:
    """Return a number, or raise `InputError` if it is negative and would not sort."""
    if value < 0:
        raise InputError(f"{value} is negative and cannot be stored as a time")
    return integer(value)


def packed(given: dict[str, Any]) -> bytes:
    """Encode the arguments of a script as MessagePack."""
    try:
        return msgspec.msgpack.encode(given)
    except (OverflowError, UnicodeEncodeError) as error:
        raise InputError(f"a lone surrogate or a number beyond 64 bits cannot be stored: {error}") from None


def moment(value: int) -> bytes:
    """Encode a time so that it sorts; clamp a time that is out of range."""
    return b"%016d" % min(max(value, 0), 10**16 - 1)
