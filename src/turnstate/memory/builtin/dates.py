"""Dates in a question, and how close a message is to them.

A date is compared, not matched: "what did we do on May 3" is about the sessions of that day and the days
after it, since people talk about things afterwards. A question may name a day, a month, a season or a year,
in English, Japanese or Chinese, or a time that depends on today, such as "yesterday" or "last month".

A turn is also found by its days: the one on which it was said, and those that it speaks of ("yesterday",
"two days ago", "on May 3"). A day is a term, written as 2025-05-03, which no text can contain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, timedelta
from math import exp
from typing import NamedTuple

_MONTHS = "january february march april may june july august september october november december".split()
_NUMBERS = {name: number for number, name in enumerate(_MONTHS, 1)} | {
    name[:3]: number for number, name in enumerate(_MONTHS, 1)
}
_MONTH = "|".join([*_MONTHS, *(rf"{name[:3]}\b\.?" for name in _MONTHS if name != "may"), "sept"])
_SEASONS = {
    "spring": 3,
    "summer": 6,
    "fall": 9,
    "autumn": 9,
    "winter": 12,
    "春": 3,
    "夏": 6,
    "秋": 9,
    "冬": 12,
}

_DAY_FIRST = re.compile(
    rf"\b(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?({_MONTH})(?:,?\s+(\d{{4}}))?", re.IGNORECASE
)
_MONTH_FIRST = re.compile(
    rf"\b({_MONTH})\s+(\d{{1,2}})(?:st|nd|rd|th)?\b(?!\d)(?:,?\s+(\d{{4}}))?", re.IGNORECASE
)
_ISO = re.compile(r"\b(\d{4})[-/](\d{1,2})[-/](\d{1,2})\b")
_DENSE_DAY = re.compile(r"(?:(\d{4})年)?(\d{1,2})月(\d{1,2})[日号]")
_DENSE_MONTH = re.compile(r"(?:(\d{4})年)?(\d{1,2})月")
_MONTH_ALONE = re.compile(rf"\b({_MONTH})(?:,?\s+(?:of\s+)?(\d{{4}}))?", re.IGNORECASE)
_SEASON = re.compile(
    r"\b(spring|summer|fall|autumn|winter)\s+(?:of\s+)?(\d{4})|(\d{4})年の?([春夏秋冬])", re.IGNORECASE
)
_YEAR = re.compile(r"(?<!\d)(19\d\d|20\d\d)(?!\d)")
_MAY_IS_A_MONTH = re.compile(
    r"\b(?:in|of|during|early|late|mid|since|until|by|last|this|next)[\s-]+may\b", re.IGNORECASE
)

MONTH_AFTER = 14
"""Days of the next month in which people still talk about the previous one."""


class Period(NamedTuple):
    """A day, month, season or year that a question names; parts that it leaves open are None."""

    year: int | None
    month: int | None = None
    day: int | None = None
    months: int = 1


def periods(text: str, today: date | None = None) -> list[Period]:
    """Return the dates that a text names, only those of the most exact kind.

    "Yesterday" and the like are dates if ``today`` is given.
    """
    return _named(text) or (_relative(text, today) if today else [])


def days_of(text: str, said: str) -> list[str]:
    """Return the terms for the days of a turn: when it was said, and the days that it speaks of."""
    try:
        when = date.fromisoformat(said[:10])
    except ValueError:
        return []
    spoken = [
        period._replace(year=period.year or _nearest_year(period, when))
        for period in (periods(text, when) if _MAY_NAME_A_DAY.search(text) else ())
        if period.day is not None
    ]
    return list(
        dict.fromkeys([when.isoformat(), *(day for period in spoken for day in period_days(period, ()))])
    )


def period_days(period: Period, years: Iterable[int]) -> list[str]:
    """Return the terms for the days of a period, in each of ``years`` if it names none.

    There are none for a whole year: they would be nearly everything.
    """
    found = list[str]()
    for year in [period.year] if period.year else years:
        try:
            first = date(year, period.month or 1, period.day or 1)
        except ValueError:  # February 29
            continue
        if period.day is not None:
            found.append(first.isoformat())
        elif period.month is not None:
            length = (_after(first, period.months) - first).days
            found += [(first + timedelta(days=n)).isoformat() for n in range(length)]
    return found


def _nearest_year(period: Period, when: date) -> int:
    """Return the year in which a day without a year is nearest to a day."""

    def distance(year: int) -> int:
        return abs((date(year, period.month or 1, min(period.day or 1, 28)) - when).days)

    return min((when.year - 1, when.year, when.year + 1), key=distance)


def _relative(text: str, today: date) -> list[Period]:
    """Return the dates in a text that depend on today."""
    days = [today - timedelta(days=back) for word, back in _DAYS_BACK if word.search(text)]
    days += [today - timedelta(days=_COUNTS.get(count.lower()) or int(count)) for count in _AGO.findall(text)]
    for name in _LAST_WEEKDAY.findall(text):
        back = (today.weekday() - _WEEKDAYS.index(name.lower()[:3])) % 7 or 7
        days.append(today - timedelta(days=back))
    monday = today - timedelta(days=today.weekday())
    for word, weeks in _WEEKS_BACK:
        if word.search(text):
            days += [monday + timedelta(days=n - 7 * weeks) for n in range(7)]
    if days:
        return [Period(day.year, day.month, day.day) for day in days]
    if _LAST_MONTH.search(text):
        before = today.replace(day=1) - timedelta(days=1)
        return [Period(before.year, before.month)]
    if _THIS_MONTH.search(text):
        return [Period(today.year, today.month)]
    return [Period(today.year - 1)] if _LAST_YEAR.search(text) else []


_MAY_NAME_A_DAY = re.compile(
    r"\d|\b(?:yesterday|today|tonight|tomorrow|last|this|ago)\b|[昨今明前先上本这]|おととい", re.IGNORECASE
)
_DAYS_BACK = (
    (
        re.compile(
            r"\b(?:yesterday|last night)\b(?<!before yesterday)|昨日|昨夜|昨晩|昨天|昨晚", re.IGNORECASE
        ),
        1,
    ),
    (re.compile(r"\bday before yesterday\b|一昨日|おととい|前天", re.IGNORECASE), 2),
    (
        re.compile(
            r"\b(?:today|tonight|this (?:morning|afternoon|evening))\b|今日|今朝|今晩|今天|今早|今晚",
            re.IGNORECASE,
        ),
        0,
    ),
    (re.compile(r"\btomorrow\b|明日|明天", re.IGNORECASE), -1),
)
_COUNTS = {name: n for n, name in enumerate("two three four five six seven".split(), 2)} | {
    name: n for n, name in enumerate("一二三四五六七", 1)
} | {"a couple of": 2, "a few": 3, "两": 2}  # fmt: skip
_AGO = re.compile(
    r"\d{1,2}(?=\s*(?:days ago|天前|日前))|(?:two|three|four|five|six|seven|a couple of|a few)(?= days ago)"
    r"|[一二三四五六七两](?=天前|日前)",
    re.IGNORECASE,
)
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_LAST_WEEKDAY = re.compile(r"\blast (mon|tues|wednes|thurs|fri|satur|sun)day\b", re.IGNORECASE)
_WEEKS_BACK = (
    (re.compile(r"\blast week\b|先週|上周|上个?星期|上个?礼拜", re.IGNORECASE), 1),
    (re.compile(r"\bthis week\b|今週|这周|这个?星期|本周", re.IGNORECASE), 0),
)
_LAST_MONTH = re.compile(r"\blast month\b|先月|上个?月", re.IGNORECASE)
_THIS_MONTH = re.compile(r"\bthis month\b|今月|这个月|本月", re.IGNORECASE)
_LAST_YEAR = re.compile(r"\blast year\b|去年", re.IGNORECASE)


def _named(text: str) -> list[Period]:
    days = [_day(year, month, day) for day, month, year in _DAY_FIRST.findall(text)]
    days += [_day(year, month, day) for month, day, year in _MONTH_FIRST.findall(text)]
    days += [Period(int(year), int(month), int(day)) for year, month, day in _ISO.findall(text)]
    days += [Period(_number(year), int(month), int(day)) for year, month, day in _DENSE_DAY.findall(text)]
    if days:
        return [day for day in days if _is_possible(day)]
    seasons = [
        Period(int(year or dense_year), _SEASONS[(name or dense).lower()], months=3)
        for name, year, dense_year, dense in _SEASON.findall(text)
    ]
    months = [
        Period(_number(year), _NUMBERS[name.lower().rstrip(".")[:3]])
        for name, year in _MONTH_ALONE.findall(text)
        if name.lower() != "may" or year or _MAY_IS_A_MONTH.search(text)
    ]
    months += [
        Period(_number(year), int(month))
        for year, month in _DENSE_MONTH.findall(text)
        if 1 <= int(month) <= 12
    ]
    return seasons or months or [Period(int(year)) for year in _YEAR.findall(text)]


def closeness(when: date, asked: Iterable[Period]) -> float:
    """Return how close a day is to the nearest of the periods, from 0 to 1."""
    return max((_closeness(when, period) for period in asked), default=0.0)


def _closeness(when: date, asked: Period) -> float:
    if asked.month is None:
        return 0.5 if when.year == asked.year else 0.0
    if asked.day is None:
        return _in_months(when, asked)
    years = [asked.year] if asked.year else [when.year - 1, when.year, when.year + 1]
    best = 0.0
    for year in years:
        try:
            days = (when - date(year, asked.month, asked.day)).days
        except ValueError:  # February 29
            continue
        best = max(best, exp(-days / 10) if days >= 0 else exp(days / 3))
    return best


def _in_months(when: date, asked: Period) -> float:
    for year in [asked.year] if asked.year else [when.year - 1, when.year]:
        first = date(year, asked.month or 1, 1)
        after = _after(first, asked.months)
        if first <= when < after:
            return 1.0
        if after <= when < after + timedelta(days=MONTH_AFTER):
            return 0.7
    return 0.0


def _after(first: date, months: int) -> date:
    """Return the first day after some months."""
    last = months + first.month - 1
    return date(first.year + last // 12, last % 12 + 1, 1)


def _day(year: str, month: str, day: str) -> Period:
    return Period(_number(year), _NUMBERS[month.lower().rstrip(".")[:3]], int(day))


def _number(digits: str) -> int | None:
    return int(digits) if digits else None


def _is_possible(period: Period) -> bool:
    return 1 <= (period.month or 1) <= 12 and 1 <= (period.day or 1) <= 31 and (period.year or 1) <= 9998
