"""Endpoints: where the requests to a model go, known before anything is sent.

A model's address names the model and perhaps a URL; without one, the provider's own variable or its default
decides. So the same address can lead to different places in two environments. An `Endpoint` is the place
itself, without user, password and query and in one spelling, so that it can be stored and compared.
"""

from __future__ import annotations

import os
import re
from unicodedata import normalize
from urllib.parse import quote, unquote_to_bytes, urlsplit

from msgspec import Struct

from ..errors import InputError

LOCAL = "local"
"""The address of the small model that runs in this process."""

OPENAI_URL = "https://api.openai.com/v1"

_PLACES = {
    "openai": ("OPENAI_BASE_URL", OPENAI_URL),
    "anthropic": ("ANTHROPIC_BASE_URL", "https://api.anthropic.com"),
    "gemini": ("GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com"),
}
"""For each provider, the variable that its SDK reads, and where requests go without it."""

_VERTEX = ("GOOGLE_GENAI_USE_ENTERPRISE", "GOOGLE_GENAI_USE_VERTEXAI")
"""The variables that make Google's SDK use the Cloud; the first that is set decides."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
_DOTS = re.compile("[.\u3002\uff0e\uff61]")  # each separates the labels of a host (IDNA)
_IN_PATHS = "!$&'()*+,;=:@"  # may stand in a path as they are, besides letters, digits and -._~ (RFC 3986)


class Endpoint(Struct, frozen=True):
    """Where requests go: the ``provider`` whose protocol is spoken there, and the ``url``."""

    provider: str
    url: str

    def __str__(self) -> str:
        return self.url or "this process"


def endpoint_of(address: str) -> Endpoint:
    """Return where the requests to a model go in this environment; raise `InputError` for a wrong URL."""
    if address == LOCAL:
        return Endpoint(LOCAL, "")
    provider, url = provider_of(address), address.partition("@")[2]
    if provider == "gemini" and _uses_vertex():
        place = "/".join(os.environ.get(f"GOOGLE_CLOUD_{name}", "") for name in ("PROJECT", "LOCATION"))
        base = os.environ.get("GOOGLE_VERTEX_BASE_URL") or "https://aiplatform.googleapis.com"
        return Endpoint("vertex", f"{without_secrets(base)}/{place}")
    variable, default = _PLACES[provider]
    return Endpoint(provider, without_secrets(url or os.environ.get(variable) or default))


def provider_of(address: str) -> str:
    """Return the provider whose key a model's address needs: ``openai``, ``anthropic`` or ``gemini``."""
    name, _, url = address.partition("@")
    if url:
        return "openai"
    if name.startswith("claude"):
        return "anthropic"
    return "gemini" if name.startswith("gemini") else "openai"


def without_secrets(url: str) -> str:
    """Return the scheme, host, port and path of a URL, the same for every way to write them."""
    try:
        parts = urlsplit(url.strip())
        is_default = parts.port in (None, _DEFAULT_PORTS.get(parts.scheme))
        port = "" if is_default else f":{parts.port}"
        return f"{parts.scheme}://{_host(parts.hostname or '')}{port}{_path(parts.path)}"
    except ValueError as error:
        raise InputError(f"the URL of a model cannot be read: {error}") from None


def _host(name: str) -> str:
    """Return a host in ASCII: as it is sent, and so that no letter looks like another."""
    if ":" in name:
        return f"[{name}]"
    labels = (normalize("NFC", label) for label in _DOTS.split(name))
    # Not the "idna" of the standard library: by its older standard ß becomes ss, which is another host.
    return ".".join(one if one.isascii() else f"xn--{one.encode('punycode').decode()}" for one in labels)


def _path(path: str) -> str:
    kept = list[str]()
    for segment in path.removeprefix("/").split("/"):
        name = quote(unquote_to_bytes(segment), safe=_IN_PATHS)
        if name == "..":
            kept = kept[:-1]
        elif name != ".":
            kept.append(name)
    return "".join(f"/{name}" for name in kept).rstrip("/")


def _uses_vertex() -> bool:
    said = next((os.environ[name] for name in _VERTEX if name in os.environ), "")
    return said.lower() in ("true", "1")
