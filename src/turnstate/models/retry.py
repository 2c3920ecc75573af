"""Retries: what an error of a provider's SDK means, whether and when to send the request again.

The SDKs have no error classes in common, so an error is judged by what it carries: an HTTP status, headers,
the code of an error that arrived inside a stream. A rate limit, a server error, a lost connection and a
silent one are transient; the provider may say how long to wait, in seconds or until a date. Any other error
is raised immediately.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any

from msgspec import Struct

from ..errors import ModelFailed, ReplyInterrupted, RequestTooLong, TurnstateError
from ..value import check_number, check_whole

_TOO_LONG = re.compile(
    r"context.?(length|window|size)|maximum context|prompt is too long|input is too long|too many tokens"
    r"|exceeds the maximum number of tokens|input length and .?max_tokens",
    re.IGNORECASE,
)
_PASSING_STATUS = frozenset({408, 409, 425, 429})
_PASSING_CODES = re.compile(
    r"overloaded|rate_limit|throttl|api_error|timeout|server_?error|unavailable|modelstreamerror|modelnotready",
    re.IGNORECASE,
)
"""Codes of transient errors that providers send inside a stream, after an HTTP status of success."""

_LOST = ("Connection", "Connect", "Timeout", "Protocol", "Network", "ReadError", "WriteError", "Incomplete")
"""Parts of error class names that mean a lost connection, in the SDKs and the libraries below them."""

_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")


class Retry(Struct, frozen=True, kw_only=True):
    """How often and how long a request is tried; times are in seconds."""

    attempts: int = 5
    first_pause: float = 0.5
    longest_pause: float = 30.0
    first_chunk: float = 120.0
    """Maximum wait for the first chunk of an answer, and between two chunks."""
    deadline: float | None = None
    """Maximum time of a request in total, including every attempt and pause."""

    def __post_init__(self) -> None:
        check_whole("Retry.attempts", self.attempts, least=1)
        for name in ("first_pause", "longest_pause", "first_chunk"):
            check_number(f"Retry.{name}", getattr(self, name), least=0, most=86_400)
        if self.deadline is not None:
            check_number("Retry.deadline", self.deadline, least=0, most=86_400, above=True)

    def pause(self, failures: int, asked: float | None) -> float:
        """Return the seconds to wait: what the provider asked for, or a pause that doubles per failure."""
        if asked is not None:
            return min(asked, self.longest_pause)
        pause: float = min(self.longest_pause, self.first_pause * 2 ** (failures - 1))
        return pause * random.uniform(0.5, 1.0)  # noqa: S311 - so that many clients do not come back at once


def is_passing(error: Exception) -> bool:
    """Return True if an error is transient: sending the request again may help."""
    if isinstance(error, TurnstateError):
        return isinstance(error, ReplyInterrupted) and not _TOO_LONG.search(str(error))
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    status = _status(error)
    if status is not None and status >= 400:
        return status in _PASSING_STATUS or status >= 500
    if any(_PASSING_CODES.search(code) for code in _codes(error)):
        return True
    return any(word in type(error).__name__ for word in _LOST)


def asked_pause(error: Exception) -> float | None:
    """Return how many seconds the provider asks to wait, or None if it does not say."""
    headers = _headers(error)
    with suppress(TypeError, ValueError):
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1_000)
        if "retry-after" in headers:
            return _after(headers["retry-after"])
    with suppress(AttributeError, TypeError, KeyError):
        for detail in error.details["error"]["details"]:  # type: ignore[attr-defined]  # as Google says it
            if found := _SECONDS.fullmatch(detail.get("retryDelay", "")):
                return float(found[1])
    return None


def failure(error: Exception, model: str, *, secret: str | None = None) -> ModelFailed:
    """Convert an error of an SDK or a format to a `ModelFailed` that does not contain the key."""
    text = f"{model}: {described(error, secret=secret)}"
    is_refused = (_status(error) or 400) in (
        200,
        400,
        413,
    )  # not a rate limit, whose message may read the same
    if isinstance(error, ModelFailed):
        text = f"{model}: {error}"
    if is_refused and _TOO_LONG.search(str(error)):
        return RequestTooLong(text)
    return type(error)(text) if isinstance(error, ModelFailed) else ModelFailed(text)


def described(error: Exception, *, secret: str | None = None) -> str:
    """Describe an error in one line, without the key: its class and the first line of its message."""
    text = (str(error).strip().splitlines() or ["no message"])[0]
    if secret:
        text = text.replace(secret, "…")
    return f"{type(error).__name__}: {text[:500]}"


def _status(error: Exception) -> int | None:
    """Return the HTTP status of an error from any SDK."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's
        return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) or None
    for name in ("status_code", "code"):
        if isinstance(status := getattr(error, name, None), int):
            return status
    return None


def _codes(error: Exception) -> Iterator[str]:
    """Yield the codes and types of an error that arrived inside a stream."""
    body = getattr(error, "body", None)
    response = getattr(error, "response", None)
    found: list[Any] = [body, getattr(error, "code", None), getattr(error, "type", None)]
    found += [body.get("error")] if isinstance(body, dict) else []
    found += [response.get("Error")] if isinstance(response, dict) else []
    for one in found:
        values = [one.get(name) for name in ("type", "code", "Code")] if isinstance(one, dict) else [one]
        yield from (value for value in values if isinstance(value, str))


def _headers(error: Exception) -> Mapping[str, Any]:
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    else:
        headers = getattr(response, "headers", None) or {}
    with suppress(AttributeError, TypeError):
        return {str(name).lower(): value for name, value in headers.items()}
    return {}


def _after(value: str) -> float:
    """Return the seconds to wait by a ``Retry-After`` header: a number, or the time until a date."""
    try:
        return max(0.0, float(value))
    except ValueError:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
