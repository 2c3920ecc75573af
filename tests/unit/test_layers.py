"""An import goes down the layers: never up, and never sideways to another package of the same layer.

The source is read, not run: imports inside functions and under ``TYPE_CHECKING`` count like any other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

import turnstate

ROOT = Path(turnstate.__file__).parent

VALUES = {
    "_version",
    "catalog",
    "codec",
    "descriptors",
    "entry",
    "errors",
    "files",
    "folder_gate",
    "folder_walk",
    "home",
    "ids",
    "long_json",
    "message",
    "open_databases",
    "own_files",
    "part",
    "plain_text",
    "process",
    "search_terms",
    "strict_json",
    "telemetry",
    "threads",
    "toolspec",
    "value",
    "wire_text",
}
"""Modules, not packages: they are one layer and may import each other."""

# From the bottom up. A module belongs to the layer of the first name of its path.
LAYERS: list[set[str]] = [
    VALUES,
    {"jobs"},
    {"tokens", "formats"},
    {"context"},
    {"models", "stores"},
    {"log", "sticky"},
    {"conversation", "snapshots", "shadow", "memory"},
    {"session"},
    {"checkpoints", "archive", "blocking", "report", "testing"},
    {"tools"},
    {"agent"},
    {"config"},
    {"terminal"},
    {"demo", "chat"},
    {"cli"},
    {"__main__"},
]
PURE = VALUES - {
    "_version",
    "descriptors",
    "errors",
    "files",
    "folder_gate",
    "folder_walk",
    "home",
    "ids",
    "open_databases",
    "process",
    "telemetry",
    "threads",
} | {
    "formats",
    "tokens",
    "context",
}
IMPURE_IMPORTS = {
    "asyncio",
    "datetime",
    "os",
    "random",
    "secrets",
    "socket",
    "subprocess",
    "threading",
    "time",
    "uuid",
}
ALLOWED = {
    ("context.cut", "datetime"),  # the type of a time that is given
    ("entry", "datetime"),  # the type of a time that was recorded
    ("message", "datetime"),  # checks a time that is given
    ("tokens.cost", "asyncio"),  # counts large texts in a thread
    ("tokens.cost", "threading"),  # a vocabulary is loaded once, by whichever thread comes first
}


def modules() -> list[str]:
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sorted(ROOT.rglob("*.py"))]
    return [name for name in names if name != "__init__"]


@cache
def imports(module: str, source: str | None = None) -> list[str]:
    """Return the imports of a module: ours relative to the package, others with a colon before the name."""
    path = ROOT / Path(*module.split(".")).with_suffix(".py")
    package, found = module.split(".")[:-1], list[str]()
    for node in ast.walk(ast.parse(path.read_text() if source is None else source)):
        if isinstance(node, ast.Import):
            found += [f":{alias.name.split('.')[0]}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.append(f":{(node.module or '').split('.')[0]}")
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] + (node.module or "").split(".")
            origin = ".".join(part for part in base if part)
            found += [origin] if origin else [alias.name for alias in node.names]
    return found


def layer(module: str) -> int:
    return next(level for level, names in enumerate(LAYERS) if module.split(".")[0] in names)


def forbidden(module: str, imported: Iterable[str]) -> list[str]:
    """Return the imports that go up, or sideways to another package."""
    own = module.split(".")[0]
    ours = ((name, name.split(".")[0]) for name in imported if not name.startswith(":"))
    return [
        f"{module} imports {name}"
        for name, package in ours
        if package != own
        and (layer(package) > layer(own) or (layer(package) == layer(own) and own not in VALUES))
    ]


def test_every_module_has_a_layer() -> None:
    known = set().union(*LAYERS)
    assert {name.split(".")[0] for name in modules()} <= known


def test_the_map_shows_every_package_in_its_layer() -> None:
    page = (ROOT.parents[1] / "CONTRIBUTING.md").read_text()
    picture = page.split("## The layers")[1].split("```")[1].splitlines()
    table = page.split("## The packages")[1].split("\n## ")[0]
    for names in LAYERS[1:-1]:
        assert any(names <= set(line.split()) for line in picture), names
        assert all(f"`{name}`" in table for name in names), names


def test_imports_go_down() -> None:
    wrong = {one for module in modules() for one in forbidden(module, imports(module))}
    assert wrong == set()


def test_pure_modules_have_no_clock_no_randomness_and_no_input() -> None:
    used = {
        (module, name[1:])
        for module in modules()
        if module.split(".")[0] in PURE
        for name in imports(module)
        if name[1:] in IMPURE_IMPORTS and name.startswith(":")
    }
    assert used - ALLOWED == set()


@pytest.mark.parametrize(
    "line",
    [
        "from ..cli import count",
        "from ..cli.count import x",
        "def f():\n    from .. import testing",
        "if TYPE_CHECKING:\n    from ..session import Session",
        "from ..tokens import counter",
    ],
)
def test_a_planted_import_that_goes_up_or_sideways_is_caught(line: str) -> None:
    assert len(forbidden("formats.port", imports("formats.port", line))) == 1


def test_a_planted_clock_is_caught() -> None:
    assert set(imports("formats.port", "import time.x")) == {":time"}


def test_the_package_itself_never_imports_itself_by_name() -> None:
    offenders = [module for module in modules() if ":turnstate" in set(imports(module))]
    assert offenders == []
