"""The window benches run, and judge rightly, on tiny sizes and without the peer."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

import pytest

from bench import (
    search,
    window_agent,
    window_cache,
    window_peer,
    window_print,
    window_speed,
    window_validity,
    windows,
)
from bench.peer_process import PeerMissing
from turnstate import Message
from turnstate.context.manager import StateManager
from turnstate.ids import CallId
from turnstate.message import ToolCallResult
from turnstate.testing import conversations
from turnstate.tokens.cost import REPLY_START

MANAGER = StateManager()


def missing(*_: object) -> None:
    raise PeerMissing("not here")


def peer_cost(messages: list[Message]) -> int:
    rows = window_peer.rows(messages)
    texts = [text for row in rows for text in row["texts"]]
    return sum(int(row["frame"]) for row in rows) + sum(MANAGER.counter.count(text).tokens for text in texts)


def test_the_agent_says_the_same_every_time_in_turns_of_about_400_tokens() -> None:
    played = window_agent.turns(50)
    assert played == window_agent.turns(50)
    assert len(played) == 50 * window_agent.MESSAGES_A_TURN
    assert 360 < MANAGER.count(played).tokens / 50 < 440


@pytest.mark.parametrize("seed", range(20))
def test_the_peer_counts_what_we_count(seed: int) -> None:
    messages = conversations.valid(seed)
    assert peer_cost(messages) + REPLY_START == MANAGER.count(messages).tokens


@pytest.mark.parametrize("seed", range(20))
def test_what_the_peer_keeps_comes_back_as_it_was(seed: int) -> None:
    messages = conversations.broken(seed)
    ids = [row["id"] for row in window_peer.rows(messages)]
    assert window_peer.kept(messages, ids) == messages


def test_of_a_message_that_the_peer_cut_apart_the_kept_results_come_back() -> None:
    results = [ToolCallResult(tool_call_id=CallId(f"call_{i}"), result="done") for i in range(3)]
    tool = Message.tool(results)
    assert window_peer.kept([tool], ["0.1", "0.2"]) == [tool.replace(tool_results=tuple(results[1:]))]


@pytest.mark.parametrize(
    ("window", "limit", "faults"),
    [
        (window_agent.turns(2), 10**6, set()),
        (window_agent.turns(2), 100, {"over"}),
        (window_agent.turns(2)[:4], 10**6, {"lost"}),
        (window_agent.turns(2)[5:], 10**6, {"anthropic", "lost"}),
        (window_agent.turns(2)[6:], 10**6, {"openai-chat", "anthropic", "lost"}),
        ([], 10**6, {"openai-chat", "anthropic", "lost"}),
    ],
)
def test_the_judge_finds_what_is_wrong_with_a_window(
    window: list[Message], limit: int, faults: set[str]
) -> None:
    assert set(window_validity.judged(window_agent.turns(2), limit, window, MANAGER)) == faults


@pytest.mark.parametrize("interrupted", [False, True])
def test_nothing_is_wrong_with_our_windows(interrupted: bool) -> None:
    cases = window_validity.cases(20, interrupted=interrupted, manager=MANAGER)
    assert len(cases) == 20
    assert set(window_validity.ours(cases, MANAGER)) <= {"overflow"}


def test_a_sliding_window_loses_the_cache_where_ours_keeps_it() -> None:
    play = window_cache.Play([Message.system(window_agent.PROMPT), *window_agent.turns(30)])
    ours = play.shares((window.messages for window in play.ours(lambda _: 6_000)), 6_000)
    sliding = play.shares(play.sliding(6_000), 6_000)
    assert len(ours) == len(sliding) > 0
    assert sum(ours) > 1.3 * sum(sliding)


def test_a_conversation_that_fills_no_window_is_not_measured() -> None:
    with pytest.raises(ValueError, match="do not fill"):
        window_speed.single(window_agent.turns(2), 8_000)


def test_without_the_peer_our_figures_stand_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gc.collect", lambda: 0)  # the heap of all tests, again and again
    monkeypatch.setattr(window_peer, "Peer", missing)
    monkeypatch.setattr(window_speed, "ADDED", 8)
    monkeypatch.setattr(window_speed, "ENOUGH", 0.0)
    windows.main({3_000: (100,)}, conversations=5, played=50, listed=20)
    printed = capsys.readouterr().out
    assert "without the peer: not here" in printed
    assert "trim_messages" not in printed
    assert "Without a session: 20 messages and one more" in printed
    assert "first plan" in printed
    assert "nothing wrong with ours: 0 faults: met" in printed
    assert all(name in printed for name in ("moving by 5%", "both, taking turns", "constant, with recall"))


def test_what_a_bench_prints_is_kept_as_lines_tables_and_goals(capsys: pytest.CaptureFixture[str]) -> None:
    recorder = window_print.Recorder(sys.stdout)
    with redirect_stdout(recorder):
        print("\nBoth (ms).")
        window_print.table(("", "ours"), [["a", "1"]])
        window_print.goal("quick", "1 ×", True)
    assert recorder.found == [
        {"line": "Both (ms)."},
        {"head": ["", "ours"], "rows": [["a", "1"]]},
        {"goal": "quick", "measured": "1 ×", "met": True},
    ]
    assert capsys.readouterr().out.endswith("a     1\ngoal: quick: 1 ×: met\n")


def test_the_bench_of_search_runs_on_a_small_store(capsys: pytest.CaptureFixture[str]) -> None:
    search.main(2_000)
    printed = capsys.readouterr().out
    assert "a word of every message                20" in printed
    assert "a word of one message                   1" in printed
    assert "a word of none                          0" in printed
