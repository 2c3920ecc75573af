"""The table of all settings, for the library and the command line, and what a file may set.

A setting is a string, which a flag, a variable or a file can set, or a table in a file. `FREE` is all that a
workspace's file may set before it is approved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from ..errors import InputError
from ..home import Home
from .source import ConfigFile, suggestion

FILE = "turnstate.toml"

KEY_VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"}
"""The providers whose keys can be set, and the variables that their SDKs read."""


def _is_plain_name(model: str) -> bool:
    return "@" not in model


FREE: dict[str, Callable[[str], bool]] = {"model": _is_plain_name}
"""What a workspace's file may set before it is approved, and to which values; nothing else.

The name of a model leads to an endpoint that the user chose: the provider's own, or the one of a variable. A
store or a memory does not: it may be a file of the workspace, with sessions, prompts and facts that someone
else wrote and that would be sent as the user's own.
"""


class Setting(Struct, frozen=True, kw_only=True):
    """A string setting: its key, its variable and its flag."""

    key: str
    kind: str
    variable: str
    flag: str
    meaning: str


SETTINGS = {
    one.key: one
    for one in (
        Setting(
            key="store",
            kind="URL",
            variable="TURNSTATE_STORE",
            flag="--store",
            meaning="the store of sessions; the default is an SQLite file in `TURNSTATE_HOME`",
        ),
        Setting(
            key="model",
            kind="NAME",
            variable="TURNSTATE_MODEL",
            flag="--model",
            meaning="a model by its name, `NAME@URL` for another endpoint, or `local`",
        ),
        Setting(
            key="memory",
            kind="NAME",
            variable="TURNSTATE_MEMORY",
            flag="--engine",
            meaning="the memory engine; the default is `builtin`, beside the store",
        ),
        Setting(
            key="agent",
            kind="NAME",
            variable="TURNSTATE_AGENT",
            flag="--agent",
            meaning="the default agent",
        ),
    )
}

TABLES = {
    "budget": "the tokens of a request: `window`, and `output` of them for the answer",
    "policy": "how windows are made: the options of `Policy`",
    "recall": "how much memory a session gets: the options of `Recall`",
    "limits": "when a run of an agent ends: the options of `Limits`",
    "mcp": "`[mcp.NAME]`: servers that every agent gets",
    "hooks": "commands that run at the steps of every agent",
    "commands": "what commands and hooks get: `variables`, names or patterns of environment variables",
    "approve": "`[[approve]]`: rules for tools: `tool`, `decision` and perhaps `path`",
    "models": "`[models.NAME]`: limits, counter and prices of models, as for `catalog.register`",
    "keys": "keys of providers; only in the user's file",
}


def default_store() -> str:
    """Return the URL of the SQLite file in the installation's own folder."""
    return f"sqlite:///{quote(str(Home.from_environment().path / 'turnstate.db'))}"


def needs_approval(file: ConfigFile, document: dict[str, Any]) -> bool:
    """Return True if a workspace's file has a value that has no effect until the file is approved."""
    return any(asks(file, key, value) for key, value in document.items())


def asks(file: ConfigFile, key: str, value: Any) -> bool:
    """Return True if a workspace's file must be approved before this value takes effect."""
    if not value:
        return False
    return file.foreign or key not in FREE or not FREE[key](value)


def settings_document(file: ConfigFile) -> dict[str, Any]:
    """Parse and check a settings file."""
    document = file.document()
    known = (*SETTINGS, *TABLES)
    for name, value in document.items():
        if name in SETTINGS:
            if not isinstance(value, str):
                raise InputError(f'{file.name}: {name} must be a string: {name} = "{SETTINGS[name].kind}"')
        elif name not in TABLES:
            advice = suggestion(name, known) or f"; the keys are {', '.join(known)}"
            raise InputError(f"{file.name}: there is no setting {name!r:.60}{advice}")
        elif name == "keys":
            _check_providers(file, value)
        else:
            from .profile import check_table  # deferred: most files have no tables

            check_table(name, value, where=file.name)
    return document


def _check_providers(file: ConfigFile, value: Any) -> None:
    if file.place == "workspace":
        raise InputError(
            f"{file.name}: keys do not belong in a workspace; set {', '.join(KEY_VARIABLES.values())}, "
            f"or [keys] in {FILE} in TURNSTATE_HOME"
        )
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise InputError(f'{file.name}: the values of [keys] must be strings: openai = "…"')
    for name in value:
        if name not in KEY_VARIABLES:
            advice = suggestion(name, KEY_VARIABLES) or f"; there are {', '.join(KEY_VARIABLES)}"
            raise InputError(f"{file.name}: there is no provider {name!r:.60}{advice}")
