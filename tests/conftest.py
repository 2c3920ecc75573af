"""Settings for all tests: the Hypothesis profile, the order of tests, and the counts in the summary."""

from __future__ import annotations

import gc
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from thoroughness import LONG

# A busy machine makes examples slow, not wrong. `make test` always draws the same ones, `make faults` others.
settings.register_profile(
    "steady", deadline=None, derandomize=not LONG, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")

gc.disable()  # until all tests are collected: what is imported stays

TESTS = Path(__file__).parent
LONGEST_FIRST = ("faults", "acceptance", "integration", "contract", "properties", "unit")
COMPUTING = ("properties", "unit")
"""The folders whose tests compute; those of the others wait for servers and processes half of their time."""
LAST_TO_WAIT = 0.85
"""Where in a run the last test that waits stands: short ones follow, so that all workers end together."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Divide the tests among the workers of xdist, so that one computes while another one waits.

    The scheduler `worksteal` cuts the list into as many equal runs as there are workers, and a worker that
    has finished takes tests from the end of another run. So each run has its share of the tests that wait,
    in the order of their folders, and among them and at its end tests that compute. A file stays in one
    run, where its tests share their fixtures.
    """
    items.sort(key=lambda item: LONGEST_FIRST.index(_folder(item.path)))  # a stable sort: files stay together
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    shares = [
        list[list[pytest.Item]]() for _ in range(getattr(config, "workerinput", {}).get("workercount", 1))
    ]
    waiting = [tests for tests in files.values() if _folder(tests[0].path) not in COMPUTING]
    for number, tests in enumerate(waiting):
        shares[number % len(shares)].append(tests)
    for tests in list(files.values())[len(waiting) :]:
        min(shares, key=lambda share: sum(map(len, share))).append(tests)
    items[:] = [item for share in shares for tests in _mixed(share) for item in tests]


def _mixed(files: list[list[pytest.Item]]) -> list[list[pytest.Item]]:
    """Spread the files of tests that compute evenly among the others, and beyond the last of these."""
    waits = [_folder(tests[0].path) not in COMPUTING for tests in files]
    first = sum(waits)
    places = [
        LAST_TO_WAIT * number / first if waits[number] else (number - first) / (len(files) - first)
        for number in range(len(files))
    ]
    return [tests for _, tests in sorted(zip(places, files, strict=True), key=lambda pair: pair[0])]


def pytest_collection_finish() -> None:
    """Let garbage collections skip what was imported and collected: a million objects that stay."""
    gc.collect()
    gc.freeze()
    gc.enable()


@cache
def _folder(path: Path) -> str:
    """Return the folder below `tests`; a file outside counts as a unit test."""
    name = path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else "unit"
    return name if name in LONGEST_FIRST else "unit"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the sums of what tests recorded as `counted`."""
    sums: dict[str, Counter[str]] = {}
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name == "counted":
                title, counts = value
                sums.setdefault(title, Counter()).update(counts)
    for title, total in sums.items():
        shown = ", ".join(f"{count:,} {what}" for what, count in total.most_common())
        terminalreporter.write_line(f"{title}: {shown}")
