"""Arguments and options that commands share, each defined once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ..formats.port import Format

__all__ = [
    "EPILOG",
    "EXIT_CODES",
    "as_json",
    "file",
    "format_option",
    "input_format",
    "keep_going",
]

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

EXIT_CODES = """\b
Exit codes:
  0  good
  1  a conversation is not what the provider accepts
  2  bad usage, or input that cannot be read
"""

EPILOG = f"""\b
Formats:
  openai-chat  openai-responses  anthropic  bedrock  gemini

{EXIT_CODES}"""


def file(command: Decorated) -> Decorated:
    """Add the argument that names the input."""
    return click.argument("file", required=False)(command)


def format_option(flag: str, name: str, text: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """Make an option that takes the name of a provider format and gives the format."""
    return click.option(flag, name, metavar="NAME", help=text, callback=_found, **settings)


def input_format(command: Decorated) -> Decorated:
    """Add the option that says which provider's documents the input holds."""
    text = "Provider format of the input."
    return format_option("--format", "source", text, default="openai-chat", show_default=True)(command)


def as_json(command: Decorated) -> Decorated:
    """Add the switch for output that programs read."""
    text = "Print one JSON object a conversation."
    return click.option("--json", "as_json", is_flag=True, help=text)(command)


def keep_going(command: Decorated) -> Decorated:
    """Add the switch that passes over bad lines of a JSONL."""
    text = "Report every bad line of a JSONL and go on; exit 2 at the end."
    return click.option("--keep-going", is_flag=True, help=text)(command)


def _found(_ctx: click.Context, _option: click.Parameter, name: str) -> Format:
    from .. import formats  # only now: help does not need it

    return formats.get(name)
