"""Memory: how many of the turns that contain an answer are found, compared with plain BM25, and how fast.

Recall of the evidence is the share of the turns with the answer that are among the first k. Plain BM25 ranks
the words of single turns as they are written; in Chinese and Japanese, pairs of characters. The questions
are also asked at the end of a long message about something else, and messages without content should find
nothing.

The time is that of a search from Python, in a memory of 50,000 turns on disk: the dialogues repeated, each
time in new sessions. The processor time shows what a search costs even if other programs run.
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

from turnstate import Message
from turnstate.errors import TurnstateError
from turnstate.memory import Listed, SessionRecord, User
from turnstate.memory.builtin import connect
from turnstate.memory.embedder import Embedder
from turnstate.memory.embedders import open_embedder

from .memory_dialogues import KINDS, STYLES, Dialogue, Query, dialogues
from .memory_languages import Asked, Memory, diaries, is_own, is_set_aside, own_dialogues, pairs
from .memory_texts import EMPTY, PREAMBLES

DEPTHS = (5, 10, 20)
TURNS = 50_000
QUERIES = 200
WARM = 10
ASKED = User("bench", "one")

Found = dict[tuple[int, Query], list[str]]


def main() -> None:
    """Print recall by language, then recall and times with the long dialogues."""
    talks = dialogues()
    if not talks:
        print("the dialogues are not here: set TURNSTATE_DATA to the folder with locomo-dev.json")
        return
    _print_languages()
    counts = sum(len(session) for talk in talks for session in talk.sessions)
    print(f"{len(talks)} dialogues, {counts:,} turns, {sum(len(talk.queries) for talk in talks)} questions")
    _print_recall("plain BM25", _with_bm25(talks))
    for style in STYLES:
        _print_recall(f"default, {style}", asyncio.run(_with_engine(talks, style, None)))
    for number, text in enumerate(PREAMBLES, 1):
        found = asyncio.run(_with_engine(talks, "names", None, preamble=text))
        _print_recall(f"default, names, {len(text.split())} other words first ({number})", found)
    _print_empty(talks)
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
        texts = {str(one.id): one.text for session in sessions for one in talk.messages(session, "names")}
        rank = _bm25(texts, words)
        for query in talk.queries:
            found[number, query] = rank(query.text)
    return found


def words(text: str) -> list[str]:
    """Return the words of a text as plain BM25 ranks them."""
    return _WORD.findall(text.lower())


def _bm25(texts: dict[str, str], cut: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    bags = {id: Counter(cut(text)) for id, text in texts.items()}
    lengths = {id: bag.total() for id, bag in bags.items()}
    mean = statistics.fmean(lengths.values())
    spread = Counter(word for bag in bags.values() for word in bag)

    def ranked(question: str) -> list[str]:
        scores = defaultdict[str, float](float)
        for word in cut(question):
            idf = log(1 + (len(bags) - spread[word] + 0.5) / (spread[word] + 0.5))
            for id, bag in bags.items():
                if word in bag:
                    norm = K1 * (1 - B + B * lengths[id] / mean)
                    scores[id] += idf * bag[word] * (K1 + 1) / (bag[word] + norm)
        return sorted(scores, key=lambda id: -scores[id])[: max(DEPTHS)]

    return ranked


# Chinese and Japanese

AMONG = 10
ASKED_AT_ONCE = 6
"""Hits for a message without content, as many as a turn of a session asks for."""


def _print_languages() -> None:
    """Print the recall in Chinese and Japanese, ours and that of BM25 over pairs of characters."""
    groups = defaultdict[str, list[tuple[Asked, list[str], list[str]]]](list)
    for memory in [*diaries(), *own_dialogues()]:
        rank = _bm25({str(one.id): one.text for session in memory.sessions for one in session}, pairs)
        found = asyncio.run(_of_memory(memory))
        for query, ids in zip(memory.queries, found, strict=True):
            groups[_group(memory, query)].append((query, ids, rank(query.text)))
            if not is_own(memory):
                groups["diaries, all"].append(groups[_group(memory, query)][-1])
    print(f"\nrecall of the first {AMONG}: default, and BM25 over pairs of characters")
    for name, asked in sorted(groups.items()):
        ours, plain = (
            statistics.fmean(
                len(one[0].evidence & set(one[n][:AMONG])) / len(one[0].evidence) for one in asked
            )
            for n in (1, 2)
        )
        print(f"  {name:28} {ours:.3f}  {plain:.3f}  {len(asked)} questions", flush=True)


def _group(memory: Memory, query: Asked) -> str:
    if not is_own(memory):
        return f"diaries, {query.kind}"
    return f"{query.kind} dialogue{', set aside' if is_set_aside(memory) else ''}"


async def _of_memory(memory: Memory) -> list[list[str]]:
    engine, user = await connect(""), User("bench", "one")
    for number, messages in enumerate(memory.sessions):
        await engine.ingest(_record(messages, user, str(number)))
    hits = [await engine.search(user, query.text, AMONG) for query in memory.queries]
    await engine.close()
    return [[hit.message for hit in found] for found in hits]


def _print_empty(talks: list[Dialogue]) -> None:
    """Print for how many messages without content something is found in a memory of their language."""
    memories = {"English": [talks[0].messages(n, "roles") for n in range(len(talks[0].sessions))]}
    for memory in own_dialogues():
        memories.setdefault(memory.queries[0].kind.capitalize(), []).extend(memory.sessions)

    async def found(language: str) -> list[int]:
        engine, user = await connect(""), User("bench", "one")
        for number, messages in enumerate(memories[language]):
            await engine.ingest(_record(messages, user, str(number)))
        lines = EMPTY[language].strip().splitlines()
        hits = [len(await engine.search(user, line, ASKED_AT_ONCE)) for line in lines]
        await engine.close()
        return hits

    print(f"\nmessages without content for which something is found, of {ASKED_AT_ONCE} hits asked for")
    for language in EMPTY:
        hits = asyncio.run(found(language))
        print(f"  {language:16} {sum(map(bool, hits))} of {len(hits)}", flush=True)


# The built-in engine


async def _with_engine(
    talks: list[Dialogue], style: str, embedder: Embedder | None, *, preamble: str = ""
) -> Found:
    engine, found = await connect("", embedder=embedder), Found()
    for number, talk in enumerate(talks):
        user = User("bench", f"user {number}")
        for session in range(len(talk.sessions)):
            messages = talk.messages(session, style)
            await engine.ingest(_record(messages, user, f"{number}-{session}"))
        for query in talk.queries:
            hits = await engine.search(user, f"{preamble} {query.text}".strip(), max(DEPTHS))
            found[number, query] = [hit.message for hit in hits]
    await engine.close()
    return found


def _record(messages: list[Message], user: User, name: str) -> SessionRecord:
    return SessionRecord(
        key=name,
        tenant=user.tenant,
        session=name,
        user=user.id,
        epoch=1,
        messages=Listed(messages),
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
                    messages = talk.messages(session, "names")
                    await engine.ingest(_record(messages, ASKED, f"{lap}-{number}-{session}"))
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
