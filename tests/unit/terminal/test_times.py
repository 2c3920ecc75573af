from __future__ import annotations

import time

import click
import pytest
from click.testing import CliRunner

from turnstate.terminal.times import ago, iso, time_option


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (5, "just now"),
        (65, "1 min ago"),
        (59 * 60 + 30, "59 min ago"),
        (3 * 3_600 + 30, "3 h ago"),
        (12 * 86_400 + 30, "12 d ago"),
    ],
)
def test_a_moment_is_how_long_ago(seconds: int, shown: str) -> None:
    assert ago(int((time.time() - seconds) * 1000)) == shown


@pytest.mark.parametrize(
    ("ms", "shown"),
    [(1_000_000_000_000, "2001-09-09"), (9_999_999_999_999, "2286-11-20"), (0, "1970-01-01")],
)
def test_what_is_long_ago_or_to_come_is_a_day(ms: int, shown: str) -> None:
    assert ago(ms) == shown


def test_programs_get_milliseconds_in_utc() -> None:
    assert iso(1_750_000_000_007) == "2025-06-15T15:06:40.007Z"
    assert iso(2**53) == "9007199254740992 ms"


@pytest.mark.parametrize("given", ["2025-06-30", "2025-06-30T00:00", "2025-06-30T09:00+09:00"])
def test_a_day_without_a_zone_is_one_in_utc(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @time_option("--since", "a moment")
    def command(since: int) -> None:
        click.echo(since)

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert CliRunner().invoke(command, ["--since", given]).output == "1751241600000\n"
    finally:
        monkeypatch.undo()
        time.tzset()
