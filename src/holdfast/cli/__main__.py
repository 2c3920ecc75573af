"""``python -m holdfast.cli`` is ``holdfast``."""

from __future__ import annotations

from . import main

if __name__ == "__main__":
    main()
