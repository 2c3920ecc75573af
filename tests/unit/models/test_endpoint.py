"""Where requests go is known from the address and the environment, and holds no secret."""

from __future__ import annotations

import pytest

from turnstate.errors import InputError
from turnstate.models import Endpoint, connect, endpoint_of

OPENAI, CLAUDE = "https://api.openai.com/v1", "https://api.anthropic.com"
GEMINI = "https://generativelanguage.googleapis.com"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("address", "provider", "url"),
    [
        ("gpt-5", "openai", OPENAI),
        ("claude-sonnet-4-5", "anthropic", CLAUDE),
        ("gemini-2.5-pro", "gemini", GEMINI),
        ("local", "local", ""),
        ("x@http://localhost:11434/v1", "openai", "http://localhost:11434/v1"),
        ("claude-x@HTTP://Host.Example:80/v1//", "openai", "http://host.example/v1"),
        ("x@https://host:443/v1", "openai", "https://host/v1"),
        ("x@https://host:80/v1", "openai", "https://host:80/v1"),
        ("x@http://host:/v1", "openai", "http://host/v1"),
        ("x@http://Bücher。example/v1", "openai", "http://xn--bcher-kva.example/v1"),
        ("x@http://faß.example", "openai", "http://xn--fa-hia.example"),
        ("x@http://host/my path/%7eann/a%2fb", "openai", "http://host/my%20path/~ann/a%2Fb"),
        ("x@http://host/a/../%2E/v1", "openai", "http://host/v1"),
        ("x@https://ann:secret@host/v1?key=secret#secret", "openai", "https://host/v1"),
        ("x@http://[::1]:8080/v1", "openai", "http://[::1]:8080/v1"),
    ],
)
def test_an_address_leads_to_one_place(address: str, provider: str, url: str) -> None:
    assert endpoint_of(address) == Endpoint(provider, url)


def test_the_variables_of_the_sdks_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://a/v1/")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://b")
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "http://c")
    found = [endpoint_of(name).url for name in ("gpt-5", "claude-x", "gemini-x", "x@http://d/v1")]
    assert found == ["http://a/v1", "http://b", "http://c", "http://d/v1"]
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "eu")
    assert endpoint_of("gemini-x") == Endpoint("vertex", "https://aiplatform.googleapis.com/p/eu")


def test_a_url_that_is_none_is_refused() -> None:
    for wrong in ("http://[::1/v1", "http://host:port/v1", "http://host:99999/v1", "http://host/\ud800"):
        with pytest.raises(InputError, match="the URL of a model cannot be read"):
            endpoint_of(f"x@{wrong}")


def test_an_endpoint_that_cannot_be_reached_from_here_is_refused() -> None:
    for endpoint in (
        Endpoint("vertex", "https://aiplatform.googleapis.com/p/eu"),
        Endpoint("else", "http://x"),
    ):
        with pytest.raises(InputError, match="cannot be reached from this environment"):
            connect("gemini-x", api_key="key", endpoint=endpoint)
