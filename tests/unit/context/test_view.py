"""Which recorded cut serves a limit, what a new cut carries of the others, and the scale of outputs."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from turnstate import Message, StateManager, ToolCallRequest, ToolCallResult, codec
from turnstate.context import Budget, Policy
from turnstate.context.live_window import output_limits
from turnstate.context.view import MOST_CUTS, beside, in_force, named_scale, serving
from turnstate.entry import Cut, Decision, Mask, Revert, Summary, effective
from turnstate.ids import MessageId

POLICY = Policy()
MANAGER = StateManager()


def cut(limit: int, *, id: str = "", **more: Any) -> Cut:
    fields: dict[str, Any] = {"kept_from": "m9", "summary": "", "covers": ("m0", "m8")} | more
    return Cut(id=id or f"c{limit}", limit=limit, policy="", counter="", **fields)


def limits(decisions: Sequence[Decision], limit: int, **settings: Any) -> list[int]:
    return [one.limit for one in serving(decisions, limit, POLICY, **settings)]


@pytest.mark.req("C8")
def test_a_cut_serves_limits_that_are_not_two_thirds_larger_than_its_own() -> None:
    assert [POLICY.serves(6_000, limit) for limit in (1, 6_000, 9_999, 10_000)] == [True, True, True, False]
    for low_water in (0.81, 1.0):  # a budget may always move by a tenth
        assert Policy(low_water=low_water).serves(9_000, 10_000)
        assert Policy(low_water=low_water).serves(10_000, 10_000)
        assert not Policy(low_water=low_water).serves(8_000, 10_000)


@pytest.mark.req("C8")
def test_cuts_near_the_limit_are_tried_first_then_the_nearest_larger_one_then_everything() -> None:
    recorded = [cut(128_000), cut(30_000), cut(16_000), cut(8_000)]
    assert limits(recorded, 16_000) == [16_000]
    assert limits(recorded, 20_000) == [30_000, 16_000]  # the widest first
    assert limits(recorded, 6_000) == [8_000]
    assert limits(recorded, 2_000) == [8_000]
    assert limits(recorded, 60_000) == [128_000]
    assert limits(recorded, 250_000) == []
    assert limits([], 8_000) == []


@pytest.mark.req("C8", "D5")
def test_a_cut_that_was_asked_for_is_the_floor() -> None:
    asked = cut(8_000, asked={"operation": "compact"})
    assert limits([cut(128_000), asked], 200_000) == [8_000]
    assert limits([asked, cut(128_000)], 128_000) == [128_000]
    assert limits([asked, cut(128_000)], 8_000) == [128_000]  # it starts later than the floor
    assert limits([asked, cut(2_000)], 8_000) == [8_000]
    imported = cut(0, covers=("", ""), kept_from=None)
    assert limits([imported, cut(8_000)], 128_000) == [0]


@pytest.mark.req("C9")
def test_where_the_root_is_not_loaded_the_widest_cut_is_the_end() -> None:
    assert limits([cut(8_000), cut(2_000)], 128_000, whole=False) == [8_000]
    assert limits([], 128_000, whole=False) == []


@pytest.mark.req("C8")
def test_what_is_in_force_is_the_newest_cut_what_it_carries_and_what_came_after_it() -> None:
    wide, mask = cut(16_000), Mask(ids=(MessageId("m9"),), saved=1, limit=8_000)
    newest = cut(8_000, beside=(wide, Summary(cut="c16000", text="x")))
    recorded = [cut(4_000), Mask(ids=(), saved=0), newest, mask]
    assert in_force(recorded) == (wide, Summary(cut="c16000", text="x"), newest, mask)
    assert in_force(in_force(recorded)) == in_force(recorded)
    asked = cut(9_000, asked={"operation": "compact"})
    undone = [*recorded, asked, cut(700), Revert(cut=asked.id, at=5, former=3)]
    assert in_force(undone) == in_force(recorded)


def carried(decisions: Sequence[Decision], new: Cut, later: Sequence[int] = ()) -> list[object]:
    """Return what a new cut carries; cuts for the limits of `later` start later than it."""
    found = beside(decisions, new, POLICY, starts_later=lambda one: one.limit in later)
    return [getattr(one, "id", one) for one in found]


@pytest.mark.req("C8", "C9")
def test_a_new_cut_carries_those_for_far_larger_limits_and_those_that_start_later() -> None:
    recorded = [cut(128_000), cut(30_000), cut(16_000), cut(8_000), cut(2_000)]
    assert carried(recorded, cut(16_000, id="new"), [8_000, 2_000]) == ["c128000", "c30000", "c8000", "c2000"]
    assert carried(recorded, cut(19_000, id="new"), [2_000]) == ["c128000", "c2000"]
    assert carried(recorded, cut(8_000, id="new", asked={"operation": "compact"})) == []
    asked = cut(8_000, id="asked", asked={"operation": "compact"})
    assert carried([asked, cut(9_000)], cut(8_000, id="new")) == ["asked"]


@pytest.mark.req("C9")
def test_a_new_cut_carries_few_others_and_none_that_carries_more() -> None:
    many = [cut(2**number, beside=(cut(1),)) for number in range(40, 10, -1)]
    found = beside(many, cut(1_000), POLICY, starts_later=lambda _: True)
    assert [one.limit for one in found if isinstance(one, Cut)] == [
        2**n for n in range(40, 41 - MOST_CUTS, -1)
    ]
    assert all(one.beside == () for one in found if isinstance(one, Cut))


@pytest.mark.req("C8")
def test_what_was_decided_on_top_of_a_cut_is_carried_with_it_and_with_no_other() -> None:
    large, small = Mask(ids=(), saved=1, limit=16_000), Mask(ids=(), saved=2, limit=8_000)
    first, second = Summary(cut="c16000", text="first"), Summary(cut="c16000", text="second")
    recorded = [cut(16_000), first, large, second, cut(8_000), small, Summary(cut="c8000", text="other")]
    assert carried(recorded, cut(8_000, id="new")) == ["c16000", large, second]
    assert carried(recorded, cut(16_000, id="new"), [8_000]) == ["c8000", small, recorded[-1]]
    assert carried([large, small], cut(8_000, id="new")) == [large]  # everything is shown for 16,000


@pytest.mark.req("E2", "C8")
def test_the_scale_is_that_of_the_decision_nearest_to_the_limit_or_a_power_of_two() -> None:
    assert [output_limits(limit, [], POLICY).scale for limit in (16_383, 16_384, 33_000)] == [
        8_192,
        16_384,
        32_768,
    ]
    recorded = [Mask(ids=(), saved=0, limit=16_500, scale=16_384), cut(8_000, scale=4_096)]
    assert [named_scale(recorded, limit, POLICY) for limit in (14_000, 15_600, 17_200)] == [16_384] * 3
    assert [named_scale(recorded, limit, POLICY) for limit in (7_600, 8_400, 9_000)] == [4_096] * 3
    assert named_scale(recorded, 33_000, POLICY) is None
    assert named_scale(recorded, 12_500, POLICY) is None  # near in limit, far in scale


def conversation(tokens: int) -> list[Message]:
    call = ToolCallRequest(name="cat", args={})
    result = ToolCallResult(tool_call_id=call.id, result="word " * tokens)
    return [Message.user("go"), Message.assistant(tool_calls=[call]), Message.tool([result])]


@pytest.mark.req("E2", "C8")
def test_a_window_that_shows_an_output_by_its_scale_records_it_so_that_no_byte_moves() -> None:
    for tokens in (2_500, 6_000, 20_000):
        messages = conversation(tokens)
        first = MANAGER.window(messages, Budget(16_500))
        (mask,) = first.decisions
        assert mask == Mask(ids=(), saved=0, limit=16_500, scale=16_384)
        for limit in (15_000, 16_000, 16_384, 17_300):
            again = MANAGER.window(messages, Budget(limit), decisions=[mask])
            assert codec.dump(again.messages) == codec.dump(first.messages)
            assert again.decisions == ()
    for tokens in (100, 1_500):  # whatever the scale, this is shown whole
        assert MANAGER.window(conversation(tokens), Budget(16_500)).decisions == ()


@pytest.mark.req("C8", "C10")
def test_a_mask_holds_for_smaller_limits_and_until_the_limit_is_much_larger() -> None:
    messages = [*conversation(800), *(Message.user(f"more {number}") for number in range(12))]
    mask = Mask(ids=(messages[2].id,), saved=1, limit=6_000)
    for limit, hidden in ((3_000, True), (6_000, True), (9_900, True), (10_000, False)):
        window = MANAGER.window(messages, Budget(limit), decisions=[mask])
        assert bool(window.report.hidden) == hidden


@pytest.mark.req("C8")
def test_what_is_in_force_is_the_same_from_the_end_as_from_the_beginning() -> None:
    """What holds is defined from the beginning, since reverts change what came before."""
    rng = Random(9)
    for _ in range(2_000):
        decisions = list[Decision]()
        for number in range(rng.randrange(8)):
            cuts = [one.id for one in decisions if isinstance(one, Cut)]
            reverted = Revert(cut=rng.choice([*cuts, "older"]), at=1, former=0)
            summary = Summary(cut=rng.choice([*cuts, "older"]), text="s")
            made = cut(8_000, id=f"c{number}", beside=(cut(4_000, id=f"b{number}"),))
            decisions.append(rng.choice([made, made, summary, reverted]))
        holding = effective(decisions)
        places = [place for place, one in enumerate(holding) if isinstance(one, Cut)]
        newest = holding[places[-1]] if places else None
        carried = newest.beside if isinstance(newest, Cut) else ()
        assert in_force(decisions) == (*carried, *holding[places[-1] if places else 0 :])
