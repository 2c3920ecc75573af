"""Jobs that run in a separate process of ours, since what they are given may make them run forever.

A regular expression, a file name pattern or a JSON schema that comes from a model, a server or a repository
can take exponential time, and nothing in a Python process can stop a running match. `process` starts the
worker and calls it, `worker` is the program that runs in it, and every other module of this package is one
job. This module imports nothing: the worker has to start fast.
"""

from __future__ import annotations

__all__: list[str] = []
