"""Measurements: each prints what it measured beside a peer or a raw limit of the same run."""
