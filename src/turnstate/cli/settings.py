"""Defaults from ``turnstate.toml`` in the current folder: flags win over the environment over the file.

    store = "sqlite:///agent.db"
    model = "gpt-4o"
    memory = "builtin"

A key that does not exist is an error that names the likely one, since a misspelled key would otherwise
silently have no effect. The home folder is not a key: it contains the signing key of the installation,
and a file that comes with a project must not move it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import click

from ..errors import InputError

__all__ = ["FILE", "MODEL_VARIABLE", "STORE_VARIABLE", "model_option", "setting", "suggestion"]

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

FILE = "turnstate.toml"
STORE_VARIABLE = "TURNSTATE_STORE"
MODEL_VARIABLE = "TURNSTATE_MODEL"
KEYS = {"store": "URL", "model": "NAME", "memory": "NAME"}


def setting(key: str) -> str | None:
    """Return a setting of the file in the current folder; raise `InputError` if the file is wrong."""
    path = Path(FILE)
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not TOML: {error}") from None
    for name, value in settings.items():
        if name not in KEYS:
            known = suggestion(name, KEYS) or f"; the keys are {', '.join(KEYS)}"
            raise InputError(f"{path}: there is no setting {name!r:.60}{known}")
        if not isinstance(value, str):
            raise InputError(f'{path}: {name} must be a string: {name} = "{KEYS[name]}"')
    return settings.get(key) or None


def model_option(text: str) -> Callable[[Decorated], Decorated]:
    """Return the option for a model, which the environment and the file can set."""
    shown = f"{text}  [default: ${MODEL_VARIABLE}, or {FILE}]"
    return click.option("--model", metavar="NAME", envvar=MODEL_VARIABLE, callback=_model, help=shown)


def suggestion(name: str, known: Any) -> str:
    """Return "; did you mean …?" if something known is spelled almost like this, else an empty string."""
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _model(_ctx: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    return given or setting("model")
