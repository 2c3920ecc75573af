"""The program's entry point: ``turnstate`` and ``python -m turnstate``.

Ctrl-C ends the process without a traceback at any time. While modules are being imported and while the
interpreter shuts down, the signal has its default action; in between, `cli.run` handles it.
"""

from __future__ import annotations

import gc
import signal
import sys
from typing import Any, NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the program and exit with its code."""
    _on_interrupt(signal.SIG_DFL)
    from .cli import run

    _on_interrupt(signal.default_int_handler)
    code = run(sys.argv[1:])
    _on_interrupt(signal.SIG_DFL)
    gc.freeze()  # spare the final collection, which would search everything a long session left behind
    sys.exit(code)


def _on_interrupt(action: Any) -> None:
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # background jobs ignore it
        signal.signal(signal.SIGINT, action)


if __name__ == "__main__":
    main()
