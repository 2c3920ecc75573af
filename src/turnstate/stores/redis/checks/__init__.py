"""The checks of a store, a module for each thing that can be wrong with it."""

from __future__ import annotations
