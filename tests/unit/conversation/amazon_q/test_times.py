from __future__ import annotations

from typing import Any

import pytest

from turnstate import ids
from turnstate.conversation.amazon_q import times
from turnstate.errors import InvalidPayload
from turnstate.message import is_timestamp

pytestmark = pytest.mark.req("I9", "A7")


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("2025-10-25T14:03:11.482913377+09:00", "2025-10-25T05:03:11.482913377Z"),
        ("2025-01-01T00:30:00-03:30", "2025-01-01T04:00:00Z"),
        ("2025-10-25t05:03:11.5z", "2025-10-25T05:03:11.5Z"),
        ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59Z"),
        ("0099-02-03T04:05:06.1234567891234Z", "0099-02-03T04:05:06.123456789Z"),
    ],
)
def test_a_moment_is_given_in_utc_and_as_exact_as_it_was(text: str, ours: str) -> None:
    assert times.utc(text, at="$") == ours
    assert is_timestamp(ours)


@pytest.mark.parametrize(
    "text", ["", "2025-10-25", "2025-10-25T05:03:11", "2025-13-01T00:00:00Z", "0001-01-01T00:00:00+09:00"]
)
def test_what_is_no_moment_is_refused_with_its_path(text: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        times.utc(text, at="$.here")
    assert caught.value.path == "$.here"


@pytest.mark.parametrize("moment", [1, 1_761_368_591_500, 951_782_400_000, 4_102_444_799_999])
def test_the_start_of_a_tangent_is_read_as_it_was_written(moment: int) -> None:
    assert times.start_milliseconds(times.start_numbers(moment), at="$") == moment


@pytest.mark.parametrize(
    "value",
    [
        [],
        [2025, 1, 0, 0, 0, 0, 0, 0],
        [2025, 1, 0, 0, 0, 0, 0, 0, True],
        [2025, 1, 25, 0, 0, 0, 0, 0, 0],
        [10_000, 1, 0, 0, 0, 0, 0, 0, 0],
        [9_999, 366, 23, 0, 0, 0, -25, 0, 0],
        [2025, 10**30, 0, 0, 0, 0, 0, 0, 0],
        "2025-10-25 24:03:11.0 +00:00:00",
        "soon",
        None,
        {},
    ],
)
def test_what_is_no_start_of_a_tangent_is_refused(value: Any) -> None:
    with pytest.raises(InvalidPayload):
        times.start_milliseconds(value, at="$")


def test_a_count_that_no_calendar_holds_is_a_time_that_nobody_knows() -> None:
    assert times.of_milliseconds(1_761_368_595_210) == "2025-10-25T05:03:15.210Z"
    assert times.of_milliseconds(2**64 - 1) == ids.UNKNOWN_TIME
    assert times.of_milliseconds(10**30) == ids.UNKNOWN_TIME


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("2025-01-01 0:00:00.0 +00:00:00", 0),
        ("2025-01-01 0:00:00.0 -05:00:00", 5),
        ("2025-01-01 9:00:00 +09:00:00", 0),
    ],
)
def test_the_start_of_a_tangent_is_read_from_text_with_its_offset(text: str, hours: int) -> None:
    assert times.start_milliseconds(text, at="$") == 1_735_689_600_000 + hours * 3_600_000
