"""Tool-call arguments that travel as a JSON string, as OpenAI's do.

A model may write arguments that are no JSON object, or nested too deeply to be kept as one; the
provider takes them back all the same. They are kept under one key, as text, and written again as
they were.
"""

from __future__ import annotations

from typing import Any

from .. import reader, sent
from ..errors import InputError

__all__ = ["UNPARSED", "parsed", "written"]

UNPARSED = "_unparsed"


def parsed(arguments: Any) -> dict[str, Any]:
    """Read arguments; what is no JSON object is kept as text."""
    if isinstance(arguments, dict):
        return arguments
    if arguments is None or arguments == "":
        return {}
    if not isinstance(arguments, str):
        return {UNPARSED: sent.json_text(arguments)}
    try:
        value = reader.read(arguments, max_depth=reader.MAX_VALUE_DEPTH)
    except InputError:
        return {UNPARSED: arguments}
    return value if isinstance(value, dict) else {UNPARSED: arguments}


def written(args: dict[str, Any]) -> str:
    """Write arguments as the string that the provider takes."""
    if args.keys() == {UNPARSED} and isinstance(args[UNPARSED], str):
        return str(args[UNPARSED])
    return sent.args_text(args)
