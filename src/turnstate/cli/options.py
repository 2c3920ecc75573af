"""Arguments and options that several commands share, each defined once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..config.settings import Settings
from ..config.source import suggestion
from ..config.table import FILE, SETTINGS
from ..errors import UnknownName

if TYPE_CHECKING:
    from ..formats.port import Format

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

EXIT_CODES = """\b
Exit codes:
  0  success
  1  a conversation is invalid or cannot fit
  2  bad usage, or input that cannot be read
"""

EPILOG = f"""\b
Formats:
  openai-chat  openai-responses  anthropic  bedrock  gemini

{EXIT_CODES}"""


def files(command: Decorated) -> Decorated:
    """Add the argument that names the inputs."""
    return click.argument("files", metavar="[FILE]...", nargs=-1)(command)


def format_option(flag: str, name: str, text: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """Return an option that takes the name of a provider format and passes the format on."""
    return click.option(flag, name, metavar="NAME", help=text, callback=_format, **settings)


def input_format(command: Decorated) -> Decorated:
    """Add the option for the provider format of the input."""
    text = "Provider format of the input."
    return format_option("--format", "source", text, default="openai-chat", show_default=True)(command)


def json_option(text: str) -> Callable[[Decorated], Decorated]:
    """Return the switch for machine-readable output."""
    return click.option("--json", "as_json", is_flag=True, help=text)


def keep_going(command: Decorated) -> Decorated:
    """Add the switch that skips bad lines of a JSONL."""
    text = "Report every bad line of a JSONL file and continue; exit 2 at the end."
    return click.option("--keep-going", is_flag=True, help=text)(command)


def output_options(command: Decorated) -> Decorated:
    """Add the options for the file that a result is written to."""
    force = click.option("--force", is_flag=True, help="Replace the --output file if it exists.")
    return click.option("-o", "--output", metavar="FILE", help="Write to this file, atomically.")(
        force(command)
    )


def quiet_option(command: Decorated) -> Decorated:
    """Add the switch that suppresses remarks about the result."""
    return click.option("--quiet", is_flag=True, help="Do not report what had to be left out.")(command)


def yes_option(command: Decorated) -> Decorated:
    """Add the switch that skips the confirmation."""
    text = "Do not ask for confirmation; required if stdin is not a terminal."
    return click.option("--yes", is_flag=True, help=text)(command)


def limit_option(text: str, *, default: int, least: int = 1) -> Callable[[Decorated], Decorated]:
    """Return the option for how many results are shown."""
    number = click.IntRange(least)
    return click.option("--limit", type=number, default=default, show_default=True, metavar="N", help=text)


def model_option(text: str) -> Callable[[Decorated], Decorated]:
    """Return the option for a model, which the environment and ``turnstate.toml`` can set."""
    variable = SETTINGS["model"].variable
    shown = f"{text}  [default: ${variable}, or {FILE}]"
    return click.option("--model", metavar="NAME", envvar=variable, callback=_model, help=shown)


def _model(_ctx: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    settings = Settings.load(environment={})
    settings.register_models()
    return given or settings.text("model")


def _format(_ctx: click.Context, _option: click.Parameter, name: str) -> Format:
    return named_format(name)


def named_format(name: str, *others: str) -> Format:
    """Return the named format; the error for an unknown name suggests the likely one."""
    from .. import formats  # deferred: help does not need it

    try:
        return formats.get(name)
    except UnknownName as error:
        if advice := suggestion(name, (*formats.names(), *others)):
            raise UnknownName(f"no format is called {name!r:.60}{advice}") from None
        raise error from None
