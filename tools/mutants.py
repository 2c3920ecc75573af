"""Plant known faults in the source, one at a time, and see that the tests catch each of them.

    python tools/mutants.py                  run all; exit 1 if one is missed
    python tools/mutants.py NAME ...         run some
    python tools/mutants.py --list           print the names and what each fault breaks
    python tools/mutants.py --check          only check that every fault can still be planted

A mutant is a text that must occur exactly once in the package, in any file, and what is put in its place.
Texts are pieces of logic without names of modules, so that they survive when code moves. One that no longer
occurs once was changed together with the logic: find the logic again, or plant another fault there.

Each worker has its own copy of the project and proves that it imports the package from there. The tests of
all mutants run once without a fault first, since a test that fails anyway catches nothing. A run that takes
too long counts as caught, and is printed as such; a fault that breaks the import catches nothing.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mutant_list import MUTANTS, Mutant, Tests

ROOT = Path(__file__).resolve().parents[1]
NAME: str = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["name"]
PACKAGE = Path("src") / NAME

NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "dist", "build", "*.egg-info", ".coverage*"
)
TIME_LIMIT = 600.0
"""Seconds for one run of tests."""

_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - |$)", re.MULTILINE)


class Outcome(NamedTuple):
    """What became of a run of tests."""

    result: str  # "caught", "caught by timeout", "MISSED", "BROKEN"
    detail: str
    seconds: float


def sources(root: Path) -> dict[Path, str]:
    """Return the text of every file of the package; files that are no text are left out."""
    found = dict[Path, str]()
    for path in sorted((root / PACKAGE).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            try:
                found[path] = path.read_bytes().decode("utf-8")
            except UnicodeDecodeError:
                continue
    return found


def faults(mutants: list[Mutant]) -> list[str]:
    """Return which mutants cannot be planted, and why."""
    texts, wrong = sources(ROOT), list[str]()
    for mutant in mutants:
        times = sum(text.count(mutant.find) for text in texts.values())
        if times != 1:
            wrong.append(f"{mutant.name}: its text occurs {times} times, not once: {mutant.find!r}")
        if mutant.find == mutant.put:
            wrong.append(f"{mutant.name}: it changes nothing")
        try:
            mutant.tests.arguments(ROOT)
        except FileNotFoundError as error:
            wrong.append(f"{mutant.name}: there are no tests {error}")
    names = [mutant.name for mutant in mutants]
    wrong += [f"{name}: the name is used twice" for name in sorted({n for n in names if names.count(n) > 1})]
    return wrong


class Worker:
    """A copy of the project in which one mutant at a time is planted."""

    def __init__(self, folder: Path, limit: float) -> None:
        self._root, self._limit = folder / "project", limit
        shutil.copytree(ROOT, self._root, ignore=NOT_COPIED, symlinks=True)
        inherited = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([str(self._root / "src"), *([inherited] if inherited else [])])
        self._environment = os.environ | {"PYTHONPATH": path}
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or every run compiles everything
        self._stamp = int(time.time())
        self._check_import()

    def baseline(self, selections: list[Tests]) -> dict[Tests, str]:
        """Run tests without a fault; return those that cannot judge one, and why.

        All of them run together first: only if one fails is each selection run by itself.
        """
        paths = dict.fromkeys(path for tests in selections for path in tests.paths)
        code, output = self._pytest(Tests(tuple(paths), selections[0].keyword), len(selections))
        if code == 0:
            return {}
        if len(selections) > 1:
            alone = [self.baseline([tests]) for tests in selections]
            return {tests: reason for one in alone for tests, reason in one.items()}
        reason = "no test is selected" if code == 5 else _failing(output) or output.strip()[-400:]
        return {selections[0]: reason or "no end in time"}

    def run(self, mutant: Mutant) -> Outcome:
        """Plant a mutant, run its tests, and take it out again."""
        (path, text), *_ = ((p, t) for p, t in sources(self._root).items() if mutant.find in t)
        began = time.monotonic()
        self._write(path, text.replace(mutant.find, mutant.put))
        try:
            code, output = self._pytest(mutant.tests)
        finally:
            self._write(path, text)
        seconds = time.monotonic() - began
        if code is None:
            return Outcome("caught by timeout", f"no end within {self._limit:g} s", seconds)
        if code == 0:
            return Outcome("MISSED", str(mutant.tests), seconds)
        if code == 1:
            return Outcome("caught", _failing(output), seconds)
        return Outcome("BROKEN", _failing(output) or output.strip()[-400:], seconds)

    def _write(self, path: Path, text: str) -> None:
        """Write a file with a time of its own, so that no compiled version of another text is used."""
        path.write_bytes(text.encode("utf-8"))
        self._stamp += 2
        os.utime(path, (self._stamp, self._stamp))

    def _pytest(self, tests: Tests, times: int = 1) -> tuple[int | None, str]:
        command = [sys.executable, "-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider"]
        with tempfile.TemporaryFile() as output:
            running = subprocess.Popen(
                [*command, *tests.arguments(self._root)],
                cwd=self._root,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # so that servers which tests start end with them
            )
            code: int | None
            try:
                code = running.wait(self._limit * times)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(running)
            output.seek(0)
            return code, output.read().decode("utf-8", "replace")

    def _check_import(self) -> None:
        command = [sys.executable, "-c", f"import {NAME}; print({NAME}.__file__)"]
        told = subprocess.run(
            command, cwd=self._root, env=self._environment, capture_output=True, text=True, check=False
        )
        if Path(told.stdout.strip() or ".").parent != self._root / PACKAGE:
            sys.exit(f"mutants: {NAME} is imported from {told.stdout or told.stderr}, not from the copy")


def _end(running: subprocess.Popen[bytes]) -> None:
    """End a run with everything that it started."""
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def _failing(output: str) -> str:
    found = _FAILED.search(output)
    return found[1] if found else ""


def run(mutants: list[Mutant], *, jobs: int, limit: float) -> dict[str, Outcome]:
    """Run the tests without a fault, then every mutant; print each outcome as it comes."""
    outcomes, printing = dict[str, Outcome](), threading.Lock()
    red = dict[Tests, str]()
    waiting = queue.SimpleQueue[Mutant | list[Tests]]()

    def work(worker: Worker) -> None:
        while True:
            try:
                task = waiting.get_nowait()
            except queue.Empty:
                return
            if isinstance(task, list):
                red.update(worker.baseline(task))
                continue
            if task.tests in red:
                outcome = Outcome("RED", f"without the fault: {red[task.tests]}", 0.0)
            else:
                outcome = worker.run(task)
            outcomes[task.name] = outcome
            with printing:
                line = f"{outcome.result:18}{task.name:32}{outcome.seconds:6.1f} s  {outcome.detail}"
                print(line, flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        workers = [Worker(Path(folder, str(number)), limit) for number in range(jobs)]
        by_keyword = dict[str, dict[Tests, None]]()
        for mutant in mutants:
            by_keyword.setdefault(mutant.tests.keyword, {})[mutant.tests] = None
        for tasks in ([list(selections) for selections in by_keyword.values()], mutants):
            for task in tasks:
                waiting.put(task)
            threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    return outcomes


def main() -> int:
    """Do what was asked for; return 1 if a mutant is missed or cannot be planted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these mutants; all if none is named")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time, each in a copy")
    parser.add_argument("--time-limit", type=float, default=TIME_LIMIT, help="seconds for one run of tests")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run nothing")
    parser.add_argument("--check", action="store_true", help="only check that each can be planted")
    options = parser.parse_args()
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no mutant is named {', '.join(unknown)}; --list prints the names")
    chosen = [known[name] for name in options.names] or list(MUTANTS)
    if options.list:
        print("\n".join(f"{mutant.name:32}{mutant.breaks}" for mutant in chosen))
        return 0
    if wrong := faults(chosen):
        print("\n".join(wrong), f"{len(wrong)} faults in the list of {len(chosen)} mutants", sep="\n")
        return 1
    if options.check:
        print(f"{len(chosen)} mutants can be planted")
        return 0
    outcomes = run(chosen, jobs=max(1, options.jobs), limit=options.time_limit)
    caught = sum(outcome.result.startswith("caught") for outcome in outcomes.values())
    print(f"{caught} of {len(chosen)} caught")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
