"""Benchmarks: each prints its results next to another library or a raw limit, measured in the same run."""
