"""The pages in `docs/` are complete: settings and names as in the code, pictures as their script draws."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return import_module("pictures")
    finally:
        sys.path.remove(str(ROOT / "tools"))


def test_the_diagrams_are_what_their_script_draws(pictures: ModuleType) -> None:
    for name, draw in pictures.DIAGRAMS.items():
        drawn = (DOCS / "img" / f"{name}.svg").read_text("utf-8")
        assert drawn == draw().svg(), f"run: python tools/pictures.py ({name}.svg differs)"


def test_a_text_that_reaches_over_the_edge_or_another_text_is_refused(pictures: ModuleType) -> None:
    canvas = pictures.Canvas(100, 50, "a small picture")
    canvas.text(10, 20, "short")
    with pytest.raises(pictures.Overlap, match="reaches from"):
        canvas.text(60, 40, "much too long")
    with pytest.raises(pictures.Overlap, match="drawn over 'short'"):
        canvas.text(30, 22, "over")
