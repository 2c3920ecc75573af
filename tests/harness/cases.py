"""Many cases in one test, as one item of the suite; the error of a failing case says which one it is.

`each` replaces `pytest.mark.parametrize`. `case` is for a loop inside a test.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def case(name: object) -> Iterator[None]:
    """Add the name of the case to whatever the block raises."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in case {name}")
        raise


def each(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Any]:
    """Run a test with every case in turn; the case that fails is named in a note of its error.

    It can be stacked as `pytest.mark.parametrize` can. Fixtures are shared by all cases, so a test whose
    cases need a fresh fixture each is parametrized instead.
    """
    fields = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [row if len(fields) > 1 else (row,) for row in cases]
    if not rows:
        raise ValueError(f"no case for {', '.join(fields)}: the test would prove nothing")

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def run_all(**others: Any) -> None:
            for number, row in enumerate(rows):
                given = dict(zip(fields, row, strict=True))
                try:
                    test(**others, **given)
                except BaseException as error:
                    shown = ", ".join(f"{name}={value!r:.300}" for name, value in given.items())
                    error.add_note(f"in case {number}: {shown}")
                    raise

        signature = inspect.signature(test)
        others = [one for name, one in signature.parameters.items() if name not in fields]
        run_all.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        run_all.__name__, run_all.__doc__, run_all.__module__ = test.__name__, test.__doc__, test.__module__
        run_all.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
        return run_all

    return decorate
