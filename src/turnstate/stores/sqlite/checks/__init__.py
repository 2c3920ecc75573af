"""The checks of a file, a module for each thing that can be wrong with it."""

from __future__ import annotations
