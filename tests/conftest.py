"""Settings that all tests share, and the figures that tests counted, told at the end."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

# No test is a race: a busy machine makes examples slow, not wrong.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Add up what tests recorded as `counted`, and print it before the number of tests."""
    sums: dict[str, Counter[str]] = {}
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name == "counted":
                title, counts = value
                sums.setdefault(title, Counter()).update(counts)
    for title, total in sums.items():
        shown = ", ".join(f"{count:,} {what}" for what, count in total.most_common())
        terminalreporter.write_line(f"{title}: {shown}")
