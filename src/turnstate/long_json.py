"""JSON of long values, written and read in short steps.

A JSON library writes or reads a document in one call that holds Python's lock: for ten megabytes of
text up to 200 ms, in which no other thread runs. These functions give the same bytes and the same
values by many calls of a few milliseconds each. Short values take one call, as without them.

To read, each long string is read piece by piece; the rest of the document is read with a short name in
its place.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from operator import itemgetter
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import astuple, force_setattr

from .errors import TurnstateError

__all__ = ["LONG", "decode", "encode", "exceeds", "indented"]

T = TypeVar("T")

LONG = 256 * 1024
"""Characters, or bytes, that one call works on: up to 5 ms."""

_RUN = 4_096  # items of a long list that are looked at together
_ESCAPES = 12  # bytes of the longest character, which is two escapes
_HIGH_SURROGATE = re.compile(rb"\\u[dD][89abAB]..", re.DOTALL)
_TEXTS, _LISTS = (str, bytes), (list, tuple)
_HOLDING = (dict, *_LISTS, *_TEXTS)
_SHORT = {int, float, bool, type(None), type(UNSET)}
_encoder = msgspec.json.Encoder()
_decode = msgspec.json.Decoder().decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


def exceeds(size: int, *values: Any) -> bool:
    """Return True if values hold more text than a size, looking at no more than that."""
    rest = list(values)
    for value in rest:  # which grows by what is in each value
        kind = type(value)
        if kind is str or kind is bytes:
            size -= len(value)
        elif kind in _SHORT:
            continue
        elif kind is dict and size >= len(value):
            size -= len(value)
            for key, item in value.items():  # most are texts, and need not be put into the list
                if type(key) is str:
                    size -= len(key)
                else:
                    rest.append(key)
                if type(item) is str:
                    size -= len(item)
                elif type(item) not in _SHORT:
                    rest.append(item)
        elif kind is tuple and size >= len(value):  # most often an empty one
            size -= len(value)
            rest += value
        elif isinstance(value, Struct):
            rest += astuple(value)
        elif isinstance(value, _HOLDING):
            size -= len(value)
            if size >= 0 and not isinstance(value, _TEXTS):
                rest += value
                rest += value.values() if isinstance(value, dict) else ()
        if size < 0:
            return True
    return False


def encode(value: Any, encoder: msgspec.json.Encoder = _encoder) -> bytes:
    """Return ``encoder.encode(value)``."""
    return b"".join(_chunks(value, encoder)) if exceeds(LONG, value) else encoder.encode(value)


def decode(data: bytes, read: Callable[[bytes], Any] = _decode) -> Any:
    """Return ``read(data)``, and raise what that raises; `read` takes a document and returns plain values."""
    if len(data) <= LONG:
        return read(data)
    try:
        return _decoded(data, _read if read is _decode else read)
    except (msgspec.MsgspecError, TurnstateError, ValueError, RecursionError):
        return read(data)  # something is wrong with the document: the error is about all of it


def indented(data: bytes, indent: int) -> bytes:
    """Return a document with line breaks and indentation."""
    short, places = _with_names(data) if len(data) > LONG else (data, {})
    shown, kept = msgspec.json.format(short, indent=indent), list[bytes]()
    for name, (start, end) in places.items():
        before, _, shown = shown.partition(name.encode())
        kept += [before, data[start:end]]
    return b"".join([*kept, shown])


def _chunks(value: Any, encoder: msgspec.json.Encoder, around: tuple[int, ...] = ()) -> Iterator[bytes]:
    """Write a value in pieces, none of which takes long; ``around`` are the ids of what it is in."""
    if id(value) in around or not exceeds(LONG, value):
        yield encoder.encode(value)  # what contains itself is refused here
    elif type(value) is str:
        yield b'"'
        for start in range(0, len(value), LONG):
            yield encoder.encode(value[start : start + LONG])[1:-1]
        yield b'"'
    elif isinstance(value, dict):
        around = (*around, id(value))
        items = sorted(value.items(), key=itemgetter(0)) if encoder.order else list(value.items())
        yield b"{"
        for place, some in enumerate(_runs(items)):
            yield b"," if place else b""
            if len(some) == 1:
                yield from _item_chunks(*some[0], encoder, around)
            else:
                yield encoder.encode(dict(some))[1:-1]
        yield b"}"
    elif isinstance(value, _LISTS):
        around = (*around, id(value))
        yield b"["
        for place, some in enumerate(_runs(value)):
            yield b"," if place else b""
            if len(some) == 1:
                yield from _chunks(some[0], encoder, around)
            else:
                yield encoder.encode(some)[1:-1]
        yield b"]"
    elif isinstance(value, Struct):
        yield from _struct_chunks(value, encoder)
    else:
        yield encoder.encode(value)


def _item_chunks(
    key: Any, item: Any, encoder: msgspec.json.Encoder, around: tuple[int, ...]
) -> Iterator[bytes]:
    if type(key) is str and len(key) > LONG:
        yield from _chunks(key, encoder)
        yield b":"
    else:
        yield encoder.encode({key: None}).removeprefix(b"{").removesuffix(b"null}")
    yield from _chunks(item, encoder, around)


def _struct_chunks(value: Struct, encoder: msgspec.json.Encoder) -> Iterator[bytes]:
    """Write a value with the number of a field, between two bytes that JSON never has, for each long one."""
    short, fields = copy(value), astuple(value)
    for place, (name, field) in enumerate(zip(value.__struct_fields__, fields, strict=True)):
        if exceeds(LONG, field) and not isinstance(field, bytes):
            force_setattr(short, name, Raw(b"\0%d\0" % place))
    for place, piece in enumerate(encoder.encode(short).split(b"\0")):
        if place % 2:
            yield from _chunks(fields[int(piece)], encoder)
        else:
            yield piece


def _runs(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut a sequence into runs that are not long, or of one item."""
    for start in range(0, len(items), _RUN):
        waiting = [items[start : start + _RUN]]
        while waiting:
            some = waiting.pop()
            if len(some) == 1 or not exceeds(LONG, some):
                yield some
            else:
                half = len(some) // 2
                waiting += [some[half:], some[:half]]


