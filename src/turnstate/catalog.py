"""The model catalog: limits, prices and counters, found by the names that providers and routers use.

A model is found by its id, by an alias, or by the longest id that its name begins with, if only a date, a
revision, ``-latest`` or a tag follows. So these need no entry: ``gpt-5.4-2026-03-05``, ``us.anthropic.claude-
sonnet-4-5-20250929-v1:0`` and ``openrouter/meta-llama/llama-3.1-70b-instruct:free`` all resolve. Any other
suffix and a new version number mean another model: ``gpt-4o-audio-preview`` is not ``gpt-4o``, and
``claude-opus-5-9`` is not ``claude-opus-5``. They are relatives, though: an unknown member of a known family
gets the limits of the model that its name begins with, or of the newest one that is not newer, and any other
name gets safe defaults. All have ``known=False`` and no price, and are logged once.

``tools/catalog.py`` writes ``catalog.json`` from data that others keep. A price that is not known is absent.
A price belongs to a seller: under a name that is not the maker's, such as ``openrouter/…``, an alias or a
region of Amazon Bedrock, there is a price only if the catalog lists that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from .value import TOKENS, check_kind, check_number, check_string, check_whole, refuse

if TYPE_CHECKING:
    from .entry import Usage

__all__ = [
    "Cost",
    "ModelInfo",
    "Prices",
    "begins",
    "cost",
    "model",
    "models",
    "named",
    "register",
    "relative",
]

MILLION = 1_000_000

_MAKERS = "amazon|anthropic|cohere|deepseek|google|meta|mistral|moonshotai|openai|qwen|zai"
# Prefixes that a name may have: a path, a Bedrock region, and the maker of the model.
_BEFORE = re.compile(
    rf"(?:.*/)?(?:(?:us|us-gov|eu|apac|global|au|ca|jp)\.)?(?:(?:{_MAKERS})\.)?(?:meta-(?=llama))?"
)
# What may follow an id without meaning another model: dates and revisions, and a tag of whoever serves it.
# A preview is not among them: prices and limits often change when it ends.
_REVISION = r"\d{3,4}|\d{6}|\d{8}|\d{4}-\d\d-\d\d|latest|v\d(?:\.\d)?"
_TAG = r"(?:[:@].+)?"
_SAME = re.compile(rf"(?:-(?:{_REVISION}))*{_TAG}")
# Open weights come in sizes and tunings that share a window. What is sold does not: a size has its own price.
_SIZE = r"(?:\d+x)?\d+(?:\.\d+)?[bm]|a\d+b|\d+e|instruct|chat|it|fp8|awq|gguf"
_SAME_WEIGHTS = re.compile(rf"(?:-(?:{_REVISION}|{_SIZE}))*{_TAG}")
# Suffixes of a relative. A small number is not one: it means another version of the model.
_AFTER = re.compile(r"[-@:](?!\d{1,2}(?![0-9a-z])).+")
_OWN_PATH = "models/"  # the path that Google itself writes before a name
_VERSION = re.compile(r"\d+(?:[.-]\d{1,2}(?![0-9a-z]))?")
_LONGEST_NAME = 200  # of a relative that is searched for: a longer name is not a model's


class Prices(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices of a million tokens in US dollars.

    ``cached`` is for input that the provider read from its cache, ``written`` for input that it wrote to it,
    and ``written_for_hour`` for what it keeps there for an hour. Without them, the first two cost what
    other input costs, and the third as much as ``written``. ``longer`` has the prices of requests with more
    input than ``above``, which then hold for the whole request.
    """

    input: float
    output: float
    cached: float | None = None
    written: float | None = None
    written_for_hour: float | None = None
    above: int = 0
    longer: tuple[Prices, ...] = ()

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached", "written", "written_for_hour"):
            if getattr(self, name) is not None:
                check_number(f"Prices.{name}", getattr(self, name), least=0, most=MILLION)
        check_whole("Prices.above", self.above, most=TOKENS)

    def cost(self, usage: Usage) -> float:
        """Return the cost of a request and its reply."""
        reached = [one for one in (self, *self.longer) if usage.input > one.above or one is self]
        rates = max(reached, key=lambda one: one.above)
        cached = min(usage.cached, usage.input)
        written = min(_written(usage), usage.input - cached)
        for_hour = min(_written_for_hour(usage), written)
        writing = rates.input if rates.written is None else rates.written
        whole = (usage.input - cached - written) * rates.input + usage.output * rates.output
        whole += cached * (rates.input if rates.cached is None else rates.cached)
        whole += (written - for_hour) * writing
        whole += for_hour * (writing if rates.written_for_hour is None else rates.written_for_hour)
        return whole / MILLION


