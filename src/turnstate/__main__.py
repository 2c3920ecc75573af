"""The program's entry point: ``turnstate`` and ``python -m turnstate``.

Ctrl-C ends the process without a traceback at any time. While modules are being imported and while the
interpreter shuts down, the signal has its default action; in between, `cli.run` handles it.
"""

from __future__ import annotations

# What `signal` wraps: it is built in, so nothing is loaded that Ctrl-C could interrupt.
import _signal  # type: ignore[import-not-found]
import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


def main() -> NoReturn:
    """Run the program and exit with its code."""
    _on_interrupt(_signal.SIG_DFL)
    from .cli import run

    _on_interrupt(_signal.default_int_handler)
    code = run(sys.argv[1:])
    _on_interrupt(_signal.SIG_DFL)
    gc.freeze()  # spare the final collection, which would search everything a long session left behind
    sys.exit(code)


def _on_interrupt(action: Any) -> None:
    if _signal.getsignal(_signal.SIGINT) is not _signal.SIG_IGN:  # background jobs ignore it
        _signal.signal(_signal.SIGINT, action)


if __name__ == "__main__":
    main()
