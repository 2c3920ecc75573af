"""Ranking on small memories: what each principle promises, one test each."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from turnstate.memory.builtin.question import Question
from turnstate.memory.builtin.ranking import RankedTurn, Ranking, TurnScan
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
        ranking = Ranking(question, self.turns, numbers, mean, similar)
        for group in question.groups:
            ranking.add(group.weights, scan.idf[group.term], lists)
        return [number for number, _ in ranking.best()]


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
