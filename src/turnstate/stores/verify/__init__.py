"""The rules by which stores are checked and mended, each written once; a store reads and writes for them."""

from __future__ import annotations
