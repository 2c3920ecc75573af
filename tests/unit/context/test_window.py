"""The window as a whole: what it says of itself, how it grows, what a cache can reuse."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.context.scripts import Letters, shown, talk
from turnstate import Message, ToolCallRequest, ToolCallResult, ToolSpec, formats
from turnstate.context import Budget, Preface, StateManager
from turnstate.entry import Cut, Decision, Mask, Summary
from turnstate.errors import InputError, InvalidMessage
from turnstate.testing.conversations import huge_output

LETTERS = StateManager(Letters())
EXACT = StateManager()


@pytest.mark.req("C8")
def test_a_request_that_grew_reuses_all_of_the_one_before() -> None:
    budget = Budget(10_000)
    messages = talk("S U A U A U", text="w" * 50)
    before = LETTERS.window(messages[:4], budget)
    after = LETTERS.window(messages, budget, previous=before)
    assert after.messages[:4] == before.messages
    assert after.reused_prefix_tokens == before.tokens - 3


@pytest.mark.req("C8")
def test_after_a_cut_only_the_head_is_reused() -> None:
    budget = Budget(2_000)
    messages = talk("S " + "U A " * 30, text="w" * 50)
    before = LETTERS.window(messages[:30], budget)
    after = LETTERS.window(messages, budget, previous=before)
    assert isinstance(after.decisions[0], Cut)
    assert after.reused_prefix_tokens == LETTERS.count(messages[:1]).tokens - 3


@pytest.mark.req("C8")
def test_other_tools_reuse_nothing() -> None:
    messages, budget = talk("S U A U"), Budget(10_000)
    before = LETTERS.window(messages, budget)
    after = LETTERS.window(messages, budget, preface=Preface(tools=(ToolSpec(name="ls"),)), previous=before)
    assert after.reused_prefix_tokens == 0


@pytest.mark.req("C8")
@pytest.mark.parametrize(
    "other",
    [
        ToolSpec(name="cp", input_schema={"a": 1, "b": 2}),
        ToolSpec(name="ls", input_schema={"b": 2, "a": 1}),
        ToolSpec(name="ls", input_schema={"a": True, "b": 2}),
    ],
)
def test_other_tools_that_cost_the_same_reuse_nothing(other: ToolSpec) -> None:
    messages, budget = talk("S U A U"), Budget(10_000)
    tools = (ToolSpec(name="ls", input_schema={"a": 1, "b": 2}),)
    before = EXACT.window(messages, budget, preface=Preface(tools=tools))
    same = EXACT.window(messages, budget, preface=Preface(tools=tools), previous=before)
    assert same.reused_prefix_tokens == before.tokens
    after = EXACT.window(messages, budget, preface=Preface(tools=(other,)), previous=before)
    assert after.tokens == before.tokens
    assert after.reused_prefix_tokens == 0


@pytest.mark.req("C8")
def test_an_agent_of_many_turns_keeps_its_prompt_cache() -> None:
    shares = {16_000: _reuse(16_000, turns=300), 32_000: _reuse(32_000, turns=300)}
    print({window: f"{share:.1%}" for window, share in shares.items()})
    assert shares[16_000] > 0.9
    assert shares[32_000] > 0.95


def _reuse(size: int, turns: int) -> float:
    """Run an agent and give the mean share of a request that stood in the one before, once it is full."""
    budget, decisions, previous = Budget(size), list[Decision](), None
    tally, shares = EXACT.tally([], budget), list[float]()
    for message in _agent(turns):
        tally.add(message)
        if message.role not in ("user", "tool"):
            continue
        window = EXACT.window(tally, budget, decisions=decisions, previous=previous)
        decisions += window.decisions
        if decisions and previous:
            shares.append(window.reused_prefix_tokens / window.tokens)
        previous = window
    return sum(shares) / len(shares)


def _agent(turns: int) -> list[Message]:
    messages: list[Message] = []
    for turn in range(turns):
        call = ToolCallRequest(name="run_command", args={"command": f"df -h /srv/{turn}"})
        rows = "\n".join(f"/dev/sd{row} {turn * row} GB {row * 7} % /srv/{turn}/{row}" for row in range(9))
        messages += [
            Message.user(f"What changed on disk {turn} since yesterday? Please say which folder grew. " * 3),
            Message.assistant("Looking.", tool_calls=[call]),
            Message.tool([ToolCallResult(tool_call_id=call.id, result=rows)]),
            Message.assistant("The logs were not rotated, so the folder grew by a few percent. " * 4),
        ]
    return messages


@pytest.mark.req("E1", "E4")
def test_a_huge_output_is_reduced_when_it_enters_the_window() -> None:
    call = ToolCallRequest(name="cat", args={})
    result = ToolCallResult(tool_call_id=call.id, result=huge_output(8_100))
    messages = [Message.user("read it"), Message.assistant(tool_calls=[call]), Message.tool([result])]
    window = EXACT.window(messages, Budget(200_000))
    text = window.messages[-1].tool_results[0].result
    assert text.startswith("[Data Truncated]\nStart: Line 1-50\n")
    assert "... (8000 lines omitted) ..." in text
    assert "End: Line 8051-8100" in text
    assert window.report.reduced == (messages[-1].id,)
    assert messages[-1].tool_results[0].result == huge_output(8_100)


@pytest.mark.req("C10", "E4")
def test_hidden_output_carries_the_id_to_read_it_by_where_a_store_holds_it() -> None:
    calls = [ToolCallRequest(name="cat", args={}) for _ in range(3)]
    results = [ToolCallResult(tool_call_id=call.id, result="word " * 400) for call in calls]
    one, two = Message.tool(results[:1]), Message.tool(results[1:])
    messages = [Message.user("read it"), Message.assistant(tool_calls=calls), one, two]
    messages += talk("A U A U A U A U A U A U")
    budget, mask = Budget(100_000), Mask(ids=(one.id, two.id), saved=0)
    for stored in (True, False):
        window = EXACT.window(EXACT.tally(messages, budget, stored=stored), budget, decisions=[mask])
        shown = [result.result for message in window.messages for result in message.tool_results]
        ids = [one.id, f"{two.id}/{calls[1].id}", f"{two.id}/{calls[2].id}"]
        lines = [f"\n[Full output: {id}]" if stored else "" for id in ids]
        assert shown == [f"[Old tool output hidden.]{line}" for line in lines]
        assert window.tokens == EXACT.count(window.messages).tokens


@pytest.mark.req("B1")
def test_chinese_is_counted_as_what_it_costs() -> None:
    text = "数据库连接失败，请检查网络设置。" * 500
    window = EXACT.window([Message.user(text)], Budget(100_000))
    assert window.tokens == EXACT.counter.count(text).tokens + 4 + 3
    assert window.tokens > len(text) / 2


@pytest.mark.req("C2")
def test_every_token_of_the_budget_is_attributed() -> None:
    preface = Preface(
        system="prompt", bootstrap="known", context="files", memory="recalled", tools=(ToolSpec(name="ls"),)
    )
    window = LETTERS.window(talk("S " + "U A " * 40, text="w" * 100), Budget(6_000), preface=preface)
    usage = window.report.usage
    assert sum(usage.values()) == 6_000
    assert usage["free"] == 6_000 - window.tokens
    assert all(
        usage[name] > 0
        for name in ("system", "bootstrap", "context", "memory", "tools", "summary", "immediate")
    )


@pytest.mark.req("C2")
def test_the_three_tiers_hold_every_message_once() -> None:
    messages = talk("S " + "U A " * 40, text="w" * 100)
    tiers = LETTERS.classify(messages, Budget(6_000))
    assert sorted(tiers.immediate + tiers.short_term + tiers.archive) == sorted(
        message.id for message in messages
    )
    assert tiers.immediate == (messages[0].id, *(message.id for message in messages[-20:]))
    assert tiers.archive == tuple(message.id for message in messages[1 : 1 + len(tiers.archive)])
    assert tiers.short_term


@pytest.mark.req("C2")
def test_without_a_budget_nothing_is_archived() -> None:
    messages = talk("S " + "U A " * 40, text="w" * 100)
    tiers = LETTERS.classify(messages)
    assert tiers.archive == ()
    assert len(tiers.immediate) == 1 + 20
    assert len(tiers.short_term) == 60


@pytest.mark.req("D2")
def test_a_models_summary_takes_the_place_of_the_digest_of_its_cut_only() -> None:
    messages, budget = talk("S " + "U A " * 40, text="w" * 100), Budget(4_000)
    first = LETTERS.window(messages, budget)
    (cut,) = (one for one in first.decisions if isinstance(one, Cut))
    told = LETTERS.window(messages, budget, decisions=[cut, Summary(cut=cut.id, text="A model wrote this.")])
    assert "A model wrote this." in next(m.text for m in told.messages if m.kind == "summary")
    stale = LETTERS.window(
        messages, budget, decisions=[cut, Summary(cut="another", text="A model wrote this.")]
    )
    assert stale.messages == first.messages


@pytest.mark.req("D6", "C7")
def test_computed_facts_stand_beside_a_models_summary_that_brings_none() -> None:
    messages = [Message.user("Write it.")]
    for number in range(40):
        call = ToolCallRequest(name="write_file", args={"path": f"{number}.csv"})
        result = ToolCallResult(tool_call_id=call.id, result=f"disk {number} is full", is_error=True)
        messages += [Message.assistant("Again. " * 20, tool_calls=[call]), Message.tool([result])]
    manager, budget = StateManager(), Budget(2_000)
    first = manager.window(messages, budget)
    (cut,) = (one for one in first.decisions if isinstance(one, Cut))
    summary = Summary(cut=cut.id, text="Goal: fix it.")
    told = manager.window(messages, budget, decisions=[cut, summary])
    (text,) = (message.text for message in told.messages if message.kind == "summary")
    assert text.startswith(f"{manager.policy.summary_template.partition('{')[0]}Goal: fix it.\n")
    assert "is full" in text
    assert told.report.usage["summary"] <= manager.policy.summary_cap(budget.limit)
    assert manager.window(messages, budget, decisions=[cut, summary]).messages == told.messages
    long = Summary(cut=cut.id, text="Goal: fix it. " * 33)
    cap = manager.policy.summary_cap(budget.limit)
    assert manager.window(messages, budget, decisions=[cut, long]).report.usage["summary"] <= cap


@pytest.mark.req("D7")
def test_the_summary_goes_where_a_provider_takes_system_messages() -> None:
    window = LETTERS.window(talk("S:prompt " + "U A " * 40, text="w" * 100), Budget(4_000))
    summary = window.messages[1].text
    chat = formats.get("openai-chat").render(window.messages)["messages"]
    assert [(wire["role"], wire["content"]) for wire in chat[:2]] == [
        ("system", "prompt"),
        ("system", summary),
    ]
    anthropic = formats.get("anthropic").render(window.messages)
    assert [block["text"] for block in anthropic["system"]] == ["prompt", summary]
    gemini = formats.get("gemini").render(window.messages)
    assert gemini["systemInstruction"]["parts"] == [{"text": "prompt"}, {"text": summary}]
    assert gemini["contents"][0]["role"] == "user"


def test_a_tally_made_for_another_budget_is_refused() -> None:
    tally = LETTERS.tally(talk("U A"), Budget(100))
    with pytest.raises(InputError, match="another budget"):
        LETTERS.window(tally, Budget(10_000))


def test_the_former_name_of_the_preface_is_refused_with_the_new_one() -> None:
    manager: Any = LETTERS
    for method in (manager.window, manager.shown, manager.classify):
        with pytest.raises(TypeError, match="'head'; it is called preface now"):
            method(talk("U A"), Budget(100), head=Preface())
        with pytest.raises(TypeError, match="there is no argument 'budgets'"):
            method(talk("U A"), Budget(100), budgets=1)


def test_a_window_and_its_report_are_never_changed() -> None:
    window: Any = LETTERS.window(talk("U A"), Budget(100), dropped=("notes.txt: too long",))
    assert window.report.dropped == ("notes.txt: too long",)
    for value, name in ((window, "decisions"), (window, "pending_cut"), (window.report, "dropped")):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(value, name, ())


def test_an_empty_conversation_has_an_empty_window() -> None:
    window = LETTERS.window([], Budget(100))
    assert window.messages == ()
    assert window.tokens == 3


@pytest.mark.req("G1")
def test_the_manager_holds_nothing_between_calls() -> None:
    before = dict(vars(LETTERS))
    LETTERS.window(talk("S " + "U A " * 40, text="w" * 100), Budget(4_000))
    assert vars(LETTERS) == before


@pytest.mark.req("A5")
def test_append_refuses_a_result_that_no_call_awaits_and_ignores_the_same_one_again() -> None:
    messages = talk("U A[x] T[x]")
    assert LETTERS.append(messages, talk("U:hello U:hello T[x]")[2].replace(id="new")) == messages
    for script in ("U U U T[q]", "U U U T[x]:other"):
        with pytest.raises(InvalidMessage):
            LETTERS.append(messages, talk(script)[3])
    assert shown(LETTERS.append(messages, talk("U U U A")[3])) == "U A[x] T[x] A"
    assert len(messages) == 3
