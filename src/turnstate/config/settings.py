"""Settings: their values, and where each comes from.

    flag  >  environment variable  >  workspace's turnstate.toml  >  user's turnstate.toml  >  default

The workspace is the current folder unless another is given; the user's file is in ``TURNSTATE_HOME``. A
workspace's file may come from anyone. Until the user has approved its content, it can only choose a model by
its name (`table.FREE`). Everything else in it is withheld: no path or address in it is looked at, using it
raises `NotTrusted`, and commands that do not use it work. Provider keys are never read from a workspace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import Struct

from ..home import Home
from .effects import shown_url
from .source import ConfigFile, checked, read
from .table import FILE, KEY_VARIABLES, SETTINGS, TABLES, Setting, asks, default_store, settings_document
from .trust import NotTrusted, Trust

if TYPE_CHECKING:
    from ..agent import Limits
    from ..context.policy import Policy
    from ..session import Recall
    from ..tools import McpServer, Rule
    from .profile import CommandSettings, HookCommands, Sizes

T = TypeVar("T")


class Origin(Struct, frozen=True):
    """Where a value comes from: its kind, and the flag, the variable or the file."""

    kind: Literal["flag", "environment", "workspace", "user", "default"]
    place: str = ""

    def __str__(self) -> str:
        return self.place or self.kind


class Given(Struct, frozen=True, kw_only=True):
    """A value that is set: a whole setting, or one field of a table."""

    key: str
    value: Any
    origin: Origin
    withheld: bool = False


class _Layer(Struct, frozen=True):
    file: ConfigFile
    document: dict[str, Any]
    trusted: bool

    @property
    def origin(self) -> Origin:
        return Origin(self.file.place, str(self.file.path))

    def withholds(self, key: str) -> bool:
        """Return True if the file sets a key to a value that the user has not approved."""
        return not self.trusted and key in self.document and asks(self.file, key, self.document[key])


class Settings:
    """All settings of a workspace, from flags, the environment and files."""

    def __init__(self, texts: Mapping[str, Given], layers: tuple[_Layer, ...]) -> None:
        self._texts, self._layers = texts, layers

    @classmethod
    def load(
        cls,
        folder: Path | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        flags: Mapping[str, str | None] | None = None,
        home: Home | None = None,
    ) -> Settings:
        """Read the files; raise `InputError` if one is invalid. `environment` defaults to `os.environ`."""
        environment = os.environ if environment is None else environment
        home = home or Home.from_environment()
        layers = tuple(_layers(folder or Path.cwd(), home))
        texts = dict[str, Given]()
        for key, setting in SETTINGS.items():
            for layer in layers:
                if value := layer.document.get(key):
                    hidden = layer.withholds(key)
                    texts[key] = Given(key=key, value=value, origin=layer.origin, withheld=hidden)
            if value := environment.get(setting.variable):
                texts[key] = Given(key=key, value=value, origin=Origin("environment", setting.variable))
            if value := (flags or {}).get(key):
                texts[key] = Given(key=key, value=value, origin=Origin("flag", setting.flag))
        return cls(texts, layers)

    def text(self, key: str) -> str | None:
        """Return a setting, or None; raise `NotTrusted` if its file has not been approved."""
        given = self._texts.get(key)
        if given is None:
            return None
        if given.withheld:
            what = f"{key} = {shown_url(given.value)!r}"
            raise _not_trusted(Path(given.origin.place), what, instead=SETTINGS[key])
        value: str = given.value
        return value

    def flag(self, key: str) -> str | None:
        """Return the value of a flag, which the user gave for this run; None without one."""
        given = self._texts.get(key)
        return given.value if given is not None and given.origin.kind == "flag" else None

    def chosen(self, key: str, instead: str | None) -> str | None:
        """Return the value of a flag or a variable, else ``instead``, else the value of a file."""
        given = self._texts.get(key)
        is_explicit = given is not None and given.origin.kind in ("flag", "environment")
        return self.text(key) if is_explicit or not instead else instead

    @property
    def store(self) -> str:
        """The URL of the store."""
        return self.text("store") or default_store()

    @property
    def policy(self) -> Policy:
        """The policy for building windows."""
        from ..context.policy import Policy

        return self._table("policy", Policy)

    @property
    def recall(self) -> Recall:
        """The amount of memory that a session gets."""
        from ..session import Recall

        return self._table("recall", Recall)

    @property
    def limits(self) -> Limits:
        """The limits of an agent's run."""
        from ..agent import Limits

        return self._table("limits", Limits)

    @property
    def sizes(self) -> Sizes:
        """The token sizes of a request, as far as they are set."""
        from .profile import Sizes

        return self._table("budget", Sizes)

    @property
    def hooks(self) -> HookCommands:
        """Commands that run at the steps of every agent."""
        from .profile import HookCommands

        return self._table("hooks", HookCommands)

    @property
    def commands(self) -> CommandSettings:
        """What commands and hooks get of the environment."""
        from .profile import CommandSettings

        return self._table("commands", CommandSettings)

    @property
    def servers(self) -> dict[str, McpServer]:
        """The MCP servers of every agent, by name."""
        from .profile import servers

        return {one.name: one for layer in self._trusted("mcp") for one in servers(layer.document["mcp"])}

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules for tools, the user's and the workspace's; the strictest that matches wins."""
        from .profile import rules

        return tuple(one for layer in self._trusted("approve") for one in rules(layer.document["approve"]))

    def register_models(self) -> None:
        """Add the models of the files to the catalog; those of a file that is not approved have no effect."""
        from .profile import own_models

        for layer in self._layers:
            if "models" in layer.document and not layer.withholds("models"):
                for name, one in own_models(layer.document["models"], where=layer.file.name).items():
                    one.register(name)

    def key(self, provider: str) -> str | None:
        """Return the key of a provider from the user's file; the SDK itself reads the environment."""
        for layer in self._layers:
            if found := layer.document.get("keys", {}).get(provider):
                return str(found)
        return None

    def has_key(self, provider: str) -> bool:
        """Return True if there is a key for a provider in the environment or in the user's file."""
        return bool(os.environ.get(KEY_VARIABLES[provider]) or self.key(provider))

    def check_trusted(self) -> None:
        """Raise `NotTrusted` if a file has a value that is not approved and that nothing overrides."""
        for layer in self._layers:
            for key in layer.document:
                replaced = key in SETTINGS and not self._texts[key].withheld
                if layer.withholds(key) and not replaced:
                    raise _not_trusted(layer.file.path, key, instead=SETTINGS.get(key))

    def given(self) -> Iterator[Given]:
        """Yield every value that is set, and the defaults of the settings that are strings."""
        for key in SETTINGS:
            default = Given(key=key, value=_default(key), origin=Origin("default"))
            yield self._texts.get(key, default)
        fields = dict[str, Given]()
        for layer in self._layers:
            for table in TABLES:
                for name, value in _fields(layer.document.get(table)):
                    key, hidden = f"{table}.{name}", layer.withholds(table)
                    fields[key] = Given(key=key, value=value, origin=layer.origin, withheld=hidden)
        yield from fields.values()

    def _table(self, key: str, kind: type[T]) -> T:
        merged = dict[str, Any]()
        for layer in self._trusted(key):
            merged |= layer.document[key]
        return checked(merged, kind, where=key)

    def _trusted(self, key: str) -> Iterator[_Layer]:
        """Yield the files that set a key, the user's first; raise `NotTrusted` if one is not approved."""
        for layer in self._layers:
            if layer.withholds(key):
                raise _not_trusted(layer.file.path, f"[{key}]")
            if key in layer.document:
                yield layer


def _default(key: str) -> str:
    return {"store": default_store(), "memory": "builtin"}.get(key, "")


def _layers(folder: Path, home: Home) -> Iterator[_Layer]:
    """Yield the user's file and the workspace's, if they exist."""
    if (file := read(home.path, FILE, place="user")) is not None:
        yield _Layer(file, settings_document(file), True)
    if (file := read(folder, FILE, place="workspace")) is not None:
        document = settings_document(file)
        yield _Layer(file, document, Trust(home).approves(file.path, file.content))


def _fields(table: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a table; the items of a list are named by their numbers."""
    if isinstance(table, list):
        yield from ((str(number), one) for number, one in enumerate(table, start=1))
    elif table is not None:
        yield from table.items()


def _not_trusted(path: Path, what: str, *, instead: Setting | None = None) -> NotTrusted:
    other = f"; {instead.flag} or {instead.variable} takes its place" if instead else ""
    return NotTrusted(
        f"{path} says {what}, which you have not approved; look at it and run: turnstate config trust{other}"
    )
