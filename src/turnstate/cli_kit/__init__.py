"""Helpers that all terminal programs share: the screen, progress, lookup, and reports as text."""
