"""The models that Turnstate knows, by the names that providers and routers give them.

A model is found by its id, by an alias, or by the longest id that its name begins with, so that
dated and suffixed versions need no entry: ``gpt-4o-2024-08-06``, ``us.anthropic.claude-sonnet-4-5-
20250929-v1:0`` and ``openrouter/meta-llama/llama-3.1-70b-instruct:free`` all lead somewhere. A new
version number is a new model: ``claude-opus-4`` does not speak for ``claude-opus-4-6``. A model
that is unknown gets safe defaults, says so (``known``), and is logged once.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

import msgspec
from msgspec import Struct

__all__ = ["ModelInfo", "model", "models", "named"]

_MAKERS = "amazon|anthropic|cohere|deepseek|google|meta|mistral|openai|qwen"
# What may come before a name: a path, a region of Bedrock, and who made the model.
_BEFORE = re.compile(
    rf"(?:.*/)?(?:(?:us|us-gov|eu|apac|global|au|ca|jp)\.)?(?:(?:{_MAKERS})\.)?(?:meta-(?=llama))?"
)
# What may follow it, but for a small number: that would be another version of the model.
_AFTER = re.compile(r"[-@:](?!\d{1,2}(?![0-9a-z])).+")


class ModelInfo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model takes and gives, and which counter counts its tokens."""

    id: str
    name: str
    provider: str
    context_window: int
    output_limit: int
    counter: str
    features: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    known: bool = True


class _Family(Struct, frozen=True, forbid_unknown_fields=True):
    provider: str
    counter: str


class _Unknown(Struct, frozen=True, forbid_unknown_fields=True):
    context_window: int
    output_limit: int


class _Table(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    unknown: _Unknown
    families: dict[str, _Family]
    model: tuple[ModelInfo, ...]


@lru_cache(maxsize=1024)  # bounded: names come from outside
def model(name: str) -> ModelInfo:
    """Find a model by its name, whatever the case; an unknown one gets safe defaults."""
    full = name.strip().lower()
    bare = full[_end_of_prefix(full) :]
    known = _by_name()
    found = known.get(full) or known.get(bare)
    if found:
        return found
    begun = [one for one in known if bare.startswith(one) and _AFTER.fullmatch(bare, len(one))]
    return known[max(begun, key=len)] if begun else _default(name.strip(), bare)


def named(name: str) -> ModelInfo:
    """Find a model and keep the exact name that it was asked for by, since a provider knows it by that."""
    return msgspec.structs.replace(model(name), id=name)


def models() -> tuple[ModelInfo, ...]:
    """List the models of the catalog, in its order."""
    return _table().model


def _default(name: str, bare: str) -> ModelInfo:
    """Describe a model that the catalog does not list."""
    import logging  # seldom needed, so not with `import turnstate`

    unknown = _table().unknown
    begun = [family for family in _table().families if bare.startswith(family)]
    kin = _table().families[max(begun, key=len)] if begun else _Family("unknown", "estimate")
    text = "the model %r is not in the catalog: taken to have a window of %d tokens, counted by %s"
    logging.getLogger(__name__).warning(text, name[:200], unknown.context_window, kin.counter)
    return ModelInfo(
        id=name,
        name=name,
        provider=kin.provider,
        context_window=unknown.context_window,
        output_limit=unknown.output_limit,
        counter=kin.counter,
        known=False,
    )


def _end_of_prefix(name: str) -> int:
    found = _BEFORE.match(name)
    return found.end() if found else 0


@cache
def _by_name() -> dict[str, ModelInfo]:
    """Map every id and alias to its model."""
    return {name: entry for entry in _table().model for name in (entry.id, *entry.aliases)}


@cache
def _table() -> _Table:
    import tomllib  # with the first model that is asked for
    from importlib import resources

    text = (resources.files(__package__) / "catalog.toml").read_text(encoding="utf-8")
    content: dict[str, Any] = tomllib.loads(text)
    return msgspec.convert(content, _Table)
