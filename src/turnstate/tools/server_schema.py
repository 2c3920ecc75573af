"""What a server's schema may be, and the check of arguments against it.

A schema comes from a server, which may be hostile: it is checked once, when the server offers the tool, and a
tool whose schema is too large, refers to other addresses or cannot be evaluated is not offered. Schemas are
evaluated in a worker process that ends at a deadline, since a pattern in one may take forever.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..errors import InputError
from ..jobs import process as jobs
from .definition import BadArguments

MAX_CHARACTERS = 400_000
MAX_NODES = 20_000
MAX_DEPTH = 64
MAX_PATTERN = 2_000
"""Limits of a schema: characters of its texts and keys, values, nesting, and characters of one pattern.

The largest schemas in use have about a tenth of each."""

SECONDS = 20.0
"""How long the check of a schema, or of arguments, may take; nearly all take milliseconds."""


class SchemaCheck(Struct, frozen=True, kw_only=True):
    """The outcome of the check of a schema: why its tool is refused, or what makes it unusable.

    An unusable schema is not one by the rules of JSON Schema. Its tool is offered, and the check of arguments
    left to the server.
    """

    refusal: str = ""
    unusable: str = ""


async def check_schema(schema: dict[str, Any]) -> SchemaCheck:
    """Check a schema that a server sent; raise `JobFailed` if it cannot be found out what it is."""
    if excess := _excess(schema):
        return SchemaCheck(refusal=excess)
    try:
        found = await jobs.run("check_schema", schema, seconds=SECONDS)
    except InputError as refused:
        return SchemaCheck(refusal=str(refused))
    if found.stopped:
        return SchemaCheck(refusal=f"its check was {found.stopped}")
    return SchemaCheck(unusable="".join(found.records))


async def check_arguments(schema: dict[str, Any], args: dict[str, Any]) -> None:
    """Raise `BadArguments` if arguments do not match a schema, or if that cannot be found out."""
    try:
        found = await jobs.run("check_arguments", schema, args, seconds=SECONDS)
    except (InputError, jobs.JobFailed) as refused:
        raise BadArguments(f"the arguments cannot be checked against the tool's schema: {refused}") from None
    if found.stopped:
        raise BadArguments(f"the check of the arguments against the tool's schema was {found.stopped}")
    if found.records:
        raise BadArguments(f"invalid arguments: {found.records[0]}")


def _excess(schema: dict[str, Any]) -> str:
    """Return which limit a schema exceeds, or an empty text; stop counting there."""
    waiting: list[tuple[Any, int]] = [(schema, 1)]
    nodes = characters = 0
    while waiting:
        value, depth = waiting.pop()
        nodes += 1
        characters += len(value) if isinstance(value, str) else 0
        if depth > MAX_DEPTH:
            return f"it is nested more than {MAX_DEPTH} levels deep"
        if nodes > MAX_NODES:
            return f"it has more than {MAX_NODES:,} values"
        if isinstance(value, dict):
            characters += sum(map(len, value))
            keyed = value.get("patternProperties")
            patterns = [value.get("pattern"), *(keyed if isinstance(keyed, dict) else ())]
            if any(isinstance(one, str) and len(one) > MAX_PATTERN for one in patterns):
                return f"it has a pattern of more than {MAX_PATTERN:,} characters"
        if characters > MAX_CHARACTERS:
            return f"it has more than {MAX_CHARACTERS:,} characters"
        below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        waiting += [(one, depth + 1) for one in below]
    return ""
