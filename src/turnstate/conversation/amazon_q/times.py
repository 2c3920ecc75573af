"""Times: conversion between the three notations of an Amazon Q document and ours.

Messages have RFC 3339 times with the writer's offset and up to nine decimals of a second. The start of a
tangent is nine numbers (year, day of the year, hour, minute, second, nanosecond, and the offset in hours,
minutes and seconds), or the same time as text, depending on how Amazon Q was built.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from ... import ids
from ...errors import InvalidPayload

_RFC_3339 = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)[Tt ](?P<minute>\d\d:\d\d):(?P<second>\d\d)(?P<fraction>\.\d+)?"
    r"(?P<offset>[Zz]|[+-]\d\d:\d\d)",
    re.ASCII,
)
_SPELLED = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d) (?P<hour>\d{1,2}):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d+))? "
    r"(?P<offset>[+-]\d\d:\d\d:\d\d)",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1)
_MILLISECOND = timedelta(milliseconds=1)
_NUMBERS = 9
_LEAP_SECOND = "60"


def utc(text: str, *, at: str) -> str:
    """Return a time in the notation of our messages: UTC, with a final Z, and with its precision kept."""
    moment, fraction = _parsed(text, at)
    return f"{moment.isoformat()}{fraction[:10]}Z"


def of_milliseconds(since_1970: int) -> str:
    """Return the time for milliseconds since 1970; a time out of range is unknown."""
    try:
        moment = _EPOCH + since_1970 * _MILLISECOND
    except OverflowError:
        return ids.UNKNOWN_TIME
    return f"{moment.isoformat(timespec='milliseconds')}Z"


def start_milliseconds(value: Any, *, at: str) -> int:
    """Return the start of a tangent in milliseconds since 1970, at least 1."""
    moment = _of_numbers(value, at) if isinstance(value, list) else _of_text(value, at)
    return max(1, (moment - _EPOCH) // _MILLISECOND)


def start_numbers(since_1970: int) -> list[int]:
    """Return the start of a tangent as nine numbers."""
    moment = _EPOCH + since_1970 * _MILLISECOND
    day = moment.timetuple().tm_yday
    time = [moment.hour, moment.minute, moment.second, moment.microsecond * 1000]
    return [moment.year, day, *time, 0, 0, 0]


def _parsed(text: str, at: str) -> tuple[datetime, str]:
    found = _RFC_3339.fullmatch(text)
    if found is None:
        raise InvalidPayload(f"{text!r:.40} is not a valid RFC 3339 time", path=at)
    second = "59" if found["second"] == _LEAP_SECOND else found["second"]
    try:
        local = datetime.fromisoformat(f"{found['day']}T{found['minute']}:{second}{found['offset'].upper()}")
        moment = local.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise InvalidPayload(f"{text!r:.40} is not a valid date and time", path=at) from None
    return moment, found["fraction"] or ""


def _of_numbers(numbers: list[Any], at: str) -> datetime:
    if len(numbers) != _NUMBERS or not all(type(number) is int for number in numbers):
        raise InvalidPayload("the start of a tangent must be nine whole numbers", path=at)
    year, day, hour, minute, second, nanosecond, *offset = numbers
    try:
        begun = datetime(year, 1, 1, hour, minute, second, nanosecond // 1000)
        return begun + timedelta(days=day - 1) - _offset(*offset)
    except (ValueError, OverflowError):
        raise InvalidPayload("these numbers are not a valid date and time", path=at) from None


def _of_text(text: Any, at: str) -> datetime:
    if not isinstance(text, str):
        raise InvalidPayload("the start of a tangent must be nine whole numbers, or text", path=at)
    found = _SPELLED.fullmatch(text)
    if found is None:
        moment, fraction = _parsed(text, at)
        return moment + _of_a_second(fraction[1:])
    hours, minutes, seconds = found["offset"][1:].split(":")
    offset = _offset(int(hours), int(minutes), int(seconds))
    try:
        clock = f"{found['hour'].zfill(2)}:{found['minute']}:{found['second']}"
        moment = datetime.fromisoformat(f"{found['day']}T{clock}")
        local = moment + _of_a_second(found["fraction"] or "")
        return local + offset if found["offset"].startswith("-") else local - offset
    except (ValueError, OverflowError):
        raise InvalidPayload(f"{text!r:.40} is not a valid date and time", path=at) from None


def _of_a_second(digits: str) -> timedelta:
    return timedelta(microseconds=int(digits[:6].ljust(6, "0")))


def _offset(hours: int, minutes: int, seconds: int) -> timedelta:
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)
