"""An import goes down or sideways, never up: read from the source, not from a run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import turnstate

ROOT = Path(turnstate.__file__).parent

# From the bottom up. A module belongs to the layer of the first name of its path.
LAYERS: list[set[str]] = [
    {
        "_version",
        "errors",
        "files",
        "home",
        "ids",
        "long_json",
        "strict_json",
        "value",
        "part",
        "message",
        "codec",
        "wire_text",
        "toolspec",
        "entry",
        "search_terms",
    },
    {"tokens", "catalog", "formats"},
    {"context"},
    {"models", "stores"},
    {"log", "sticky"},
    {"conversation", "session", "snapshots", "shadow", "memory", "checkpoints"},
    {"archive", "blocking"},
    {"testing"},
    {"cli_kit"},
    {"cli", "demo"},
    {"__main__"},
]
PURE = {"long_json", "strict_json", "value", "part", "message", "codec", "wire_text", "toolspec"}
PURE |= {"entry", "search_terms"}
PURE |= {"formats", "tokens", "catalog", "context"}
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
    ("tokens.exact", "asyncio"),  # its idea is to leave the loop free
    ("tokens.exact", "threading"),  # a table is loaded once, whoever asks
}


def modules() -> list[str]:
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sorted(ROOT.rglob("*.py"))]
    return [name for name in names if name != "__init__"]


def imports(module: str, source: str | None = None) -> Iterator[str]:
    """Give the imports of a module: ours relative to the package, others by their first name with a colon."""
    path = ROOT / Path(*module.split(".")).with_suffix(".py")
    package = module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text() if source is None else source)):
        if isinstance(node, ast.Import):
            yield from (f":{alias.name.split('.')[0]}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield f":{(node.module or '').split('.')[0]}"
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] + (node.module or "").split(".")
            origin = ".".join(part for part in base if part)
            yield from ([origin] if origin else [alias.name for alias in node.names])


def layer(module: str) -> int:
    return next(level for level, names in enumerate(LAYERS) if module.split(".")[0] in names)


def test_every_module_has_a_layer() -> None:
    known = set().union(*LAYERS)
    assert {name.split(".")[0] for name in modules()} <= known


@pytest.mark.parametrize("module", modules())
def test_imports_go_down_or_sideways(module: str) -> None:
    ours = [name for name in imports(module) if not name.startswith(":")]
    assert [name for name in ours if layer(name) > layer(module)] == []


@pytest.mark.parametrize("module", [name for name in modules() if name.split(".")[0] in PURE])
def test_pure_modules_have_no_clock_no_chance_and_no_input(module: str) -> None:
    used = {name[1:] for name in imports(module) if name.startswith(":")} & IMPURE_IMPORTS
    assert {name for name in used if (module, name) not in ALLOWED} == set()


@pytest.mark.parametrize(
    "line", ["from ..cli import count", "from ..cli.count import x", "def f():\n    from .. import testing"]
)
def test_a_planted_import_that_goes_up_is_caught(line: str) -> None:
    assert any(layer(name) > layer("formats.port") for name in imports("formats.port", line))


def test_a_planted_clock_is_caught() -> None:
    assert set(imports("formats.port", "import time.x")) == {":time"}


def test_the_package_itself_never_imports_itself_by_name() -> None:
    offenders = [module for module in modules() if ":turnstate" in set(imports(module))]
    assert offenders == []
