"""Options that the environment and ``turnstate.toml`` can set; a flag overrides both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..config.settings import Settings
from ..config.table import FILE, SETTINGS

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

STORE_VARIABLE, MODEL_VARIABLE = SETTINGS["store"].variable, SETTINGS["model"].variable


def setting(key: str) -> str | None:
    """Return a setting from the files, for an option that neither a flag nor the environment sets."""
    return Settings.load(environment={}).text(key)


def model_option(text: str) -> Callable[[Decorated], Decorated]:
    """Return the option for a model, which the environment and the files can set."""
    shown = f"{text}  [default: ${MODEL_VARIABLE}, or {FILE}]"
    return click.option("--model", metavar="NAME", envvar=MODEL_VARIABLE, callback=_model, help=shown)


def _model(_ctx: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    settings = Settings.load(environment={})
    settings.register_models()
    return given or settings.text("model")
