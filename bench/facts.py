"""Facts: how many of those that a careful person would note are found, how many are wrong, and the profile.

Each statement of `bench.fact_statements` belongs to a user of its own. Its messages are delivered as
sessions, a day apart, and what holds afterwards is compared with what should. A correction or a negation is
right if all of it is known and nothing else. A *perfect extractor* claims what should be known: then the
profile must contain it, and nothing that only rules would believe.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from unicodedata import normalize

from turnstate import Message
from turnstate.memory import Listed, SessionRecord, User
from turnstate.memory.builtin import BuiltinEngine, connect
from turnstate.memory.facts import Claim, Fact, FactKind, Said

from .fact_statements import CHANGES, LANGUAGES, Statement, statements

FACTS = 20_000
PROFILES = 20
DAY = "2026-03-{:02}T09:00:00Z"
FIRST_DAY = 4  # a Wednesday

EXACT = ("name", "nickname", "home", "birthplace", "employer", "job", "relation")
"""Facts whose value is compared as a whole; a longer one may have a few words more."""

ROOM = {"en": 16, "ja": 8, "zh": 6}
"""The most characters that a longer value may have besides the words that it must contain."""

_NOT = re.compile(
    r"^(?:not|no|dislikes?|avoids?|hates?)\b|^(?:苦手|なし|嫌い|不喜欢|不吃|不喝|讨厌)", re.IGNORECASE
)
_ARTICLE = re.compile(r"^(?:an?|the) ")


class Score(NamedTuple):
    """How the facts of statements compare with what should be known."""

    wanted: int
    known: int
    right: int
    optional: int
    changes: int
    changed: int
    wrong: tuple[str, ...]

    @property
    def precision(self) -> float:
        """The share of right facts among those found; optional ones do not count."""
        return self.right / max(1, self.known - self.optional)

    @property
    def recall(self) -> float:
        """The share of the wanted facts that were found."""
        return self.right / max(1, self.wanted)


def main() -> None:
    """Print the tables."""
    for held_out in (False, True):
        print(f"\nby rules, {'statements set aside' if held_out else 'statements in view'}")
        chosen = [one for one in statements() if one.held_out == held_out]
        _print(asyncio.run(scored(chosen)))
    found, wanted, wrong = asyncio.run(_perfect(list(statements())))
    score = 2 * found / max(1, wanted + found + wrong)
    print(f"\nprofile with a perfect extractor: {score:.2f} ({found} of {wanted} facts, {wrong} others)")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_print_times(Path(folder) / "memory.db"))


def _print(scores: dict[str, Score]) -> None:
    for language, score in scores.items():
        print(
            f"  {language:4} precision {score.precision:.2f}  recall {score.recall:.2f}"
            f"  corrections and negations {score.changed} of {score.changes}",
            flush=True,
        )


async def scored(chosen: Sequence[Statement]) -> dict[str, Score]:
    """Return how well the rules do, by language and over all of them."""
    parts = dict[str, Score]()
    for language in LANGUAGES:
        parts[language] = await _scored([one for one in chosen if one.language == language])
    wanted, known, right, optional, changes, changed = (
        sum(column) for column in zip(*(part[:6] for part in parts.values()), strict=True)
    )
    wrong = tuple(line for part in parts.values() for line in part.wrong)
    return parts | {"all": Score(wanted, known, right, optional, changes, changed, wrong)}


async def _scored(chosen: Sequence[Statement]) -> Score:
    wanted = known = right = optional = changes = changed = 0
    wrong = list[str]()
    engine = await connect("")
    for number, one in enumerate(chosen):
        user = User("bench", f"user {number}")
        await _tell(engine, user, one)
        facts = [fact for fact in await engine.facts(user) if fact.ended is None]
        must = [fact for fact in one.facts if not fact.startswith("?")]
        hit = [want for want in must if any(_is(want, fact, one.language) for fact in facts)]
        good = [fact for fact in facts if any(_is(want, fact, one.language) for want in must)]
        fine = [
            fact
            for fact in facts
            if fact not in good and any(_is(want, fact, one.language) for want in one.facts)
        ]
        bad = [fact for fact in facts if fact not in good and fact not in fine]
        wanted, known, right = wanted + len(must), known + len(facts), right + len(hit)
        optional += len(fine) + len(good) - len(hit)  # the same fact in two forms is one fact
        if one.trap in CHANGES:
            changes, changed = changes + 1, changed + (len(hit) == len(must) and not bad)
        missed = [want for want in must if want not in hit]
        if missed or bad:
            shown = [f"{fact.kind} [{fact.slot}] {fact.value}" for fact in bad]
            wrong.append(f"{' // '.join(one.messages)}\n      missed {missed}, wrong {shown}")
    await engine.close()
    return Score(wanted, known, right, optional, changes, changed, tuple(wrong))


async def _tell(engine: BuiltinEngine, user: User, one: Statement) -> None:
    for number, text in enumerate(one.messages):
        message = Message.user(text, id=f"m{number}", timestamp=DAY.format(FIRST_DAY + number))
        await engine.ingest(_record(user, f"{user.id}-{number}", [message]))


def _record(user: User, session: str, messages: list[Message]) -> SessionRecord:
    return SessionRecord(
        key=session, tenant=user.tenant, session=session, user=user.id, epoch=1, messages=Listed(messages),
        since=1, reason="end", started=1, ended=2, summary="",
    )  # fmt: skip


def _is(want: str, fact: Fact, language: str) -> bool:
    """Return True if a fact is one that should be known."""
    label, _, values = want.lstrip("?").partition(": ")
    if not _has_label(label, fact):
        return False
    value = _plain(fact.value)
    for one in map(_plain, values.split(" | ")):
        if value == one or (label not in EXACT and one in value and len(value) <= len(one) + ROOM[language]):
            return True
    return False


def _has_label(label: str, fact: Fact) -> bool:
    if label in ("like", "dislike"):
        return fact.kind == "preference" and bool(_NOT.match(fact.value)) == (label == "dislike")
    if label in ("health", "wish"):
        return fact.kind in (label, "preference")
    if label in ("job", "employer"):
        return fact.kind == "work" and fact.slot == label
    if label == "birthday":
        return fact.kind == "date" and any(word in fact.slot for word in ("birthday", "誕生日", "生日"))
    if label == "birthplace":
        return fact.slot == label
    if label == "home":
        return fact.kind == "home" and fact.slot == "home"
    return fact.slot == label if label in ("name", "nickname") else fact.kind == label


def _plain(value: str) -> str:
    words = normalize("NFKC", value).casefold().strip(" “”\"'「」")
    return _ARTICLE.sub("", " ".join(words.split()))


# A perfect extractor

_KINDS: dict[str, tuple[FactKind, str]] = {
    "name": ("name", "name"),
    "nickname": ("name", "nickname"),
    "home": ("home", "home"),
    "birthplace": ("fact", "birthplace"),
    "employer": ("work", "employer"),
    "job": ("work", "job"),
    "birthday": ("date", "date of birthday"),
}


class _Perfect:
    """Claims what should be known after the last message of a statement."""

    def __init__(self, chosen: Iterable[Statement]) -> None:
        self._facts = {one.messages[-1]: one for one in chosen}

    async def claims(self, messages: Sequence[Said]) -> list[Claim]:
        return [
            claim
            for said in messages
            if said.text in self._facts
            for claim in self._claims(said, self._facts[said.text])
        ]

    def _claims(self, said: Said, one: Statement) -> Iterable[Claim]:
        for want in one.facts:
            if not want.startswith("?"):
                label, _, values = want.partition(": ")
                plain: tuple[FactKind, str] = ("preference", "") if "like" in label else (_kind(label), "")
                kind, slot = _KINDS.get(label, plain)
                value = values.split(" | ")[0]
                yield Claim(
                    kind=kind, slot=slot, value=value, text=value, message=said.message, said=said.said
                )


def _kind(label: str) -> FactKind:
    kinds: dict[str, FactKind] = {"health": "preference", "wish": "preference"}
    return kinds.get(label, label)


async def _perfect(chosen: Sequence[Statement]) -> tuple[int, int, int]:
    """Return how many of the facts are in profiles, how many there are, and how many others are in them."""
    engine = await connect("", extractor=_Perfect(chosen))
    found = wanted = others = 0
    for number, one in enumerate(chosen):
        user = User("bench", f"user {number}")
        await _tell(engine, user, one)
        profile = _plain(await engine.profile(user))
        must = [want.partition(": ")[2].split(" | ")[0] for want in one.facts if not want.startswith("?")]
        wanted, found = wanted + len(must), found + sum(_plain(value) in profile for value in must)
        others += sum(fact.value not in must for fact in await engine.facts(user) if fact.ended is None)
    await engine.close()
    return found, wanted, others


# The time of a profile


class _Many:
    """Claims many likes, and an allergy said before all of them."""

    async def claims(self, messages: Sequence[Said]) -> list[Claim]:
        (said, *_) = messages
        return [
            Claim(kind="preference", value=f"song number {number}", text=said.text, message=said.message,
                  said=said.said)
            for number in range(FACTS)
        ]  # fmt: skip


async def _print_times(path: Path) -> None:
    engine, user = await connect(str(path), extractor=_Many()), User("bench", "one")
    message = Message.user("I have many songs to tell of.", id="m1", timestamp=DAY.format(FIRST_DAY))
    begin = time.perf_counter()
    await engine.ingest(_record(user, "songs", [message]))
    print(f"\n{FACTS:,} facts stored in {time.perf_counter() - begin:.1f} s")
    times = list[float]()
    for _ in range(PROFILES):
        begin = time.perf_counter()
        await engine.profile(user)
        times.append((time.perf_counter() - begin) * 1000)
    await engine.close()
    print(f"profile: median {statistics.median(times):.1f} ms, at most {max(times):.1f} ms")
