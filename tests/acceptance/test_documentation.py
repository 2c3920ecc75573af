"""The pages are correct: their Python runs, and their commands print what the page shows.

A ```python block is executed; blocks of one page share a namespace. In a ```console block a line that
starts with `$ ` is run in the project's root, by a shell if it needs one, and its output (both streams)
must be what follows, where a line `…` matches any number of lines.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cli_program import in_order, turnstate
from tests.acceptance.forked_program import program

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


STORE = ". docs/examples/store.sh; "
QUIET = " > /dev/null 2>&1"
PLAIN = re.compile(rf'(turnstate [^|;<>&$`]*({QUIET})?|echo "exit code \$\?")(; |$)')
"""Command lines without other shell syntax: they run in this process, which is much quicker."""


@pytest.fixture(scope="module")
def example_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Import the example sessions once, as `docs/examples/store.sh` does for each command."""
    folder = tmp_path_factory.mktemp("example")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNSTATE_HOME", str(folder / "home"))
        archive = ROOT / "docs/examples/sessions.jsonl"
        assert turnstate("import", archive, "--store", f"sqlite:///{folder}/example.db").code == 0
    return folder


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder for the search path, with a `turnstate` that starts at once."""
    with program(tmp_path_factory.mktemp("programs")) as folder:
        yield folder


def run(command: str, example_store: Path, programs: Path, folder: Path) -> str:
    """Return what a command of a page prints, both streams in order."""
    lines = [match[1] for match in PLAIN.finditer(command.removeprefix(STORE))]
    if "; ".join(lines) != command.removeprefix(STORE):
        return shell(command, programs)
    printed, code = "", 0
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("COLUMNS", "80")
        patch.setenv("NO_COLOR", "1")
        if command.startswith(STORE):
            shutil.copytree(example_store, folder)
            patch.setenv("TURNSTATE_STORE", f"sqlite:///{folder}/example.db")
            patch.setenv("TURNSTATE_HOME", str(folder / "home"))
        for line in lines:
            if line.startswith("echo "):
                printed += f"exit code {code}\n"
                continue
            code, output = in_order(*shlex.split(line.removesuffix(QUIET))[1:])
            printed += "" if line.endswith(QUIET) else output
    return printed


def shell(command: str, programs: Path) -> str:
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "COLUMNS": "80", "NO_COLOR": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, shell=True, cwd=ROOT, env=env, text=True, check=False, **pipes)
    return done.stdout


def pattern(shown: list[str]) -> str:
    any_lines = r"(?:.*\n)*?"
    return "".join(
        any_lines if line.strip() == ELLIPSIS else re.escape(line.rstrip()) + r" *\n" for line in shown
    )


WITH_COMMANDS = [pytest.param(page, id=page.name) for page in PAGES if blocks(page, "console")]


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_the_commands_of_a_page_print_what_it_shows(
    page: Path, example_store: Path, programs: Path, tmp_path: Path
) -> None:
    parts = [
        part
        for body in blocks(page, "console")
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]
        if not part.startswith("make ")
    ]
    for number, part in enumerate(parts):
        command, *shown = part.rstrip("\n").splitlines()
        printed = run(command, example_store, programs, tmp_path / str(number))
        lines = "".join(f"{line}\n" for line in printed.rstrip("\n").splitlines())
        assert re.fullmatch(pattern(shown), lines), f"{page.name}: $ {command}\n{printed}"


def test_a_page_that_is_wrong_is_caught() -> None:
    assert re.fullmatch(pattern(["one", ELLIPSIS, "four"]), "one\ntwo\nthree\nfour\n")
    assert not re.fullmatch(pattern(["one"]), "two\n")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site derive them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for path, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
            target = page.parent / path if path else page
            assert target.exists(), f"{page.name} links to {path}"
            assert not anchor or anchor in anchors(target), f"{page.name} links to {path}#{anchor}"