def _decoded(data: bytes, read: Callable[[bytes], Any]) -> Any:
    short, places = _with_names(data)
    texts = {
        name: "".join(map(_decode, _string_pieces(data, start, end))) for name, (start, end) in places.items()
    }
    return _with_texts(read(short), texts) if texts else read(data)


def _with_names(data: bytes) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """Return a document with names in place of its long strings, and the places of these.

    The names are made from the digest of the document, so that no other string in it is one of them.
    """
    kept, places, begin, digest = list[bytes](), dict[str, tuple[int, int]](), 0, ""
    for start, end in _long_strings(data):
        digest = digest or hashlib.blake2b(data, digest_size=16).hexdigest()
        name = f"{digest} {len(places)}"
        places[name] = start, end
        kept += [data[begin:start], name.encode()]
        begin = end
    return b"".join([*kept, data[begin:]]) if kept else data, places


def _long_strings(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the places of the strings that are longer than `LONG`, without their quotes.

    Such a string begins at the last quote of a block and ends at the first one of a later block.
    """
    place, opened = 0, -1
    while place < len(data):
        block, after = data[place : place + LONG], place + LONG
        if b"\\" in block:
            block = block.replace(b"\\\\", b"..")
            after += block.endswith(b"\\")  # what it escapes is no end of a string
            block = block.replace(b'\\"', b"..")
        if quotes := block.count(b'"'):
            first, last = place + block.index(b'"'), place + block.rindex(b'"')
            if opened >= 0 and first - opened > LONG:
                yield opened, first
            opened = last + 1 if (opened >= 0) == (quotes % 2 == 0) else -1
        place = after


def _string_pieces(data: bytes, start: int, end: int) -> Iterator[bytes]:
    """Cut the inside of a string into strings, between characters."""
    while start < end:
        cut = min(start + LONG, end)
        if cut < end:
            cut = _cut(data, start, cut)
        yield b'"%b"' % data[start:cut]
        start = cut


def _cut(data: bytes, start: int, cut: int) -> int:
    """Return the last place up to `cut` that is between two characters of a string."""
    piece = data[start:cut].replace(b"\\\\", b"..")
    escape = piece.rfind(b"\\", max(0, len(piece) - _ESCAPES))
    if escape >= 0:
        is_second = _HIGH_SURROGATE.fullmatch(piece, max(0, escape - 6), escape)
        return start + escape - (6 if is_second else 0)
    while cut > start + 1 and data[cut] & 0xC0 == 0x80:  # within a character of UTF-8
        cut -= 1
    return cut


def _with_texts(value: Any, texts: dict[str, str]) -> Any:
    """Replace the names by the texts."""
    if isinstance(value, str):
        return texts.get(value, value)
    if isinstance(value, list):
        return [_with_texts(item, texts) for item in value]
    if not isinstance(value, dict):
        return value
    result = {texts.get(key, key): _with_texts(item, texts) for key, item in value.items()}
    if len(result) < len(value):
        raise ValueError("a long key occurs twice in one object")
    return result


def _read(data: bytes) -> Any:
    """Read a document, a long list or object part by part."""
    kind = data.lstrip()[:1] if len(data) > LONG else b""
    if kind == b"[":
        return _read_items(_decode_list(data))
    if kind == b"{":
        return {key: _read(bytes(item)) for key, item in _decode_object(data).items()}
    return _decode(data)


def _read_items(items: list[Raw]) -> list[Any]:
    data = b"[%b]" % b",".join(items)
    if len(data) <= LONG:
        found: list[Any] = _decode(data)
        return found
    if len(items) == 1:
        return [_read(bytes(items[0]))]
    half = len(items) // 2
    return _read_items(items[:half]) + _read_items(items[half:])
