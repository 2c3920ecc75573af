from __future__ import annotations

from datetime import date

from turnstate.memory.builtin.dates import Period, closeness, periods


def test_dates_in_questions_are_found() -> None:
    for text, wanted in {
        "What happened on 3 May, 2023?": [Period(2023, 5, 3)],
        "the 3rd of May": [Period(None, 5, 3)],
        "on May 3rd 2023": [Period(2023, 5, 3)],
        "on 2023-05-03": [Period(2023, 5, 3)],
        "in June 2022": [Period(2022, 6)],
        "in Sept.": [Period(None, 9)],
        "in May": [Period(None, 5)],
        "What may she like?": [],
        "in the summer of 2022": [Period(2022, 6, months=3)],
        "in 2021": [Period(2021)],
        "5月3日に何をした？": [Period(None, 5, 3)],
        "2023年5月去了哪里？": [Period(2023, 5)],
        "2022年の夏": [Period(2022, 6, months=3)],
        "What about 99 May 2023 or February 31?": [Period(None, 2, 31)],
        "nothing here": [],
    }.items():
        assert periods(text) == wanted, text


def test_people_tell_afterwards() -> None:
    day = [Period(2023, 5, 3)]
    on, after, before, far = (closeness(date(2023, 5, n), day) for n in (3, 8, 1, 30))
    assert on == 1.0
    assert on > after > before
    assert after > far
    month = [Period(2023, 12)]
    assert [closeness(one, month) for one in (date(2023, 12, 31), date(2024, 1, 14), date(2024, 1, 15))] == [
        1,
        0.7,
        0,
    ]
    assert closeness(date(2023, 5, 3), []) == 0
    assert closeness(date(2024, 3, 1), [Period(2023, 2, 31)]) == 0
