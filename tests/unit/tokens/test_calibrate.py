from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnstate.errors import InputError
from turnstate.tokens import Calibrated, Calibration, Count

pytestmark = pytest.mark.req("B2")


def taught(*reports: tuple[int, int]) -> Calibrated:
    learnt = Calibrated()
    for counted, reported in reports:
        learnt = learnt.observe(counted, reported)
    return learnt


def test_untaught_a_budget_is_what_it_is() -> None:
    assert Calibrated().budget(128_000) == 128_000
    assert Calibrated().reported(Count(17, "exact")) == Count(17, "exact")


def test_the_first_report_is_believed() -> None:
    assert taught((1_000, 1_250)) == Calibrated(1.25, 1)


def test_a_budget_shrinks_by_what_the_provider_counts_more() -> None:
    assert taught((1_000, 1_250)).budget(125_000) == 100_000


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 10**7))
@example(10, 11, 11)
def test_what_fits_the_budget_fits_the_provider(counted: int, reported: int, tokens: int) -> None:
    learnt = taught((counted, reported))
    assert learnt.reported(Count(learnt.budget(tokens))).tokens <= tokens


def test_a_foretold_report_is_an_estimate() -> None:
    assert taught((100, 150)).reported(Count(10, "exact")) == Count(15, "estimated")


def test_many_equal_reports_settle_on_their_ratio() -> None:
    learnt = taught((100, 300), *[(1_000, 1_200)] * 60)
    assert learnt.factor == pytest.approx(1.2, rel=0.02)
    assert learnt.samples == 61


def test_one_absurd_report_moves_little() -> None:
    steady = taught(*[(1_000, 1_200)] * 20)
    for absurd in (1, 1_000_000_000):
        after = steady.observe(1_000, absurd)
        assert after.factor == pytest.approx(steady.factor, rel=0.06)


def test_the_factor_stays_within_reason_whatever_is_reported() -> None:
    assert taught((1, 10**12)).factor == 4.0
    assert taught((10**12, 1)).factor == 0.25
    assert taught(*[(1, 10**9)] * 50).factor == 4.0


@pytest.mark.parametrize(("counted", "reported"), [(0, 5), (5, 0), (-1, 5), (5, -1)])
def test_a_report_of_nothing_is_refused(counted: int, reported: int) -> None:
    with pytest.raises(InputError, match="both must be above 0"):
        Calibrated().observe(counted, reported)


@pytest.mark.parametrize(("factor", "samples"), [(0.0, 1), (-1.0, 1), (5.0, 1), (float("nan"), 1), (1.0, -1)])
def test_a_calibration_that_cannot_be_is_refused(factor: float, samples: int) -> None:
    with pytest.raises(InputError):
        Calibrated(factor, samples)


def test_observing_changes_nothing_but_makes_anew() -> None:
    before = Calibrated()
    before.observe(10, 20)
    assert before == Calibrated(1.0, 0)


def test_a_negative_budget_leaves_nothing() -> None:
    assert taught((100, 150)).budget(-5) == 0


ratios = st.floats(0.5, 2.0)


@given(st.lists(st.tuples(ratios, st.booleans(), st.integers(1, 20_000)), max_size=40))
def test_a_calibration_moves_the_budget_only_at_a_cut_or_beyond_its_band(
    reports: list[tuple[float, bool, int]],
) -> None:
    now = Calibration("estimate")
    for ratio, is_cut, counted in reports:
        before, now = now, now.observe(counted, int(counted * ratio), limit=20_000, is_cut=is_cut)
        assert Calibration.of(now.to_json(), "estimate") == now
        if counted < 2_000:
            assert now == before  # it says little about a full request
        elif now.applied != before.applied:
            assert is_cut or abs(now.applied / before.applied - 1) > 0.05
            assert now.applied == max(now.learned.factor, 0.7)
            assert now.applied > before.applied or now.learned.samples >= 3
        elif is_cut and now.learned.samples >= 3:
            assert now.applied == max(now.learned.factor, 0.7)


def test_noise_never_moves_a_budget_and_a_report_without_the_cached_part_never_doubles_it() -> None:
    noisy = Calibration("estimate")
    for number in range(200):
        noisy = noisy.observe(10_000, 12_500 + (-1) ** number * 500, limit=20_000)
    assert noisy.budget(20_000) == int(20_000 / 1.3)  # as after the first report
    cached = Calibration("estimate")
    for _ in range(20):
        cached = cached.observe(10_000, 300, limit=20_000)
    assert cached.budget(20_000) == int(20_000 / 0.7)


def test_what_is_no_calibration_of_this_counter_is_a_new_one() -> None:
    good = Calibration("a", Calibrated(1.2, 3), 1.1).to_json()
    for bad in (None, 7, [], {}, good | {"applied": 90}, good | {"factor": "x"}, {"counter": "a"}):
        assert Calibration.of(bad, "a") == Calibration("a")  # type: ignore[arg-type]
    assert Calibration.of(good, "b") == Calibration("b")
    assert Calibration("a").budget(2**62) == 2**62
