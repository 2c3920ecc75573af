"""The public surface is what `__all__` says: nothing leaks, nothing is missing, nothing is slow."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import turnstate

ROOT = Path(turnstate.__file__).parent
HEAVY = ["anthropic", "apsw", "asyncpg", "click", "mcp", "numpy", "openai", "redis", "rich", "toktok"]

PUBLIC = """
    Branch Budget Compaction ContextSnapshot FilePart Fitted ImagePart LogEntry Message OpaquePart Policy
    ReasoningPart Receipt SearchResult Session SessionInfo SessionManager StateManager Strategy TextPart
    ToolCallRequest ToolCallResult ToolSpec Window __version__ errors fit fitted formats
""".split()


def modules() -> list[str]:
    names = [".".join(["turnstate", *p.relative_to(ROOT).with_suffix("").parts]) for p in ROOT.rglob("*.py")]
    return sorted(name.removesuffix(".__init__") for name in names if not name.endswith("__main__"))


def test_the_public_names_are_these() -> None:
    assert sorted(turnstate.__all__) == sorted(PUBLIC)


def test_no_other_name_leaks_from_the_package() -> None:
    assert sorted(dir(turnstate)) == sorted(PUBLIC)
    with pytest.raises(AttributeError, match="no attribute 'Massage'"):
        turnstate.Massage  # noqa: B018


def test_every_public_name_is_there_when_it_is_asked_for() -> None:
    code = f"import turnstate; print(all(getattr(turnstate, name) for name in {PUBLIC}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_every_module_explains_itself_and_exports_what_it_has() -> None:
    for name in modules():
        module = import_module(name)
        assert module.__doc__, name
        exported = getattr(module, "__all__", [])
        assert [one for one in exported if not hasattr(module, one)] == [], name
        assert len(set(exported)) == len(exported), name


def named_by_pages() -> set[str]:
    """The modules from which README, pages, examples and the package itself import public names."""
    root = ROOT.parents[1]
    pages = [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "docs").rglob("*.py")]
    text = "\n".join(page.read_text() for page in pages)
    imported = re.findall(r"^\s*(?:from|import) (turnstate[\w.]*)", text, re.MULTILINE)
    return {*imported, *re.findall(r"^::: (\S+)", text, re.MULTILINE), *homes()}


def homes() -> set[str]:
    return {f"turnstate.{home}" for home in turnstate._HOMES}


def test_modules_say_what_is_public_where_somebody_is_told_to_import_from_them() -> None:
    named = named_by_pages()
    assert len(named) > 20
    assert [name for name in sorted(named) if not hasattr(import_module(name), "__all__")] == []


def test_no_other_module_lists_its_names() -> None:
    """A list that nobody reads has to be kept up by everybody; packages say what they offer."""
    facades = {
        "turnstate.stores.redis.faults"
    }  # the names of an optional package, with one error if it is missing
    quiet = {*modules()} - named_by_pages() - facades
    plain = [name for name in quiet if not hasattr(import_module(name), "__path__")]
    assert [name for name in sorted(plain) if hasattr(import_module(name), "__all__")] == []


def test_importing_turnstate_loads_nothing_heavy() -> None:
    code = f"import sys; from turnstate import *; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_extra_installs_what_some_module_imports() -> None:
    """An extra that is offered and used by nothing misleads whoever installs it."""
    project = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    source = "\n".join(path.read_text() for path in ROOT.rglob("*.py"))
    tools = {"all", "dev", "docs"}
    offered = [one for name, listed in extras.items() if name not in tools for one in listed]
    packages = {re.match(r"[\w-]+", one)[0] for one in offered}  # type: ignore[index]
    modules = {re.sub("-(genai|api)$", "", name) for name in packages}  # google-genai is imported from google
    assert modules
    used = r"^\s*(import|from) {0}\b|sys\.modules\.get\(\"{0}\b"  # telemetry is used where it is loaded
    assert [name for name in modules if not re.search(used.format(name), source, re.MULTILINE)] == []
    assert extras["all"] == [f"{project['name']}[{','.join(sorted(set(extras) - tools))}]"]
