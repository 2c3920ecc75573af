"""The built-in engine: remembers turns and facts in SQLite or PostgreSQL, and answers questions from them.

    engine = await connect("memory.db")
    engine = await connect("postgresql://…/agents?embedder=local&extractor=gpt-6-luna")

An address is a path or the URL of a PostgreSQL database; if it is empty, the memory is in this process only.
After a question mark, ``embedder`` names an embedder, ``reranker`` a reranker, ``extractor`` a model that
decides which facts there are, ``rules=off`` turns off the rules that propose them, and ``max`` and ``facts``
are the most documents and facts to keep per user.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qsl, urlencode

from ...errors import InputError
from ...models import connect as model_at
from ..embedders import open_embedder
from ..model_extraction import ModelExtractor
from ..reranker import open_reranker
from .database import Database
from .engine import MAX_DOCUMENTS, MAX_FACTS, BuiltinEngine
from .sqlite import SqliteDatabase

__all__ = ["MAX_DOCUMENTS", "MAX_FACTS", "BuiltinEngine", "ModelExtractor", "connect"]

_POSTGRES = ("postgresql:", "postgres:")
_SETTINGS = ("embedder", "extractor", "rules", "max", "facts", "reranker")


async def connect(address: str, **settings: Any) -> BuiltinEngine:
    """Open the memory at an address; ``settings`` are those of `BuiltinEngine` and override the address."""
    place, asked = _taken_apart(address)
    given: dict[str, Any] = {
        f"max_{what}": _most(name, asked[name])
        for name, what in (("max", "documents"), ("facts", "facts"))
        if name in asked
    }
    if "rules" in asked:
        given["rules"] = _is_on(asked["rules"])
    if asked.get("extractor") and "extractor" not in settings:
        given["extractor"] = ModelExtractor(model_at(asked["extractor"]))
    if asked.get("embedder") and "embedder" not in settings:
        given["embedder"] = await open_embedder(asked["embedder"])
    if asked.get("reranker") and "reranker" not in settings:
        given["reranker"] = await open_reranker(asked["reranker"])
    return BuiltinEngine(await _database(place), **(given | settings))


def _taken_apart(address: str) -> tuple[str, dict[str, str]]:
    """Split an address into the place of the database and the settings of the engine."""
    place, mark, query = address.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True) if mark else []
    other = [pair for pair in pairs if pair[0] not in _SETTINGS]
    if other and not address.startswith(_POSTGRES):
        known = ", ".join(_SETTINGS)
        raise InputError(f"{other[0][0]!r:.40} is not a memory setting; known settings: {known}")
    return place + (f"?{urlencode(other)}" if other else ""), dict(
        pair for pair in pairs if pair[0] in _SETTINGS
    )


def _is_on(text: str) -> bool:
    if text not in ("on", "off"):
        raise InputError(f"rules={text!r:.40} in the address of a memory is neither on nor off")
    return text == "on"


def _most(name: str, text: str) -> int:
    """Parse the most documents or facts of a user from the text in an address."""
    most = int(text) if text.isdecimal() and len(text) < 10 else 0
    if not most:
        raise InputError(f"{name}={text!r:.40} in the address of a memory is not a number")
    return most


async def _database(place: str) -> Database:
    if place.startswith(_POSTGRES):
        try:
            from .postgres import PostgresDatabase  # an optional dependency
        except ModuleNotFoundError as missing:
            if missing.name != "asyncpg":
                raise
            raise InputError(
                "memory in PostgreSQL needs asyncpg: pip install 'turnstate[postgres]'"
            ) from None
        return await PostgresDatabase.open(place)
    path = place.removeprefix("sqlite:///")
    if "://" in path or path.startswith(("redis:", "memory:")):
        raise InputError(f"memory cannot be kept at {path.partition(':')[0]}:; give a path or postgresql://…")
    return await asyncio.to_thread(SqliteDatabase, path or None)
