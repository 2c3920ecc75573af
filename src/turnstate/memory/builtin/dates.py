"""Dates in a question, and how close a message is to them.

A date is compared, not matched: "what did we do on May 3" is about the sessions of that day and the days
after it, since people talk about things afterwards. A question may name a day, a month, a season or a year,
in English, Japanese or Chinese.
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


def periods(text: str) -> list[Period]:
    """Return the dates that a text names, only those of the most exact kind."""
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
        last = asked.months + first.month - 1
        after = date(first.year + last // 12, last % 12 + 1, 1)
        if first <= when < after:
            return 1.0
        if after <= when < after + timedelta(days=MONTH_AFTER):
            return 0.7
    return 0.0


def _day(year: str, month: str, day: str) -> Period:
    return Period(_number(year), _NUMBERS[month.lower().rstrip(".")[:3]], int(day))


def _number(digits: str) -> int | None:
    return int(digits) if digits else None


def _is_possible(period: Period) -> bool:
    return 1 <= (period.month or 1) <= 12 and 1 <= (period.day or 1) <= 31 and (period.year or 1) <= 9998
