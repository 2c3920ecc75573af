from __future__ import annotations

from turnstate.memory.builtin.dates import Period
from turnstate.memory.builtin.question import MAX_GROUPS, Question, related
from turnstate.memory.builtin.signs import Sign

NAMES = {"Joanna": "Joanna", "Nate": "Nate", "Jo": "Joanna", "Mel": "user"}


def test_a_name_is_an_author_and_no_term() -> None:
    question = Question.of("When did Joanna's sister adopt the turtles in May 2022?", NAMES)
    assert question.author == "Joanna"
    assert question.spoken == "When did my sister adopt the turtles in May 2022?"
    assert question.periods == (Period(2022, 5),)
    assert question.kinds == Sign.TIME
    assert [group.term for group in question.groups] == ["sister", "adopt", "turtl", "2022"]


def test_two_authors_are_none_and_two_names_of_one_are_one() -> None:
    assert Question.of("Where did Joanna and Nate meet?", NAMES).author is None
    assert Question.of("Is Jo short for Joanna?", NAMES).author == "Joanna"
    assert Question.of("What did Mel paint?", NAMES).author == "user"
    assert Question.of("Melanie's melon", NAMES).author is None


def test_of_two_names_the_first_is_the_subject_unless_they_are_joined() -> None:
    for text, author, spoken in [
        ("What did Nate tell Joanna's sister?", "Nate", "What did I tell your sister?"),
        ("What did Joanna say to Nate about Nate's dog?", "Joanna", "What did I say to you about your dog?"),
        ("Where did Joanna and Nate meet?", None, "Where did I and I meet?"),
        ("What do Nate's and Joanna's pets eat?", None, "What do my and my pets eat?"),
        ("Did Nate see what Joanna saw, or both?", None, "Did I see what I saw, or both?"),
        ("NateとJoannaの趣味は？", None, "IとIの趣味は？"),
        ("花子は太郎に何を贈りましたか", "花子", "Iはyouに何を贈りましたか"),
        ("林先生在森林里看到了什么", None, "林先生在森林里看到了什么"),
    ]:
        question = Question.of(text, NAMES | {name: name for name in ("花子", "太郎", "林")})
        assert (question.author, question.spoken) == (author, spoken), text


def test_in_a_log_the_pronoun_names_the_role() -> None:
    for text, author in {
        "Where do I live?": "user",
        "What did you suggest?": "assistant",
        "What did you say about my dog?": None,
        "Which database is it?": None,
        "私はどこに住んでいますか": "user",
        "我的狗叫什么": "user",
    }.items():
        assert Question.of(text).author == author, text


def test_related_words_count_less_than_the_words_themselves() -> None:
    (group,) = Question.of("pets").groups
    weights = dict(group.weights)
    assert weights["pet"] == 1.0
    assert 0 < weights["dog"] < 0.5
    assert related("qqqq") == []


def test_a_question_of_any_length_has_a_bounded_number_of_terms() -> None:
    assert len(Question.of(" ".join(f"word{n}" for n in range(1_000))).groups) == MAX_GROUPS
