"""Where everything is on the server: names of keys, and members of the ordered lists.

Sessions fall into 256 buckets by the CRC-32 of their address, and all keys of a bucket have its hash tag,
so they lie on one node of a Cluster and one script changes them together:

    {ts:7}:row:4:acmes1            the session; beside it branch, entry, body, id, asked (its keys), word, own
                                   (its lists), aside (what was damaged), gone (what is being removed)
    {ts:7}:index :parcel :clock    of the bucket: the lists, the outbox, the last stamp of something to search
    ts:version                     of this layout

`index` is a sorted set ordered by the bytes of its members; each begins with the letter of its list. Names
carry their length, so that none is the beginning of another, and times have sixteen digits, so they sort.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from ...errors import InputError
from ..values import Address

__all__ = [
    "BUCKETS",
    "DIGITS",
    "END",
    "LISTS",
    "MOST",
    "VERSION",
    "VERSION_KEY",
    "bucket_of",
    "index_key",
    "integer",
    "moment",
    "named",
    "natural",
    "packed",
    "parcel_key",
    "session_key",
    "session_keys",
    "text",
]

VERSION = 1
"""Of this layout; a higher one was made by a newer Turnstate."""

VERSION_KEY = b"ts:version"

BUCKETS = 256

MOST = 2**53 - 1
"""The largest number that scripts keep exactly."""

DIGITS = 16
"""Of a time in a list."""

END = b"\xff"
"""Sorts behind every text: no UTF-8 has such a byte."""

LISTS = {
    b"d": "sessions of a tenant by creation",
    b"u": "and of a user",
    b"e": "sessions of a tenant by the time at which they end by themselves",
    b"w": "entries of a tenant that have words, by their stamps",
    b"v": "and of a user",
    b"o": "parcels by the time at which they are due",
    b"p": "and of a tenant",
    b"q": "parked parcels",
    b"r": "and of a tenant",
    b"s": "parcels of a session",
}
"""The letters of the lists of a bucket."""

_OF_A_SESSION = (b"row", b"branch", b"entry", b"body", b"id", b"asked", b"word", b"own", b"aside", b"gone")
_OF_A_BUCKET = (b"index", b"parcel", b"clock")


def bucket_of(at: Address) -> int:
    """Give the bucket of a session; it never changes."""
    return zlib.crc32(named(at.tenant) + text(at.session)) % BUCKETS


def session_keys(at: Address) -> list[bytes]:
    """Give all keys that a script of a session may touch, in the order in which scripts know them."""
    tag, name = b"{ts:%d}:" % bucket_of(at), named(at.tenant) + text(at.session)
    own = [tag + kind + b":" + name for kind in _OF_A_SESSION]
    return own + [tag + kind for kind in _OF_A_BUCKET]


def session_key(at: Address, kind: bytes) -> bytes:
    """Give one key of a session."""
    return b"{ts:%d}:%s:%s%s" % (bucket_of(at), kind, named(at.tenant), text(at.session))


def index_key(bucket: int) -> bytes:
    """Give the key of the lists of a bucket."""
    return b"{ts:%d}:index" % bucket


def parcel_key(bucket: int) -> bytes:
    """Give the key of the outbox of a bucket."""
    return b"{ts:%d}:parcel" % bucket


def text(value: str) -> bytes:
    """Give a text as bytes."""
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"a text with a lone surrogate cannot be stored: {error}") from None


def named(name: str) -> bytes:
    """Give a name with its length, so that it is the beginning of no other."""
    encoded = text(name)
    return b"%d:%s" % (len(encoded), encoded)


def integer(value: int) -> int:
    """Give a number, if scripts can reckon with it."""
    if not -MOST <= value <= MOST:
        raise InputError(f"{value} has more than 53 bits and cannot be stored")
    return value


def natural(value: int) -> int:
    """Give a number, if it sorts: a time, or a length of time."""
    if value < 0:
        raise InputError(f"{value} is below zero and cannot be stored as a time")
    return integer(value)


def packed(asked: dict[str, Any]) -> bytes:
    """Give what is asked as a script unpacks it."""
    try:
        return msgspec.msgpack.encode(asked)
    except (OverflowError, UnicodeEncodeError) as error:
        raise InputError(f"a lone surrogate or a number beyond 64 bits cannot be stored: {error}") from None


def moment(value: int) -> bytes:
    """Write a time so that it sorts; what lies outside of all times lies at their end."""
    return b"%016d" % min(max(value, 0), 10**16 - 1)
