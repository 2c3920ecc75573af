from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import date
from typing import Any

import msgspec
import pytest

from turnstate import Budget, catalog, tokens
from turnstate.entry import Usage
from turnstate.errors import InvalidSetting

pytestmark = pytest.mark.req("M1")


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("gpt-4o", "gpt-4o"),
        ("GPT-4O ", "gpt-4o"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("openai/gpt-4o", "gpt-4o"),
        ("openrouter/openai/gpt-4.1-mini", "gpt-4.1-mini"),
        ("gpt-4-0613", "gpt-4"),
        ("gpt-4-0125-preview", "gpt-4-turbo"),
        ("gpt-5.4-2026-03-05", "gpt-5.4"),
        ("us.anthropic.claude-opus-4-6-v1", "claude-opus-4-6"),
        ("claude-sonnet-5.5", "claude-sonnet-5-5"),
        ("global.openai.gpt-6.1-sol", "gpt-6.1-sol"),
        ("moonshotai/Kimi-K2.6", "kimi-k2.6"),
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
        ("gemini-1.5-pro-002", "gemini-1.5-pro"),
        ("amazon.nova-pro-v1:0", "nova-pro"),
        ("meta.llama3-1-70b-instruct-v1:0", "llama-3.1"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3"),
        ("llama3.2:3b", "llama-3.2"),
        ("mistral-medium-2604", "mistral-medium"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5"),
        ("qwen3-235b-a22b-instruct-2507", "qwen3"),
        ("openrouter/meta-llama/llama-3.1-70b-instruct:free", "llama-3.1"),
        ("meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8", "llama-4-maverick"),
        ("mistral-7b-instruct-v0.3", "mistral-7b"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("SmolLM2-135M-Instruct", "smollm2"),
    ],
)
def test_a_model_is_found_by_the_names_it_goes_by(name: str, id: str) -> None:
    found = catalog.model(name)
    assert (found.id, found.known) == (id, True)


@pytest.mark.parametrize(
    "name",
    ["gpt-4.7", "claude-opus-5-9", "claude-opus-5-9-20300101", "gemini-9.5-pro", "o1x", "gpt", "eliza", ""],
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
        output_limit=8_192,
        counter="estimate",
        known=False,
        output_is_known=False,
    )


@pytest.mark.parametrize(
    ("name", "kin"),
    [
        ("claude-sonnet-9", "claude-sonnet-5-5"),  # the newest of its line
        ("anthropic/claude-sonnet-9.1:beta", "claude-sonnet-5-5"),
        ("claude-opus-5-9-20300101", "claude-opus-5-5"),
        ("gpt-7-mini", "gpt-5.4-mini"),
        ("vertex/gemini-9-flash-lite", "gemini-3.5-flash-lite"),
        ("claude-sonnet-4-1", "claude-sonnet-4"),  # not one that is newer than itself …
        ("gpt-5.0-mini", "gpt-5-mini"),
        ("claude-opus-1", "claude-3-opus"),  # … unless there is no other
    ],
)
def test_an_unknown_member_of_a_family_has_the_limits_of_its_newest_relative(name: str, kin: str) -> None:
    found, like = catalog.model(name), catalog.model(kin)
    assert not found.known
    assert (found.context_window, found.output_limit) == (like.context_window, like.output_limit)
    assert (found.provider, found.counter) == (like.provider, like.counter)
    assert not found.output_is_known
    assert found.prices is None  # a price is never guessed


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("o3-deep-research", "o3"),  # real, at five times the price
        ("gpt-4o-audio-preview", "gpt-4o"),
        ("gpt-4o-realtime-preview-2025-06-03", "gpt-4o"),
        ("gpt-4o-mini-transcribe", "gpt-4o-mini"),
        ("gpt-6.1-sol-mini", "gpt-6.1-sol"),  # invented, as those of tomorrow will be
        ("openai/gpt-6.1-sol-pro:batch", "gpt-6.1-sol"),
        ("claude-sonnet-5-5-fast", "claude-sonnet-5-5"),
        ("gpt-6.1-sol-8b", "gpt-6.1-sol"),  # sizes of what is sold have their own prices
        ("gemini-2.5-flash-lite-preview-06-17", "gemini-2.5-flash-lite"),  # so have previews
        ("deepseek-r1-distill-llama-70b", "deepseek-r1"),
    ],
)
def test_a_suffix_that_is_no_date_means_another_model(
    name: str, base: str, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.model.cache_clear()
    with caplog.at_level(logging.WARNING, logger="turnstate.catalog"):
        found, like = catalog.model(name), catalog.model(base)
    assert (found.known, found.output_is_known, found.prices) == (False, False, None)
    assert (found.context_window, found.output_limit) == (like.context_window, like.output_limit)
    assert (found.provider, found.counter) == (like.provider, like.counter)
    assert "is not in the catalog" in caplog.text
    assert Budget.of(found).max_output is None  # an assumed limit is not sent


def test_an_unknown_member_of_a_family_without_a_number_is_like_the_newest() -> None:
    assert catalog.model("claude-next").context_window == catalog.model("claude-opus-5-5").context_window


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


@pytest.mark.parametrize("model", catalog.models())
def test_every_entry_makes_sense(model: catalog.ModelInfo) -> None:
    assert model.known
    assert model.counter in tokens.counter_names()
    assert 0 < model.output_limit <= model.context_window
    assert set(model.features) <= {"audio", "files", "images", "reasoning", "tools"}
    assert list(model.features) == sorted(model.features)
    assert model.as_of
    assert model.ends == "" or date.fromisoformat(model.ends)
    assert catalog.model(model.id) is model
    for name in (model.id, *model.aliases):
        assert name == name.lower()
        assert msgspec.structs.replace(catalog.model(name), prices=model.prices) == model


def test_ids_and_aliases_are_given_once() -> None:
    names = [name for model in catalog.models() for name in (model.id, *model.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "window", "output"),
    [
        ("gpt-4o", 128_000, 16_384),
        ("gpt-4.1", 1_000_000, 32_768),
        ("gpt-5", 400_000, 128_000),
        ("gpt-5-codex", 400_000, 128_000),
        ("gpt-6.1-sol", 1_050_000, 128_000),
        ("claude-sonnet-5-5", 1_000_000, 128_000),
        ("claude-haiku-5-5", 1_000_000, 128_000),
        ("gemini-3.8-flash", 1_000_000, 65_536),
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


# Prices.


def test_prices_carry_their_day_and_their_source() -> None:
    found = catalog.model("claude-sonnet-5-5")
    assert found.prices == catalog.Prices(
        input=2.0, output=10.0, cached=0.1, written=2.5, written_for_hour=4.0
    )
    assert date.fromisoformat(found.as_of) >= date(2026, 11, 18)
    assert [one.split(" ")[0] for one in found.sources] == ["genai-prices", "litellm"]


@pytest.mark.parametrize(
    ("name", "input"),
    [
        ("gpt-5", 1.25),
        ("models/gemini-3.8-flash", 0.75),
        ("us.anthropic.claude-sonnet-5", 2.2),  # a region of Bedrock has its own price
        ("global.anthropic.claude-sonnet-5", 2.0),
        ("openrouter/openai/gpt-5", None),  # another seller may ask for anything
        ("claude-sonnet-4-5@20250929", None),
        ("gpt-4o:extended", None),  # makers sell without tags
        ("gpt-4o/gpt-4o", None),
        ("claude-sonnet-5.5", None),  # an alias is how others name it
        ("gpt-4-0125-preview", None),
        ("chatgpt-4o-latest", 5.0),  # its own, not that of gpt-4o
        ("gpt-5.6-sol", 4.0),
        ("anthropic.claude-3-5-haiku-20241022-v1:0", 0.8),  # its maker has ended it
        ("deepseek-v4-pro", None),  # another price at night
        ("llama-3.3", None),
        ("claude-sonnet-9", None),
    ],
)
def test_a_price_belongs_to_a_seller_and_is_never_guessed(name: str, input: float | None) -> None:
    prices = catalog.model(name).prices
    assert (prices.input if prices else None) == input


def test_a_request_costs_what_each_kind_of_token_costs() -> None:
    prices = catalog.Prices(input=2, output=10, cached=0.2, written=2.5)
    details = {"usage": {"cache_creation_input_tokens": 1_000}}
    usage = Usage(input=10_000, output=500, cached=6_000, details=details)
    assert prices.cost(usage) == pytest.approx((3_000 * 2 + 1_000 * 2.5 + 6_000 * 0.2 + 500 * 10) / 1e6)
    told = {"usage": {"prompt_tokens_details": {"cache_write_tokens": 1_000}}}
    assert prices.cost(Usage(input=10_000, output=500, cached=6_000, details=told)) == prices.cost(usage)


def test_what_anthropic_keeps_for_an_hour_costs_more_to_write() -> None:
    prices = catalog.model("claude-sonnet-5-5").prices
    assert prices
    kinds = {"ephemeral_5m_input_tokens": 100_000, "ephemeral_1h_input_tokens": 900_000}
    details = {"usage": {"cache_creation_input_tokens": 1_000_000, "cache_creation": kinds}}
    usage = Usage(input=1_000_000, details=details)
    assert prices.cost(usage) == pytest.approx(0.1 * 2.5 + 0.9 * 4)
    bedrock = [{"ttl": "5m", "inputTokens": 100_000}, {"ttl": "1h", "inputTokens": 900_000}]
    told: Any = {"usage": {"cacheWriteInputTokens": 1_000_000, "cacheDetails": bedrock}}
    assert prices.cost(Usage(input=1_000_000, details=told)) == prices.cost(usage)
    plain = msgspec.structs.replace(prices, written_for_hour=None)
    assert plain.cost(usage) == pytest.approx(2.5)  # without a price for it, as any other write
    for odd in ({"ephemeral_1h_input_tokens": "9"}, {"ephemeral_1h_input_tokens": -9}, 9, None):
        told = {"usage": {"cache_creation_input_tokens": 1_000_000, "cache_creation": odd}}
        assert prices.cost(Usage(input=1_000_000, details=told)) == pytest.approx(2.5)


def test_a_long_request_costs_more_as_a_whole() -> None:
    prices = catalog.model("gpt-6.1-sol").prices
    assert prices
    assert prices.cost(Usage(input=272_000)) == pytest.approx(272_000 * 2 / 1e6)
    assert prices.cost(Usage(input=272_001)) == pytest.approx(272_001 * 4 / 1e6)


def test_a_reported_cost_is_better_than_a_computed_one() -> None:
    usage = Usage(input=1_000, output=10, model="gpt-5-2025-08-07")
    computed = catalog.cost(usage)
    assert computed
    assert (computed.amount, computed.as_of) == (pytest.approx(0.00135), catalog.model("gpt-5").as_of)
    assert not computed.is_reported
    for details in ({"cost": 0.5}, {"usage": {"cost": 0.5}}):  # the second is where OpenRouter reports it
        assert catalog.cost(msgspec.structs.replace(usage, details=details)) == catalog.Cost(
            0.5, is_reported=True
        )
    assert catalog.cost(msgspec.structs.replace(usage, model="eliza")) is None


# Models of one's own.


@pytest.fixture(autouse=True)
def _catalog_as_shipped() -> Iterator[None]:
    yield
    catalog._registered.clear()
    catalog.model.cache_clear()


def test_a_model_can_be_registered() -> None:
    prices = catalog.Prices(input=1, output=2)
    assert not catalog.model("acme-chat").known
    catalog.register("Acme-Chat", context_window=32_000, output_limit=2_000, prices=prices, aliases=["acme"])
    for name in ("acme-chat", "ACME", "acme-chat-2026-01-01", "acme/acme-chat"):
        found = catalog.model(name)
        assert (found.known, found.context_window, found.output_limit) == (True, 32_000, 2_000)
        assert found.prices == prices
        cost = catalog.cost(Usage(input=1_000_000, model=name))
        assert cost == catalog.Cost(1.0, is_reported=False)
    assert catalog.model("acme") in catalog.models()


def test_a_registered_model_replaces_the_catalogs_and_is_counted_as_its_family() -> None:
    catalog.register("claude-sonnet-5-5", context_window=200_000)
    found = catalog.model("claude-sonnet-5-5")
    assert (found.context_window, found.counter) == (200_000, catalog.model("claude-sonnet-5").counter)
    assert not found.output_is_known  # so none is sent


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "  ", "context_window": 1_000},
        {"id": "x", "context_window": 0},
        {"id": "x", "context_window": 1_000, "output_limit": 2_000},
        {"id": "x", "context_window": 1_000, "aliases": ["y", ""]},
        {"id": "x", "context_window": 1_000, "prices": 3},
    ],
)
def test_a_wrong_registration_changes_nothing(wrong: dict[str, Any]) -> None:
    before = catalog.models()
    with pytest.raises(InvalidSetting):
        catalog.register(**wrong)
    assert catalog.models() == before
