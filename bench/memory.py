"""Memory: how many of the turns that contain an answer are found, compared with plain BM25, and how fast.

Recall of the evidence is the share of the turns with the answer that are among the first k. Plain BM25 ranks
the words of single turns as they are written. The time is that of a search from Python, in a memory of 50,000
turns on disk: the dialogues repeated, each time in new sessions. The processor time shows what a search costs
even if other programs run.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from math import log
from pathlib import Path

from turnstate.errors import TurnstateError
from turnstate.memory import Listed, SessionRecord, User
from turnstate.memory.builtin import connect
from turnstate.memory.embedder import Embedder
from turnstate.memory.embedders import open_embedder

from .memory_dialogues import KINDS, STYLES, Dialogue, Query, dialogues

DEPTHS = (5, 10, 20)
TURNS = 50_000
QUERIES = 200
WARM = 10
ASKED = User("bench", "one")

Found = dict[tuple[int, Query], list[str]]


def main() -> None:
    """Print recall and times."""
    talks = dialogues()
    if not talks:
        print("the dialogues are not here: set TURNSTATE_DATA to the folder with locomo-dev.json")
        return
    counts = sum(len(session) for talk in talks for session in talk.sessions)
    print(f"{len(talks)} dialogues, {counts:,} turns, {sum(len(talk.queries) for talk in talks)} questions")
    _print_recall("plain BM25", _with_bm25(talks))
    for style in STYLES:
        _print_recall(f"default, {style}", asyncio.run(_with_engine(talks, style, None)))
    embedder: _Known | None = None
    try:
        embedder = _Known(asyncio.run(open_embedder("local")))
        _print_recall("local embedder, names", asyncio.run(_with_engine(talks, "names", embedder)))
    except TurnstateError as missing:
        print(f"without the local embedder: {missing}")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_fill(talks, Path(folder) / "memory.db", embedder))
        print(f"time of a search, load {os.getloadavg()[0]:.1f}")
        for one in (None, embedder) if embedder else (None,):
            asyncio.run(_print_times(talks, Path(folder) / "memory.db", one))


def _print_recall(name: str, found: Found) -> None:
    def recall(k: int, kind: int | None) -> float:
        return statistics.fmean(
            len(query.evidence & set(ids[:k])) / len(query.evidence)
            for (_, query), ids in found.items()
            if kind in (None, query.kind)
        )

    print(f"\n{name}: recall of the first {', '.join(map(str, DEPTHS))}", flush=True)
    for kind, title in [(None, "all"), *KINDS.items()]:
        print(f"  {title:16} {'  '.join(f'{recall(k, kind):.3f}' for k in DEPTHS)}", flush=True)


# Plain BM25

K1, B = 1.2, 0.75
_WORD = re.compile(r"\w+")


def _with_bm25(talks: list[Dialogue]) -> Found:
    found: Found = {}
    for number, talk in enumerate(talks):
        sessions = range(len(talk.sessions))
        rank = _bm25({one.id: one.text for session in sessions for one in talk.messages(session, "names")})
        for query in talk.queries:
            found[number, query] = rank(query.text)
    return found


def _bm25(texts: dict[str, str]) -> Callable[[str], list[str]]:
    bags = {id: Counter(_WORD.findall(text.lower())) for id, text in texts.items()}
    lengths = {id: bag.total() for id, bag in bags.items()}
    mean = statistics.fmean(lengths.values())
    spread = Counter(word for bag in bags.values() for word in bag)

    def ranked(question: str) -> list[str]:
        scores = defaultdict[str, float](float)
        for word in _WORD.findall(question.lower()):
            idf = log(1 + (len(bags) - spread[word] + 0.5) / (spread[word] + 0.5))
            for id, bag in bags.items():
                if word in bag:
                    norm = K1 * (1 - B + B * lengths[id] / mean)
                    scores[id] += idf * bag[word] * (K1 + 1) / (bag[word] + norm)
        return sorted(scores, key=lambda id: -scores[id])[: max(DEPTHS)]

    return ranked


# The built-in engine


async def _with_engine(talks: list[Dialogue], style: str, embedder: Embedder | None) -> Found:
    engine, found = await connect("", embedder=embedder), Found()
    for number, talk in enumerate(talks):
        user = User("bench", f"user {number}")
        for session in range(len(talk.sessions)):
            await engine.ingest(_record(talk, session, style, user, f"{number}-{session}"))
        for query in talk.queries:
            hits = await engine.search(user, query.text, max(DEPTHS))
            found[number, query] = [hit.message for hit in hits]
    await engine.close()
    return found


def _record(talk: Dialogue, session: int, style: str, user: User, name: str) -> SessionRecord:
    return SessionRecord(
        key=name,
        tenant=user.tenant,
        session=name,
        user=user.id,
        epoch=1,
        messages=Listed(talk.messages(session, style)),
        since=1,
        reason="end",
        started=1,
        ended=2,
        summary="",
    )


async def _fill(talks: list[Dialogue], path: Path, embedder: Embedder | None) -> None:
    """Store the dialogues repeatedly; an engine that is opened without the embedder ignores the vectors."""
    engine, started = await connect(str(path), embedder=embedder), time.perf_counter()
    count, lap = 0, 0
    while count < TURNS:
        for number, talk in enumerate(talks):
            for session in range(len(talk.sessions)):
                if count < TURNS:
                    await engine.ingest(_record(talk, session, "names", ASKED, f"{lap}-{number}-{session}"))
                    count += len(talk.sessions[session])
        lap += 1
    await engine.close()
    size = sum(file.stat().st_size for file in path.parent.iterdir()) / 1e6
    print(f"\n{count:,} turns stored in {time.perf_counter() - started:,.0f} s, {size:.0f} MB", flush=True)


async def _print_times(talks: list[Dialogue], path: Path, embedder: Embedder | None) -> None:
    engine = await connect(str(path), embedder=embedder)
    queries = [query.text for talk in talks for query in talk.queries]
    queries = queries[:: max(1, len(queries) // QUERIES)][:QUERIES]
    times, works = list[float](), list[float]()
    for text in [*queries[:WARM], *queries]:
        begin, busy = time.perf_counter(), time.process_time()
        await engine.search(ASKED, text, 10)
        times.append((time.perf_counter() - begin) * 1000)
        works.append((time.process_time() - busy) * 1000)
    name = "local embedder" if embedder else "default"
    print(f"{name:16} {_spread(times[WARM:])}; of the processor {_spread(works[WARM:])}", flush=True)
    await engine.close()


def _spread(times: list[float]) -> str:
    return f"median {statistics.median(times):.1f} ms, p99 {sorted(times)[int(len(times) * 0.99)]:.1f} ms"


class _Known:
    """An embedder that computes each text only once: the dialogues are stored many times."""

    def __init__(self, embedder: Embedder) -> None:
        self.name, self._embedder = embedder.name, embedder
        self._known = dict[str, list[float]]()

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if len(texts) == 1:  # a question is computed each time, as in real use
            return await self._embedder.embed(texts)
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known |= dict(zip(new, await self._embedder.embed(new), strict=True))
        return [self._known[text] for text in texts]

    async def close(self) -> None:
        """Do nothing: the next engine uses the embedder again."""
