"""Settings for all tests: the Hypothesis profile, the order of tests, what they must close, the summary."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.harness.open_files import all_closed
from tests.harness.thoroughness import LONG

# A busy machine makes examples slow, not wrong. `make test` always draws the same ones, `make faults` others.
settings.register_profile(
    "steady", deadline=None, derandomize=not LONG, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")

gc.disable()  # until all tests are collected: what is imported stays

TESTS = Path(__file__).parent
LONGEST_FIRST = ("faults", "properties", "acceptance", "integration", "contract", "unit")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the folders with the longest tests first, and divide them among the workers of xdist.

    The scheduler `worksteal` cuts the list into as many equal runs as there are workers, and a worker that
    has finished takes tests from the end of another run. So each run starts with its share of the long
    tests and ends with short ones. A file stays in one run, where its tests share their fixtures.
    """
    items.sort(key=lambda item: LONGEST_FIRST.index(_folder(item.path)))  # a stable sort: files stay together
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    short = [item for item in items if _folder(item.path) == "unit"]
    files: dict[Path, list[pytest.Item]] = {}
    for item in items[: len(items) - len(short)]:
        files.setdefault(item.path, []).append(item)
    shares = [list[pytest.Item]() for _ in range(workers)]
    for number, tests in enumerate(files.values()):
        shares[number % workers] += tests
    for number, share in enumerate(shares):
        # The size that xdist gives to this run: an equal part of what is left.
        missing = max(0, (len(items) - sum(map(len, shares[:number]))) // (workers - number) - len(share))
        share += short[:missing]
        del short[:missing]
    items[:] = [item for share in shares for item in share] + short


def pytest_collection_finish() -> None:
    """Let garbage collections skip what was imported and collected: a million objects that stay."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _closes_its_databases() -> Iterator[None]:
    """Fail the test that leaves a database open, instead of a later one that looks for what is open."""
    with all_closed():
        yield


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
