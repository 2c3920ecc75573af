"""The pages are true: their Python runs, and their commands print what the page shows.

A ```python block runs as it stands; blocks of one page share a namespace. In a ```console block
a line that starts with `$ ` is run by a shell in the project's root, and what it prints (both
streams) must be what follows, where a line `…` stands for any number of lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])
BLOCK = re.compile(r"^```(?P<kind>python|console)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
ELLIPSIS = "…"


def blocks(page: Path, kind: str) -> list[str]:
    return [match["body"] for match in BLOCK.finditer(page.read_text()) if match["kind"] == kind]


WITH_PYTHON = [pytest.param(page, id=page.name) for page in PAGES if blocks(page, "python")]


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": page.stem}
    for number, body in enumerate(blocks(page, "python"), start=1):
        exec(compile(body, f"{page.name}, block {number}", "exec"), namespace)


def run(command: str) -> list[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "COLUMNS": "80", "NO_COLOR": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, shell=True, cwd=ROOT, env=env, text=True, check=False, **pipes)
    return done.stdout.rstrip("\n").splitlines()


def pattern(shown: list[str]) -> str:
    any_lines = r"(?:.*\n)*?"
    return "".join(
        any_lines if line.strip() == ELLIPSIS else re.escape(line.rstrip()) + r" *\n" for line in shown
    )


COMMANDS = [
    pytest.param(part, id=f"{page.stem}-{part.splitlines()[0][:40]}")
    for page in PAGES
    for body in blocks(page, "console")
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]
    if not part.startswith("make ")
]


@pytest.mark.parametrize("part", COMMANDS)
def test_a_command_prints_what_the_page_shows(part: str) -> None:
    command, *shown = part.rstrip("\n").splitlines()
    printed = "".join(f"{line}\n" for line in run(command))
    assert re.fullmatch(pattern(shown), printed), f"$ {command}\n{printed}"


def test_a_page_that_is_wrong_is_caught() -> None:
    assert re.fullmatch(pattern(["one", ELLIPSIS, "four"]), "one\ntwo\nthree\nfour\n")
    assert not re.fullmatch(pattern(["one"]), "two\n")


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
