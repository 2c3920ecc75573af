"""Time limits: when something that is said "by Friday" or "this week" is over, in three languages.

The limit is the end of the day, week, month or year that a text names, counted from the day when it was
said. A day of the week is the next one; "next Friday" is that of the next week.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta

_MONTHS = "january february march april may june july august september october november december".split()
_DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
_JA_DAYS, _ZH_DAYS = "月火水木金土日", "一二三四五六日"
_MONTH = "|".join(f"{name[:3]}(?:{name[3:]})?" for name in _MONTHS)
_DAY = "|".join(_DAYS)

_TERMS: tuple[tuple[str, str, int], ...] = (
    (r"\btoday\b|\btonight\b|今日|本日|今夜|今晩|今天|今晚", "day", 0),
    (r"\btomorrow\b|明日|あした|明天|明早|明晚", "day", 1),
    (r"明後日|あさって|后天", "day", 2),
    (
        rf"\bthis week(?:end)?\b|今週(?!の?[{_JA_DAYS}]曜)|(?:这个?|本)(?:周|星期|礼拜)(?![{_ZH_DAYS}天])",
        "week",
        0,
    ),
    (rf"\bnext week(?:end)?\b|来週(?!の?[{_JA_DAYS}]曜)|下个?(?:周|星期|礼拜)(?![{_ZH_DAYS}天])", "week", 1),
    (r"再来週", "week", 2),
    (r"\bthis month\b|今月|这个月|本月", "month", 0),
    (r"\bnext month\b|来月|下个?月", "month", 1),
    (r"\bthis year\b|今年", "year", 0),
    (r"\bnext year\b|来年|明年", "year", 1),
)
_RELATIVE = [(re.compile(pattern, re.IGNORECASE), unit, count) for pattern, unit, count in _TERMS]
_WEEKDAY = re.compile(rf"\b(?P<next>next )?(?P<day>{_DAY})\b", re.IGNORECASE)
_DENSE_WEEKDAY = re.compile(
    rf"(?P<next>来週の?|下个?)?(?:(?P<ja>[{_JA_DAYS}])曜|(?:周|星期|礼拜)(?P<zh>[{_ZH_DAYS}天]))"
)
_MONTH_DAY = re.compile(
    rf"\b(?:({_MONTH})\.? (\d{{1,2}})|(\d{{1,2}})(?:st|nd|rd|th)? (?:of )?({_MONTH}))\b", re.IGNORECASE
)
_DENSE_DAY = re.compile(r"(?:(\d{4})年)?(\d{1,2})月(\d{1,2})[日号]")
_ISO = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b")
_WHOLE_MONTH = re.compile(
    rf"\b(before|by|until|in|during) (?:the end of )?({_MONTH})\b(?! \d)", re.IGNORECASE
)


def limit(text: str, said: str) -> str | None:
    """Return the end of the time that a text names, as a timestamp; None if it names none to come."""
    try:
        today = date.fromisoformat(said[:10])
    except ValueError:
        return None
    ends = [day for day in _ends(text, today) if day >= today]
    return f"{min(ends).isoformat()}T23:59:59.999Z" if ends else None


def _ends(text: str, today: date) -> Iterator[date]:
    for pattern, unit, count in _RELATIVE:
        if pattern.search(text):
            yield _end(today, unit, count)
    for found in _WEEKDAY.finditer(text):
        yield _weekday(today, _DAYS.index(found["day"].lower()), is_next=bool(found["next"]))
    for found in _DENSE_WEEKDAY.finditer(text):
        zh = (found["zh"] or "").replace("天", "日")
        number = _JA_DAYS.index(found["ja"]) if found["ja"] else _ZH_DAYS.index(zh)
        yield _weekday(today, number, is_next=bool(found["next"]))
    for year, month, day in _ISO.findall(text):
        yield from _date(today, int(month), int(day), int(year))
    for year, month, day in _DENSE_DAY.findall(text):
        yield from _date(today, int(month), int(day), int(year or 0))
    for month, day, day_first, month_last in _MONTH_DAY.findall(text):
        yield from _date(today, _month(month or month_last), int(day or day_first))
    for how, month in _WHOLE_MONTH.findall(text):
        for year in (today.year, today.year + 1):
            first = date(year, _month(month), 1)
            yield first - timedelta(days=1) if how.lower() == "before" else _month_end(first)


def _end(today: date, unit: str, count: int) -> date:
    match unit:
        case "day":
            return today + timedelta(days=count)
        case "week":
            return today + timedelta(days=6 - today.weekday() + 7 * count)
        case "month":
            months = today.year * 12 + today.month - 1 + count
            return _month_end(date(months // 12, months % 12 + 1, 1))
        case _:
            return date(today.year + count, 12, 31)


def _weekday(today: date, day: int, *, is_next: bool) -> date:
    if is_next:
        return today + timedelta(days=7 - today.weekday() + day)
    return today + timedelta(days=(day - today.weekday()) % 7)


def _date(today: date, month: int, day: int, year: int = 0) -> Iterator[date]:
    """Yield a date; without a year it is the next one, or last month's, which is over."""
    try:
        found = date(year or today.year, month, day)
        yield found.replace(year=today.year + 1) if not year and (today - found).days > 31 else found
    except ValueError:  # there is no such day
        return


def _month(name: str) -> int:
    return [month[:3] for month in _MONTHS].index(name[:3].lower()) + 1


def _month_end(first: date) -> date:
    return (first.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)
