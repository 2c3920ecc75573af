"""Encode and decode long JSON values in short steps.

A JSON library encodes or decodes a document in one call that holds the GIL: for ten megabytes of text,
up to 200 ms in which no other thread runs. These functions produce the same bytes and the same values
in many calls of a few milliseconds each. Short values still take one call.

To decode, each long string is read piece by piece, and the rest of the document is read with a short
placeholder name instead of the string.
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

T = TypeVar("T")

LONG = 256 * 1024
"""The most characters or bytes that one call processes, in up to 5 ms."""

_RUN = 4_096  # items of a long list that are checked together
_ESCAPES = 12  # bytes of the longest encoded character: two escapes
_HIGH_SURROGATE = re.compile(rb"\\u[dD][89abAB]..", re.DOTALL)
_TEXTS, _LISTS = (str, bytes), (list, tuple)
_HOLDING = (dict, *_LISTS, *_TEXTS)
_SHORT = {int, float, bool, type(None), type(UNSET)}
_encoder = msgspec.json.Encoder()
_decode = msgspec.json.Decoder().decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


def exceeds(size: int, *values: Any) -> bool:
    """Return True if the values hold more text than `size`, reading no further than needed."""
    rest = list(values)
    for value in rest:  # the list grows by the contents of each value
        kind = type(value)
        if kind is str or kind is bytes:
            size -= len(value)
        elif kind in _SHORT:
            continue
        elif kind is dict and size >= len(value):
            size -= len(value)
            for key, item in value.items():  # most are strings, which need not go through the list
                if type(key) is str:
                    size -= len(key)
                else:
                    rest.append(key)
                if type(item) is str:
                    size -= len(item)
                elif type(item) not in _SHORT:
                    rest.append(item)
        elif kind is tuple and size >= len(value):  # usually empty
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
    """Return ``encoder.encode(value)``, encoded in short steps."""
    return b"".join(_chunks(value, encoder)) if exceeds(LONG, value) else encoder.encode(value)


def decode(data: bytes, read: Callable[[bytes], Any] = _decode) -> Any:
    """Return ``read(data)``, or raise what it raises; `read` turns a document into plain values."""
    if len(data) <= LONG:
        return read(data)
    try:
        return _decoded(data, _read if read is _decode else read)
    except (msgspec.MsgspecError, TurnstateError, ValueError, RecursionError):
        return read(data)  # the document is invalid: raise the error that refers to all of it


def indented(data: bytes, indent: int) -> bytes:
    """Return a document with line breaks and indentation."""
    short, places = _with_names(data) if len(data) > LONG else (data, {})
    shown, kept = msgspec.json.format(short, indent=indent), list[bytes]()
    for name, (start, end) in places.items():
        before, _, shown = shown.partition(name.encode())
        kept += [before, data[start:end]]
    return b"".join([*kept, shown])


def _chunks(value: Any, encoder: msgspec.json.Encoder, around: tuple[int, ...] = ()) -> Iterator[bytes]:
    """Encode a value in pieces, none of which takes long; ``around`` are the ids of its containers."""
    if id(value) in around or not exceeds(LONG, value):
        yield encoder.encode(value)  # rejects a value that contains itself
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
    """Encode a struct with NUL-delimited numbers (JSON has no NULs) for long fields, then fill them in."""
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
    """Split a sequence into runs that are either short or a single item."""
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
    """Return a document with names in place of its long strings, and the positions of these strings.

    The names contain the digest of the document, so no other string in it can equal one of them.
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
    """Yield the start and end of each string longer than `LONG`, without its quotes.

    Such a string begins at the last quote of a block and ends at the first quote of a later block.
    """
    place, opened = 0, -1
    while place < len(data):
        block, after = data[place : place + LONG], place + LONG
        if b"\\" in block:
            block = block.replace(b"\\\\", b"..")
            after += block.endswith(b"\\")  # an escaped quote does not end a string
            block = block.replace(b'\\"', b"..")
        if quotes := block.count(b'"'):
            first, last = place + block.index(b'"'), place + block.rindex(b'"')
            if opened >= 0 and first - opened > LONG:
                yield opened, first
            opened = last + 1 if (opened >= 0) == (quotes % 2 == 0) else -1
        place = after


def _string_pieces(data: bytes, start: int, end: int) -> Iterator[bytes]:
    """Split the inside of a string into shorter JSON strings, between characters."""
    while start < end:
        cut = min(start + LONG, end)
        if cut < end:
            cut = _cut(data, start, cut)
        yield b'"%b"' % data[start:cut]
        start = cut


def _cut(data: bytes, start: int, cut: int) -> int:
    """Return the last position up to `cut` that is between two characters of a string."""
    piece = data[start:cut].replace(b"\\\\", b"..")
    escape = piece.rfind(b"\\", max(0, len(piece) - _ESCAPES))
    if escape >= 0:
        is_second = _HIGH_SURROGATE.fullmatch(piece, max(0, escape - 6), escape)
        return start + escape - (6 if is_second else 0)
    while cut > start + 1 and data[cut] & 0xC0 == 0x80:  # inside a UTF-8 character
        cut -= 1
    return cut


def _with_texts(value: Any, texts: dict[str, str]) -> Any:
    """Replace the names with the strings they stand for."""
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
    """Decode a document; decode a long list or object part by part."""
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
