from __future__ import annotations

import logging

import pytest
from cases import each

from turnstate import catalog, tokens

pytestmark = pytest.mark.req("M1")


@each(
    ("name", "id"),
    [
        ("gpt-4o", "gpt-4o"),
        ("GPT-4O ", "gpt-4o"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("openai/gpt-4o", "gpt-4o"),
        ("openrouter/openai/gpt-4.1-mini", "gpt-4.1-mini"),
        ("gpt-4-0613", "gpt-4"),
        ("gpt-4-1106-preview", "gpt-4-turbo"),
        ("azure/gpt-35-turbo-0125", "gpt-3.5-turbo"),
        ("o1-2024-12-17", "o1"),
        ("o1-mini-2024-09-12", "o1-mini"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("gpt-5-chat-latest", "gpt-5-chat"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-opus-4-20250514", "claude-opus-4"),
        ("claude-opus-4-1-20250805", "claude-opus-4-1"),
        ("claude-3-5-sonnet-latest", "claude-3-5-sonnet"),
        ("claude-3-5-sonnet@20240620", "claude-3-5-sonnet"),
        ("anthropic.claude-3-5-sonnet-20241022-v2:0", "claude-3-5-sonnet"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("gemini-2.5-flash-lite-preview-06-17", "gemini-2.5-flash-lite"),
        ("gemini-1.5-pro-002", "gemini-1.5-pro"),
        ("amazon.nova-pro-v1:0", "nova-pro"),
        ("meta.llama3-1-70b-instruct-v1:0", "llama-3.1"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3"),
        ("llama3.2:3b", "llama-3.2"),
        ("mistral-large-2411", "mistral-large"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("SmolLM2-135M-Instruct", "smollm2"),
    ],
)
def test_a_model_is_found_by_the_names_it_goes_by(name: str, id: str) -> None:
    found = catalog.model(name)
    assert (found.id, found.known) == (id, True)


@each(
    "name",
    ["gpt-4.7", "claude-opus-4-6", "claude-opus-4-6-20300101", "gemini-9.5-pro", "o1x", "gpt", "eliza", ""],
)
def test_another_version_is_another_model(name: str) -> None:
    assert not catalog.model(name).known


def test_an_unknown_model_gets_safe_defaults() -> None:
    found = catalog.model("Acme/Eliza-1966")
    assert found == catalog.ModelInfo(
        id="Acme/Eliza-1966",
        name="Acme/Eliza-1966",
        provider="unknown",
        context_window=200_000,
        output_limit=4_096,
        counter="estimate",
        known=False,
    )


def test_an_unknown_model_of_a_known_family_is_counted_as_the_family() -> None:
    assert catalog.model("claude-next-9").counter == "estimate:claude"
    assert catalog.model("vertex/gemini-9-ultra").counter == "estimate:gemini"


def test_an_unknown_model_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="turnstate.catalog"):
        catalog.model("never-heard-of-it")
        catalog.model("never-heard-of-it")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "'never-heard-of-it' is not in the catalog" in caplog.text


def test_a_known_model_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="turnstate.catalog"):
        catalog.model("gpt-4o-2030-01-01")
    assert caplog.text == ""


@each("model", catalog.models())
def test_every_entry_makes_sense(model: catalog.ModelInfo) -> None:
    assert model.known
    assert model.counter in tokens.counter_names()
    assert 0 < model.output_limit <= model.context_window
    assert set(model.features) <= {"audio", "files", "images", "reasoning", "tools"}
    assert list(model.features) == sorted(model.features)
    for name in (model.id, *model.aliases):
        assert name == name.lower()
        assert catalog.model(name) is model


def test_ids_and_aliases_are_given_once() -> None:
    names = [name for model in catalog.models() for name in (model.id, *model.aliases)]
    assert len(names) == len(set(names))


@each(
    ("name", "window", "output"),
    [
        ("gpt-4o", 128_000, 16_384),
        ("gpt-4.1", 1_047_576, 32_768),
        ("gpt-5", 400_000, 128_000),
        ("o3", 200_000, 100_000),
        ("claude-sonnet-4-5", 200_000, 64_000),
        ("claude-3-haiku", 200_000, 4_096),
        ("gemini-2.5-pro", 1_048_576, 65_536),
        ("smollm2", 8_192, 2_048),
    ],
)
def test_well_known_figures_are_right(name: str, window: int, output: int) -> None:
    found = catalog.model(name)
    assert (found.context_window, found.output_limit) == (window, output)


def test_a_hostile_name_is_only_unknown() -> None:
    for name in (
        "/" * 10_000,
        "gpt-4o" + "-" * 10_000,
        "us." * 5_000,
        "\x00",
        "claude-" + "9" * 5_000,
        "ⅷ" * 100,
    ):
        assert isinstance(catalog.model(name), catalog.ModelInfo)
