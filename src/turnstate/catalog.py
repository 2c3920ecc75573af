"""The model catalog: lookup by the names that providers and routers use.

A model is found by its id, by an alias, or by the longest id that its name begins with. So dated
and suffixed versions need no entry: ``gpt-4o-2024-08-06``, ``us.anthropic.claude-sonnet-4-5-
20250929-v1:0`` and ``openrouter/meta-llama/llama-3.1-70b-instruct:free`` all resolve. A new
version number is a new model: ``claude-opus-4`` does not match ``claude-opus-4-6``. An unknown
model gets safe defaults and ``known=False``, and is logged once.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

import msgspec
from msgspec import Struct

__all__ = ["ModelInfo", "model", "models", "named"]

_MAKERS = "amazon|anthropic|cohere|deepseek|google|meta|mistral|openai|qwen"
# Prefixes that a name may have: a path, a Bedrock region, and the maker of the model.
_BEFORE = re.compile(
    rf"(?:.*/)?(?:(?:us|us-gov|eu|apac|global|au|ca|jp)\.)?(?:(?:{_MAKERS})\.)?(?:meta-(?=llama))?"
)
# Suffixes that a name may have. A small number is not one: it means another version of the model.
_AFTER = re.compile(r"[-@:](?!\d{1,2}(?![0-9a-z])).+")


class ModelInfo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits and features of a model, and the counter for its tokens."""

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
    """The contents of ``catalog.toml``."""

    unknown: _Unknown
    families: dict[str, _Family]
    model: tuple[ModelInfo, ...]


@lru_cache(maxsize=1024)  # bounded: names come from outside
def model(name: str) -> ModelInfo:
    """Find a model by name, ignoring case; an unknown model gets safe defaults."""
    full = name.strip().lower()
    bare = full[_end_of_prefix(full) :]
    known = _by_name()
    found = known.get(full) or known.get(bare)
    if found:
        return found
    begun = [one for one in known if bare.startswith(one) and _AFTER.fullmatch(bare, len(one))]
    return known[max(begun, key=len)] if begun else _default(name.strip(), bare)


def named(name: str) -> ModelInfo:
    """Find a model and set its id to the exact name requested, which is the one the provider knows."""
    return msgspec.structs.replace(model(name), id=name)


def models() -> tuple[ModelInfo, ...]:
    """List the models of the catalog, in its order."""
    return _table().model


def _default(name: str, bare: str) -> ModelInfo:
    """Describe a model that the catalog does not list."""
    import logging  # rarely needed, so not imported with `turnstate`

    unknown = _table().unknown
    begun = [family for family in _table().families if bare.startswith(family)]
    kin = _table().families[max(begun, key=len)] if begun else _Family("unknown", "estimate")
    text = "the model %r is not in the catalog: assuming a window of %d tokens, counted with %s"
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
    import tomllib  # imported with the first lookup
    from importlib import resources

    text = (resources.files(__package__) / "catalog.toml").read_text(encoding="utf-8")
    content: dict[str, Any] = tomllib.loads(text)
    return msgspec.convert(content, _Table)
