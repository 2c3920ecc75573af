"""The boundary at which all foreign JSON enters, under one set of rules.

``read`` takes bytes or text, and ``check`` takes values that are already in memory. Both reject the
same things and report the path: duplicate keys, NaN and infinities, lone surrogates, nesting and
size beyond a limit, and anything that is not JSON. NUL is a character like any other. ``plain``
checks and copies, for callers that keep the value. ``clean`` is for tool output, which must never be
rejected for its content: it replaces what cannot be kept.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from . import long_json
from .errors import ForbiddenJSON, MalformedJSON, TooLarge

MAX_BYTES = 64 * 1024 * 1024
"""The size of one document: far above any provider's request limit, far below a machine's memory."""

MAX_DEPTH = 200
"""Every JSON library involved accepts this much; some recurse and stop at 500 or 1,000."""

MAX_VALUE_DEPTH = 180
"""The depth of one value in a message; the remaining levels keep the documents that hold it readable."""

_FEW = 16  # values of an object that are checked one by one, which is faster than encoding it
_EXACT = 2**53  # integers up to this size mean the same to every JSON reader

MAX_DIGITS = 4_300
"""The digits of an integer; by default, CPython neither parses nor prints longer ones."""

_TOO_LONG = 10**MAX_DIGITS
_SURE_BITS = 3 * MAX_DIGITS  # an integer within this many bits is within the limit of digits
_SHOWN = 40  # the most characters of a hostile key or number, or steps of a path, that an error repeats

_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NESTING = (dict, list)
_COLLECTIONS = (dict, list, tuple, set, frozenset)

_Path = tuple[Any, ...]  # (parent, step), innermost last; () is the root


class _Fault:
    """Marks the place in the parsed tree where something was rejected, so that its path is known."""

    def __init__(self, text: str) -> None:
        self.text = text


def read(
    data: bytes | bytearray | memoryview | str, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH
) -> Any:
    """Parse one JSON document strictly."""
    text, faults = _text(data, max_bytes), list[_Fault]()
    value = _parse(text.removeprefix("\ufeff"), faults)
    if faults or _may_hold_lone_surrogates(data, text) or _deeper_than(max_depth, value):
        check(value, max_depth=max_depth)
    return value


def check(value: Any, *, max_depth: int = MAX_DEPTH, at: str = "$") -> None:
    """Reject a value that JSON cannot represent faithfully; the error names the path to the first fault."""
    if is_plain(value, max_depth):
        return
    for node, path, depth in _walk(value):
        if depth >= max_depth and isinstance(node, dict | list | tuple):
            raise TooLarge(f"nested deeper than {max_depth} levels", path=at + _spelled(path))
        if fault := _fault_of(node):
            raise ForbiddenJSON(fault, path=at + _spelled(path))


def check_text(text: object, *, at: str) -> None:
    """Reject a value that is not text or cannot be encoded as UTF-8."""
    if not isinstance(text, str):
        raise ForbiddenJSON(f"expected text, got {type(text).__name__}", path=at)
    if not _encodable(text):
        raise ForbiddenJSON("a lone surrogate cannot be stored as UTF-8", path=at)


def plain(value: Any, *, at: str = "$") -> Any:
    """Check a value of a message and copy it into dicts, lists and scalars that no one else holds."""
    if type(value) is str:
        check_text(value, at=at)
        return value
    if is_simple(value):
        return dict(value)
    try:
        written = long_json.encode(value)
        copy = long_json.decode(written)
        same = copy == value
    except Exception:  # a foreign type may raise anything when encoded; `check` below names the culprit
        same = False
    if same and (
        written.count(b"[") + written.count(b"{") <= MAX_VALUE_DEPTH
        or not _deeper_than(MAX_VALUE_DEPTH, copy)
    ):
        return copy
    check(value, max_depth=MAX_VALUE_DEPTH, at=at)
    return _plain(value)


def is_simple(value: Any) -> bool:
    """Return True for a small object of ASCII strings and scalars, as most arguments are."""
    if type(value) is not dict or len(value) > _FEW:
        return False
    for key, one in value.items():
        if type(key) is not str or not key.isascii():
            return False
        kind = type(one)
        if kind is str:
            if not one.isascii():
                return False
        elif kind is int:
            if not -_EXACT <= one <= _EXACT:
                return False
        elif kind is not bool and one is not None:
            return False
    return True


def plain_document(value: Any) -> Any:
    """Check a document and copy it; subclasses, such as enums or ordered dicts, become plain JSON types."""
    check(value)
    return _plain(value)


def copied(value: Any, *, at: str = "$") -> Any:
    """Copy a value that was plain when it was created, and check what was added to it since."""
    try:
        return _copied(value, MAX_VALUE_DEPTH)
    except ValueError:
        return plain(value, at=at)


def clean(value: Any) -> Any:
    """Make tool output storable: lone surrogates become U+FFFD, and what JSON cannot represent becomes text.

    Only output that is nested too deeply is rejected, which includes everything that contains itself.
    """
    try:
        return _clean(value, MAX_VALUE_DEPTH)
    except RecursionError:
        raise TooLarge("tool output is nested too deeply") from None


def _text(data: bytes | bytearray | memoryview | str, max_bytes: int) -> str:
    if not isinstance(data, bytes | bytearray | memoryview | str):
        raise ForbiddenJSON(f"expected bytes or text, got {type(data).__name__}")
    if isinstance(data, str) and not data.isascii():
        size = len(data.encode("utf-8", "surrogatepass"))
    else:
        size = len(data)
    if size > max_bytes:
        raise TooLarge(f"the document has {size:,} bytes; at most {max_bytes:,} are read")
    if isinstance(data, str):
        return data
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedJSON(f"not UTF-8: byte {error.start} is 0x{data[error.start]:02x}") from None


def _parse(text: str, faults: list[_Fault]) -> Any:
    def fault(text: str) -> _Fault:
        faults.append(_Fault(text))
        return faults[-1]

    def pairs(items: list[tuple[str, Any]]) -> Any:
        result = dict(items)
        if len(result) == len(items):
            return result
        seen: set[str] = set()
        twice = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return fault(f"the key {_shown(twice)} occurs twice in one object")

    def number(literal: str) -> Any:
        value = float(literal)
        return value if math.isfinite(value) else fault(f"the number {literal[:_SHOWN]} is out of range")

    def integer(literal: str) -> Any:
        digits = len(literal.lstrip("-"))
        try:
            if digits <= MAX_DIGITS:
                return int(literal)
        except ValueError:
            pass  # the interpreter is configured for fewer digits
        return fault(f"an integer of {digits} digits is out of range")

    def constant(literal: str) -> Any:
        return fault(f"{literal} is not JSON")

    try:
        return json.loads(
            text, object_pairs_hook=pairs, parse_float=number, parse_int=integer, parse_constant=constant
        )
    except json.JSONDecodeError as error:
        raise MalformedJSON(f"not JSON: {error.msg}, line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise TooLarge("nested deeper than this interpreter can read") from None


def _may_hold_lone_surrogates(data: object, text: str) -> bool:
    return (data is text and not _encodable(text)) or _SURROGATE_ESCAPE.search(text) is not None


def _deeper_than(limit: int, value: Any) -> bool:
    """Return True if a parsed value is nested deeper than the limit, without recursion."""
    level = [value] if type(value) in _NESTING else []
    while level and limit > 0:
        children = (node.values() if type(node) is dict else node for node in level)
        level = [item for items in children for item in items if type(item) in _NESTING]
        limit -= 1
    return bool(level)


def _encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def is_plain(value: Any, max_depth: int = MAX_DEPTH) -> bool:
    """Return True if a value is certainly JSON; if not, `check` has to examine it."""
    try:
        return _faithful(value, max_depth)
    except RecursionError:
        return False


def _faithful(value: Any, levels: int) -> bool:
    """Return True, quickly, for plain JSON; anything else is examined again to find the path."""
    kind = type(value)
    if kind is str:
        return value.isascii() or _encodable(value)
    if kind is dict and levels > 0:
        for key, item in value.items():
            if type(key) is not str or not _encodable(key) or not _faithful(item, levels - 1):
                return False
        return True
    if kind is list and levels > 0:
        return all(_faithful(item, levels - 1) for item in value)
    if kind is float:
        return math.isfinite(value)
    return value is None or kind is bool or (kind is int and -(1 << 63) <= value < 1 << 64)


def _walk(value: Any) -> Iterator[tuple[Any, _Path, int]]:
    """Visit every node in document order, with its path and depth, without recursion."""
    stack: list[tuple[Any, _Path, int]] = [(value, (), 0)]
    while stack:
        node, path, depth = stack.pop()
        yield node, path, depth
        if isinstance(node, dict):
            stack.extend([(item, (path, key), depth + 1) for key, item in node.items()][::-1])
        elif isinstance(node, list | tuple):
            stack.extend([(item, (path, index), depth + 1) for index, item in enumerate(node)][::-1])


def _fault_of(node: Any) -> str | None:
    if isinstance(node, str):
        return None if _encodable(node) else "a lone surrogate cannot be stored as UTF-8"
    if node is None or isinstance(node, bool | list | tuple):
        return None
    if isinstance(node, dict):
        return next((fault for key in node if (fault := _key_fault(key))), None)
    if isinstance(node, float):
        return None if math.isfinite(node) else f"{float.__repr__(node)} is not JSON"
    if isinstance(node, int):
        return None if -_TOO_LONG < node < _TOO_LONG else f"an integer of more than {MAX_DIGITS} digits"
    return node.text if isinstance(node, _Fault) else f"a value of type {type(node).__name__} is not JSON"


def _key_fault(key: Any) -> str | None:
    if not isinstance(key, str):
        return f"a key of type {type(key).__name__} is not a string"
    return None if _encodable(key) else "a key holds a lone surrogate"


def _copied(value: Any, levels: int) -> Any:
    """Copy dicts and lists; raise ValueError if something may not be faithful JSON."""
    kind = type(value)
    if kind is str:
        if value.isascii() or _encodable(value):
            return value
    elif kind is dict and levels:
        copy: dict[str, Any] = {}
        for key, item in value.items():
            if type(key) is not str:
                break
            is_sure = type(item) is str and item.isascii()  # most items, so avoid a call
            copy[key] = item if is_sure else _copied(item, levels - 1)
        else:
            return copy
    elif kind is list and levels:
        return [_copied(item, levels - 1) for item in value]
    elif (
        kind is bool
        or value is None
        or (kind is int and value.bit_length() <= _SURE_BITS)
        or (kind is float and math.isfinite(value))
    ):
        return value
    raise ValueError("not plain JSON for sure")


def _plain(value: Any) -> Any:
    """Copy a value that passed `check`."""
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float.__float__(value)
    return int.__int__(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _clean(value: Any, levels: int) -> Any:
    if isinstance(value, str):
        return str.__str__(value) if _encodable(value) else _without_lone_surrogates(value)
    if isinstance(value, _COLLECTIONS):
        if not levels:
            raise TooLarge(f"tool output is nested deeper than {MAX_VALUE_DEPTH} levels")
        if isinstance(value, dict):
            return _clean_object(value, levels - 1)
        items = [_clean(item, levels - 1) for item in value]
        return sorted(items, key=json.dumps) if isinstance(value, set | frozenset) else items
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, int | float) and _fault_of(value):
        return hex(value) if isinstance(value, int) else float.__repr__(value)
    if value is None or isinstance(value, int | float):
        return _plain(value)
    return _clean(_in_builtin_types(value), levels)


def _clean_object(value: dict[Any, Any], levels: int) -> dict[str, Any]:
    """Clean an object and keep its keys unique: keys that become equal both stay."""
    result: dict[str, Any] = {}
    for key, item in value.items():
        text = _clean(key, levels)
        name = text if isinstance(text, str) else json.dumps(text)
        while name in result:
            name = f"{name} ({len(result)})"
        result[name] = _clean(item, levels)
    return result


def _without_lone_surrogates(text: str) -> str:
    """Join adjacent surrogate halves, as a broken stream leaves them; replace any others with U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _in_builtin_types(value: Any) -> Any:
    """Convert records to dicts, times to ISO-8601 and so on, and anything else to text."""
    try:
        return msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview), enc_hook=str)
    except Exception:  # the `__str__` of a foreign class may raise anything
        return f"<{type(value).__name__}>"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def _spelled(path: _Path) -> str:
    steps: list[str] = []
    while path:
        path, step = path
        if isinstance(step, int):
            steps.append(f"[{step}]")
        else:
            name = len(step) <= _SHOWN and _IDENTIFIER.fullmatch(step)
            steps.append(f".{step}" if name else f"[{_shown(step)}]")
    steps.reverse()
    return "".join(steps if len(steps) <= _SHOWN else [*steps[:12], "…", *steps[-4:]])
