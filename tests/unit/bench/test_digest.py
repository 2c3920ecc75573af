"""The digest bench finds its facts by rules, and judges windows by their text."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

import pytest

from bench import digest, digest_airline, digest_coding, window_print
from bench.digest_talks import Fact, plain, survives, text_of, values
from bench.peer_process import PeerMissing
from turnstate.context.manager import StateManager
from turnstate.context.window import check


def missing(*_: object) -> None:
    raise PeerMissing("not here")


@pytest.mark.parametrize(
    ("fact", "text", "found"),
    [
        (Fact("goal", ("say “hi”",)), 'they say "hi" twice', True),
        (Fact("done", ("cancel", "R1")), "cancel R2; R1", True),
        (Fact("done", ("cancel", "R1")), "cancel R2", False),
        (Fact("done", ("cancel",), "R1"), "cancel reservation R1", True),
        (Fact("done", ("cancel",), "R1"), "R1 was canceled: cancel", True),
        (Fact("done", ("cancel",), "R1"), "cancel " + "x" * 300 + " R1", False),
        (Fact("done", ("cancel",), "R1"), "R1 " + "x" * 30 + " cancel", False),
    ],
)
def test_a_fact_survives_if_its_strings_are_there_and_near(fact: Fact, text: str, *, found: bool) -> None:
    assert survives(fact, plain(text)) is found


def test_values_are_found_however_deep() -> None:
    assert list(values({"a": [{"id": "1"}, {"b": {"id": "2"}}], "id": "3"}, "id")) == ["1", "2", "3"]


def test_coding_conversations_are_valid_and_the_same_every_time_and_have_their_facts() -> None:
    talks = digest_coding.talks(count=6)
    assert [talk.mixed for talk in talks] == [talk.mixed for talk in digest_coding.talks(count=6)]
    for talk in talks:
        check(talk.messages)
        whole = text_of(talk.messages)
        assert all(survives(fact, whole) for fact in (*talk.mixed, *talk.spread))
        assert StateManager().count(talk.messages).tokens > digest.LIMITS[0] * 2


def test_no_conversation_that_was_set_aside_is_looked_at() -> None:
    seen = {talk.messages[0].text for talk in digest_coding.talks(count=6)}
    assert seen.isdisjoint(talk.messages[0].text for talk in digest_coding.talks(held_out=True, count=6))


def test_the_bench_prints_what_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.window_peer.Peer", missing)
    monkeypatch.delenv("TURNSTATE_DATA", raising=False)
    recorder = window_print.Recorder(sys.stdout)
    with redirect_stdout(recorder):
        digest.main(count=2)
    tables = [item for item in recorder.found if item.get("head", [""])[0] == "way"]
    assert [row[0] for row in tables[0]["rows"]] == ["Turnstate", "head + tail"]
    ours, theirs = (float(row[1]) for row in tables[0]["rows"])
    assert ours > 2 * theirs


def test_the_airlines_dialogues_are_joined_as_the_measure_says() -> None:
    talks = digest_airline.talks(3)
    if not talks:
        pytest.skip(f"set TURNSTATE_DATA to a folder with {digest_airline.FILE}")
    for talk in talks:
        check(talk.messages)
        assert (len(talk.mixed), len(talk.spread)) == (10, 10)
        whole = text_of(talk.messages)
        assert all(survives(fact, whole) for fact in talk.mixed)
