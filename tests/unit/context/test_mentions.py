"""Mentions keep the first and the newest things, and count all the others."""

from __future__ import annotations

from turnstate.context.mentions import Capacity, Mention, Mentions, folded, without

ROOM = Capacity(first=2, newest=3)


def names(mentions: Mentions) -> list[str]:
    return [" ".join(mention.parts) for mention in mentions]


def test_the_first_and_the_newest_stay() -> None:
    assert names(folded(Mentions(), list("abcdefgh"), ROOM)) == list("abfgh")


def test_what_drops_out_is_counted() -> None:
    mentions = folded(Mentions(), list("abcdefgh"), ROOM)
    assert mentions.others == 3
    assert mentions.total == 8


def test_what_comes_up_again_is_counted_and_becomes_the_newest() -> None:
    mentions = folded(Mentions(), list("abcdec"), ROOM)
    assert names(mentions) == list("abdec")
    assert [mention.times for mention in mentions] == [1, 1, 1, 1, 2]


def test_what_came_up_first_stays_in_its_place() -> None:
    assert folded(Mentions(), list("abcaa"), ROOM).first == (Mention("a", 3), Mention("b", 1))


def test_folding_in_pieces_lists_what_folding_at_once_lists() -> None:
    letters = list("abracadabra simsalabim hocus pocus")
    at_once = folded(Mentions(), letters, ROOM)
    for size in (1, 2, 5, 11):
        in_pieces = Mentions()
        for start in range(0, len(letters), size):
            in_pieces = folded(in_pieces, letters[start : start + size], ROOM)
        assert names(in_pieces) == names(at_once)
        assert in_pieces.total == at_once.total == len(letters)


def test_what_is_not_read_is_counted_all_the_same() -> None:
    assert folded(Mentions(), ["a"], ROOM, unread=4) == Mentions((Mention("a"),), (), 4)


def test_words_that_belong_together_are_one_thing() -> None:
    mentions = folded(Mentions(), [("user_id", "7"), ("user_id", "8"), ("user_id", "7")], ROOM)
    assert [mention.parts for mention in mentions] == [("user_id", "7"), ("user_id", "8")]


def test_too_much_from_elsewhere_is_brought_back_to_the_room() -> None:
    crowded = Mentions(tuple(map(Mention, "abcdef")), tuple(map(Mention, "ghijkl")), 5)
    mentions = folded(crowded, [], ROOM)
    assert names(mentions) == list("abjkl")
    assert mentions.total == crowded.total


def test_no_name_takes_the_places_of_all_others() -> None:
    room = Capacity(first=0, newest=9, of_one_name=2)
    mentions = folded(Mentions(), [("user_id", "1"), *(("id", str(n)) for n in range(8))], room)
    assert [mention.parts for mention in mentions] == [("user_id", "1"), ("id", "6"), ("id", "7")]
    assert mentions.total == 9


def test_what_is_over_is_dropped() -> None:
    mentions = folded(Mentions(), list("abcdefgh"), ROOM)
    assert names(without(mentions, lambda one: one.name in "ag")) == list("bfh")
