"""Build the vocabulary files of `turnstate.tokens` from the tables in the bpe-openai wheel.

The wheel holds the published rank files, gzipped. Each is checked against the SHA-256 of the
original before it is packed, and `--check` turns the files in the tree back into the original
file and compares the same hash: what we ship is what was published, token for token.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import lzma
import sys
from base64 import b64decode, b64encode
from importlib import resources
from pathlib import Path

from turnstate.errors import TurnstateError
from turnstate.tokens.vocabulary import SIZES, unpacked

ORIGINALS = {
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}
"""SHA-256 of the rank files as they were published."""

DATA = Path(__file__).resolve().parents[1] / "src" / "turnstate" / "tokens" / "data"

# Four bits of context suit text; of the settings tried, these gave the smallest files.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 2}]


def original(tokens: list[bytes]) -> bytes:
    """Write tokens in the published form: one line each, base64 and rank."""
    return b"".join(b"%s %d\n" % (b64encode(token), rank) for rank, token in enumerate(tokens))


def packed(tokens: list[bytes]) -> bytes:
    """Pack tokens into the form that `turnstate.tokens.vocabulary` reads."""
    plain = bytes(map(len, tokens)) + b"".join(tokens)
    return lzma.compress(plain, format=lzma.FORMAT_XZ, check=lzma.CHECK_SHA256, filters=FILTERS)


def published(name: str) -> list[bytes]:
    """Read a rank file from the bpe-openai wheel, refusing one that is not the original."""
    source = resources.files("bpe_openai") / "data" / f"{name}.tiktoken.gz"
    ranks = gzip.decompress(source.read_bytes())
    if (digest := hashlib.sha256(ranks).hexdigest()) != ORIGINALS[name]:
        sys.exit(f"{name}: the wheel's file has SHA-256 {digest}, the original has {ORIGINALS[name]}")
    pairs = [line.split() for line in ranks.splitlines()]
    if [int(rank) for _, rank in pairs] != list(range(len(pairs))):
        sys.exit(f"{name}: the ranks are not 0, 1, 2, …, which is all that the packed form can say")
    return [b64decode(token) for token, _ in pairs]


def build(folder: Path) -> None:
    """Write the packed files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ORIGINALS:
        content = packed(published(name))
        (folder / f"{name}.ranks.xz").write_bytes(content)
        print(f"{name}: {len(content):,} bytes")


def check(folder: Path) -> list[str]:
    """Return the faults of the packed files."""
    faults = []
    for name, digest in ORIGINALS.items():
        try:
            tokens = unpacked((folder / f"{name}.ranks.xz").read_bytes(), size=SIZES[name])
        except (OSError, TurnstateError) as error:
            faults.append(f"{name}: {error}")
            continue
        if hashlib.sha256(original(tokens)).hexdigest() != digest:
            faults.append(f"{name}: the packed tokens are not those of the original")
    return faults


def main() -> None:
    """Build or check, as the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="compare the files in the tree with the originals"
    )
    parser.add_argument("--folder", type=Path, default=DATA, help="where the packed files stand")
    options = parser.parse_args()
    if not options.check:
        build(options.folder)
    if faults := check(options.folder):
        sys.exit("\n".join(faults))
    print("the packed vocabularies hold exactly the published tokens")


if __name__ == "__main__":
    main()