class ModelInfo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits, features and prices of a model, and the counter for its tokens.

    ``output_is_known`` is False if the output limit is an assumption; then it is reserved, but not sent.
    ``ends`` is the day on which the provider turns the model off, if it has said so. ``sources`` and
    ``as_of`` tell where the figures come from, and when they were taken over.
    """

    id: str
    name: str
    provider: str
    context_window: int
    output_limit: int
    counter: str
    features: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    known: bool = True
    output_is_known: bool = True
    prices: Prices | None = None
    ends: str = ""
    sources: tuple[str, ...] = ()
    as_of: str = ""


class Cost(Struct, frozen=True):
    """What a request cost: as the provider reported it, or computed from prices.

    ``as_of`` is the day of the catalog's prices; those that you registered have none.
    """

    amount: float
    is_reported: bool
    as_of: str = ""


class _Family(Struct, frozen=True, forbid_unknown_fields=True):
    provider: str
    counter: str


class _Unknown(Struct, frozen=True, forbid_unknown_fields=True):
    context_window: int
    output_limit: int


class _Table(Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of ``catalog.json``."""

    written: str
    sources: dict[str, str]
    unknown: _Unknown
    families: dict[str, _Family]
    models: tuple[ModelInfo, ...]
    routes: dict[str, Prices]


_registered: dict[str, ModelInfo] = {}


@lru_cache(maxsize=1024)  # bounded: names come from outside
def model(name: str) -> ModelInfo:
    """Find a model by name, ignoring case; an unknown model gets the limits of a relative, or defaults."""
    full = name.strip().lower()
    bare = full[_end_of_prefix(full) :]
    known = _by_name() | _registered
    found = known.get(full) or known.get(bare)
    if not found:
        begun = [one for one in known if bare.startswith(one) and _AFTER.fullmatch(bare, len(one))]
        longest = max(begun, key=len, default="")
        found = known.get(longest)
        if not found or not begins(longest, bare, weights=found.prices is None):
            return _unknown(name.strip(), bare, found or _relative_of(bare))
    if found.id in _registered or _is_own_name(full, bare, found):
        return found
    return msgspec.structs.replace(found, prices=_table().routes.get(full))


def _is_own_name(full: str, bare: str, found: ModelInfo) -> bool:
    """Return True if a name is the one under which the maker itself sells the model."""
    return bare == full.removeprefix(_OWN_PATH) and bare.startswith(found.id) and not {"@", ":"} & {*full}


def named(name: str) -> ModelInfo:
    """Find a model and set its id to the exact name requested, which is the one the provider knows."""
    return msgspec.structs.replace(model(name), id=name)


def models() -> tuple[ModelInfo, ...]:
    """List the models of the catalog in its order, then those that were registered."""
    return (*_listed(), *dict.fromkeys(_registered.values()))


def register(
    id: str,
    *,
    context_window: int,
    output_limit: int | None = None,
    counter: str = "",
    prices: Prices | None = None,
    name: str = "",
    provider: str = "",
    features: Iterable[str] = (),
    aliases: Iterable[str] = (),
) -> ModelInfo:
    """Add a model of your own for this process, or replace what the catalog says about one.

    What is left out comes from the model's relative, if its name shows one. Without an `output_limit`, none
    is sent.
    """
    check_string("register(id)", id)
    check_whole("register(context_window)", context_window, least=1, most=TOKENS)
    check_kind("register(prices)", prices, Prices, optional=True)
    if output_limit is not None:
        check_whole("register(output_limit)", output_limit, least=1, most=context_window)
    names = [one.strip().lower() for one in (id, *aliases)]
    if not all(names):
        refuse("register(id)", id, "a name that is not empty, for the model and each alias")
    like = _relative_of(names[0]) or model(id)
    info = ModelInfo(
        id=names[0],
        name=name or id,
        provider=provider or like.provider,
        context_window=context_window,
        output_limit=output_limit or min(like.output_limit, context_window),
        counter=counter or like.counter,
        features=tuple(sorted(features)) or like.features,
        aliases=tuple(names[1:]),
        output_is_known=output_limit is not None,
        prices=prices,
        sources=("registered",),
    )
    for one in names:
        _registered[one] = info
    model.cache_clear()
    return info


def cost(usage: Usage) -> Cost | None:
    """Return what a request cost: as the provider reported it, else by the model's prices, else None."""
    told: Any = usage.details.get("usage")
    reported = usage.details.get("cost", told.get("cost") if isinstance(told, Mapping) else None)
    if isinstance(reported, int | float) and not isinstance(reported, bool) and reported >= 0:
        return Cost(float(reported), is_reported=True)
    info = model(usage.model) if usage.model else None
    if info is None or info.prices is None:
        return None
    return Cost(info.prices.cost(usage), is_reported=False, as_of=info.as_of)


