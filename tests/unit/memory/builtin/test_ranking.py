"""Ranking on small memories: what each principle promises, one test each."""

from __future__ import annotations

from array import array
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate.memory.builtin import ranking
from turnstate.memory.builtin.question import Question
from turnstate.memory.builtin.ranking import KERNEL, RankedTurn, Ranking, Surroundings, TurnScan
from turnstate.memory.builtin.signs import Sign, signs
from turnstate.memory.builtin.terms import terms


class Memory:
    """Turns in memory: author, session, text, day."""

    def __init__(self, *turns: tuple[str, int, str, str]) -> None:
        self.lists: dict[str, array[int]] = {}
        self.turns = dict[int, RankedTurn]()
        for number, (author, session, text, day) in enumerate(turns):
            found = terms(text)
            for term in found:
                self.lists.setdefault(term, array("I")).append(number)
            self.turns[number] = RankedTurn(
                number, session, author, author, day, len(found), int(signs(text))
            )
        self.authors = {turn.author: turn.author for turn in self.turns.values()}

    def found(self, text: str, similar: dict[int, float] | None = None) -> list[int]:
        question = Question.of(text, self.authors)
        lists = {term: self.lists[term] for term in question.terms if term in self.lists}
        scan = TurnScan(question, lists, len(self.turns))
        numbers = scan.found() if similar is None else list(self.turns)
        mean = sum(turn.length for turn in self.turns.values()) / len(self.turns)
        candidates = [self.turns[number] for number in numbers if number in self.turns]
        ranking = Ranking(question, candidates, self.around(), mean, similar)
        for group in question.groups:
            ranking.add(group.weights, scan.idf[group.term], lists)
        return [number for number, _ in ranking.best()]

    def around(self) -> Surroundings:
        turns = self.turns.values()
        return Surroundings(
            [turn.number for turn in turns],
            [turn.session for turn in turns],
            [turn.length for turn in turns],
            [turn.signs for turn in turns],
        )


DAY = "2025-06-15"


def test_an_elliptical_answer_is_found_through_the_question_before_it() -> None:
    memory = Memory(
        ("nate", 0, "The weather is fine.", DAY),
        ("joanna", 1, "How was the coconut ice cream?", DAY),
        ("nate", 1, "Super good! It was rich.", DAY),
        ("joanna", 2, "I like the beach.", DAY),
    )
    assert memory.found("What did nate say about the coconut ice cream?")[0] == 2


def test_a_neighbor_of_another_session_is_none() -> None:
    memory = Memory(("nate", 1, "coconut ice cream", DAY), ("nate", 2, "Super good!", DAY))
    assert memory.found("coconut ice cream") == [0]


def test_the_author_that_a_question_names_wins() -> None:
    memory = Memory(("nate", 1, "I painted a boat.", DAY), ("joanna", 2, "I painted a boat.", DAY))
    assert memory.found("What did joanna paint?")[0] == 1
    assert memory.found("What did nate paint?")[0] == 0


def test_a_date_in_the_question_favors_its_sessions() -> None:
    memory = Memory(
        ("nate", 1, "I painted a boat.", "2023-01-05"), ("nate", 2, "I painted a boat.", "2023-05-04")
    )
    assert memory.found("What was painted on 3 May 2023?")[0] == 1
    assert memory.found("What was painted in January?")[0] == 0


def test_a_question_about_time_favors_turns_that_say_when() -> None:
    memory = Memory(
        ("nate", 1, "Painting boats is my thing.", DAY), ("nate", 2, "Painting boats last year.", DAY)
    )
    assert memory.found("When did nate paint boats?")[0] == 1


def test_a_fact_that_holds_wins_over_one_that_ended() -> None:
    memory = Memory(("user", 1, "We moved to Porto.", DAY), ("user", 2, "We moved to Lisbon.", DAY))
    memory.turns[0] = memory.turns[0]._replace(signs=int(Sign.ENDED))
    memory.turns[1] = memory.turns[1]._replace(signs=int(Sign.FACT))
    assert memory.found("Where did we move?") == [1, 0]


def test_meaning_finds_what_words_do_not() -> None:
    memory = Memory(("nate", 1, "I adopted a puppy.", DAY), ("nate", 2, "The train was late.", DAY))
    assert memory.found("zzz", {0: 0.9, 1: 0.1})[0] == 0


@given(
    st.lists(st.sampled_from(["tea", "milk", "rain", "boat tea", "milk milk", "…"]), min_size=1, max_size=30)
)
def test_every_turn_with_a_word_of_the_question_is_found_once(texts: list[str]) -> None:
    memory = Memory(*(("user", number // 3, text, DAY) for number, text in enumerate(texts)))
    found = memory.found("tea milk")
    assert len(found) == len(set(found))
    assert {number for number, text in enumerate(texts) if "tea" in text or "milk" in text} <= set(found)


WORDS = ["tea", "milk", "rain", "boat"]
postings = st.dictionaries(
    st.sampled_from(WORDS),
    st.lists(st.integers(0, 40).map(lambda number: number * 1_000), min_size=1, max_size=40).map(sorted),
    min_size=1,
)


@given(postings, st.integers(1, 12), st.integers(1, 20))
def test_a_scan_finds_what_adding_up_all_words_of_all_turns_would(
    found: dict[str, list[int]], hits: int, most: int
) -> None:
    question = Question.of(" ".join(WORDS))
    lists = {term: array("I", numbers) for term, numbers in found.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "HITS", hits)
        patch.setattr(ranking, "CANDIDATES", most)
        scan = TurnScan(question, lists, 50)
        result = scan.found()
    scores = defaultdict[int, float](float)
    for term in sorted(lists, key=lambda term: len(lists[term]) / scan.idf[term]):
        for number in set(lists[term]):
            scores[number] += scan.idf[term]
    near = defaultdict[int, float](float)
    for number, score in sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:hits]:
        for offset, share in KERNEL:
            near[number + offset] += score * share
    assert result == [n for n, _ in sorted(near.items(), key=lambda pair: (-pair[1], pair[0]))[:most]]


def test_of_a_long_list_only_what_is_near_the_candidates_counts() -> None:
    texts = ["tea with milk" if number in (40, 900) else "tea" for number in range(1_000)]
    memory = Memory(*(("user", number // 10, text, DAY) for number, text in enumerate(texts)))
    every = list(memory.turns.values())
    question = Question.of("tea milk")

    def scores(candidates: list[RankedTurn]) -> dict[int, float]:
        ranked = Ranking(question, candidates, memory.around(), 1.0)
        for term in ("tea", "milk"):
            ranked.add([(term, 1.0)], 1.0, memory.lists)
        return dict(ranked.best())

    some = scores([memory.turns[number] for number in (40, 44, 900)])  # its runs are bisected
    assert some == {number: score for number, score in scores(every).items() if number in some}
    assert len(some) == 3
