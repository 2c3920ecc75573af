"""Which folders checkpoints are made of, and which are refused, and why.

A home folder or the whole machine is hardly ever meant, and a restore there would reach everything.
Force lifts that. A work tree that is the shadow repository, or inside it, is refused in any case.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import WorkTreeRefused

__all__ = ["checked_work_tree"]


def checked_work_tree(work_tree: Path, folder: Path, *, force: bool) -> Path:
    """Give the real path of a folder that checkpoints can be made of."""
    try:
        real = work_tree.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise WorkTreeRefused(f"{work_tree} cannot be used: {error}") from error
    if not real.is_dir():
        raise WorkTreeRefused(f"{work_tree} is not a folder")
    shadow = folder.resolve()
    if real == shadow or shadow in real.parents:
        raise WorkTreeRefused(f"{real} is inside of {shadow}, where the checkpoints are kept; work elsewhere")
    if not force:
        _refuse_too_much(real)
    return real


def _refuse_too_much(real: Path) -> None:
    if real == Path(real.anchor):
        raise WorkTreeRefused(
            f"{real} is the whole machine, and a restore would reach all of it; start in a project"
        )
    homes = {Path(home).resolve() for home in (os.path.expanduser("~"), os.environ.get("HOME", "")) if home}
    if real in homes:
        raise WorkTreeRefused(
            f"{real} is a home folder, and a restore would reach all of it; start in a project"
        )
    if above := next((home for home in homes if real in home.parents), None):
        raise WorkTreeRefused(
            f"{real} holds the home folder {above}, and a restore would reach it; start in a project"
        )