def _written(usage: Usage) -> int:
    """Return the input tokens that a provider wrote to its cache, as far as it says so."""
    told: Any = usage.details.get("usage")
    if not isinstance(told, Mapping):
        return 0
    inner: Any = told.get("prompt_tokens_details") or told.get("input_tokens_details")
    given = (
        told.get("cache_creation_input_tokens"),  # Anthropic
        told.get("cacheWriteInputTokens"),  # Amazon Bedrock
        inner.get("cache_write_tokens") if isinstance(inner, Mapping) else None,  # OpenAI
    )
    return next((one for one in given if type(one) is int and one > 0), 0)


def _written_for_hour(usage: Usage) -> int:
    """Return how many of the written tokens stay in the cache for an hour, as far as the provider says so."""
    match usage.details.get("usage"):
        case {"cache_creation": {"ephemeral_1h_input_tokens": int(given)}}:  # Anthropic
            return max(given, 0)
        case {"cacheDetails": [*details]}:  # Amazon Bedrock
            return sum(_for_hour(one) for one in details)
    return 0


def _for_hour(detail: object) -> int:
    match detail:
        case {"ttl": "1h", "inputTokens": int(given)}:
            return max(given, 0)
    return 0


def begins(id: str, name: str, *, weights: bool = False) -> bool:
    """Return True if a name is an id with a date or another suffix that does not mean another model.

    For `weights`, which nobody sells at one price, the suffix may name a size or a tuning, too.
    """
    same = _SAME_WEIGHTS if weights else _SAME
    return name.startswith(id) and same.fullmatch(name, len(id)) is not None


def relative(name: str, known: Iterable[str]) -> str | None:
    """Return the newest known name of the same line (``gpt-…-mini``), or of the same family, if any.

    One that is newer than the name is taken only if there is no other.
    """
    words, wanted = _words(name), _version(name)
    family = [one for one in known if words and _words(one)[:1] == words[:1]]
    near = [one for one in family if _words(one) == words] or family
    reached = [one for one in near if not wanted or _version(one) <= wanted]
    return max(sorted(reached), key=_version) if reached else min(sorted(near), key=_version, default=None)


def _words(name: str) -> list[str]:
    return re.findall("[a-z]+", name)


def _version(name: str) -> tuple[int, ...]:
    found = _VERSION.search(name[:_LONGEST_NAME])
    return tuple(int(one[:9]) for one in re.split("[.-]", found[0])) if found else ()


def _relative_of(bare: str) -> ModelInfo | None:
    """Return the relative of a model whose name shows a known family."""
    if not _family(bare):
        return None
    found = relative(bare[:_LONGEST_NAME], _by_name())
    return _by_name()[found] if found else None


def _family(bare: str) -> _Family | None:
    begun = [family for family in _table().families if bare.startswith(family)]
    return _table().families[max(begun, key=len)] if begun else None


def _unknown(name: str, bare: str, kin: ModelInfo | None) -> ModelInfo:
    """Describe a model that the catalog does not list."""
    import logging  # rarely needed, so not imported with `turnstate`

    family, default = _family(bare), _table().unknown
    window = kin.context_window if kin else default.context_window
    counter = kin.counter if kin else family.counter if family else "estimate"
    like = f", as {kin.id} has" if kin else ""
    text = "the model %r is not in the catalog: assuming a window of %d tokens%s, counted with %s"
    logging.getLogger(__name__).warning(text, name[:_LONGEST_NAME], window, like, counter)
    return ModelInfo(
        id=name,
        name=name,
        provider=kin.provider if kin else family.provider if family else "unknown",
        context_window=window,
        output_limit=kin.output_limit if kin else default.output_limit,
        counter=counter,
        known=False,
        output_is_known=False,
    )


def _end_of_prefix(name: str) -> int:
    found = _BEFORE.match(name)
    return found.end() if found else 0


@cache
def _by_name() -> dict[str, ModelInfo]:
    """Map every id and alias of the catalog to its model."""
    return {name: entry for entry in _listed() for name in (entry.id, *entry.aliases)}


@cache
def _listed() -> tuple[ModelInfo, ...]:
    table = _table()
    versions = {name: f"{name} {version}" for name, version in table.sources.items()}
    return tuple(
        msgspec.structs.replace(
            one, sources=tuple(versions.get(name, name) for name in one.sources), as_of=table.written
        )
        for one in table.models
    )


@cache
def _table() -> _Table:
    from importlib import resources  # imported with the first lookup

    content = (resources.files(__package__) / "catalog.json").read_bytes()
    return msgspec.json.decode(content, type=_Table)
