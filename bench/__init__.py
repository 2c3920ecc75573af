"""Benchmarks: each prints its figures beside another library or a raw limit, measured in the same run."""
