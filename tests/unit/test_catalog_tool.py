"""The tool that writes the catalog: what it takes from each source, and what it decides if they disagree."""

from __future__ import annotations

import importlib.util
import json
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from turnstate import catalog

ROOT = Path(__file__).parents[2]
TODAY = date(2026, 11, 18)

PRICES = """
from .types import *
providers: list[Provider] = [
    Provider(id='openai', models=[
        ModelInfo(id='gpt-8', name='GPT-8', match=ClauseEquals(equals='gpt-8'), context_window=400000,
            prices=ModelPrice(input_mtok=Decimal('2'), output_mtok=Decimal('8'))),
        ModelInfo(id='gpt-8-nano', context_window=100000, prices=[
            ConditionalPrice(prices=ModelPrice(input_mtok=Decimal('5'), output_mtok=Decimal('9'))),
            ConditionalPrice(constraint=StartDateConstraint(start_date=datetime.date(2026, 11, 1)),
                prices=ModelPrice(input_mtok=Decimal('4'), output_mtok=Decimal('9'))),
            ConditionalPrice(constraint=StartDateConstraint(start_date=datetime.date(2027, 1, 1)),
                prices=ModelPrice(input_mtok=Decimal('3'), output_mtok=Decimal('9'))),
        ]),
        ModelInfo(id='gpt-8-long', context_window=900000, prices=ModelPrice(
            input_mtok=TieredPrices(base=Decimal('1'), tiers=[Tier(start=200000, price=Decimal('2'))]),
            output_mtok=Decimal('4'))),
        ModelInfo(id='gpt-8-owl', context_window=64000, prices=[
            ConditionalPrice(prices=ModelPrice(input_mtok=Decimal('1'), output_mtok=Decimal('1'))),
            ConditionalPrice(constraint=TimeOfDateConstraint(start_time=time(1, 0), end_time=time(4, 0)),
                prices=ModelPrice(input_mtok=Decimal('2'), output_mtok=Decimal('2'))),
        ]),
        ModelInfo(id='gpt-8-image', context_window=64000, prices=ModelPrice()),
    ]),
]
"""
LIMITS = {
    "sample_spec": {"mode": "one of: chat"},
    "gpt-8": {"max_input_tokens": 272_000, "max_output_tokens": 128_000, "input_cost_per_token": 3e-6},
    "gpt-8-2026-10-01": {"max_input_tokens": 272_000, "max_output_tokens": 128_000},
    "gpt-8-codex": {
        "max_input_tokens": 272_000,
        "max_output_tokens": 128_000,
        "deprecation_date": "2027-01-01",
    },
    "gpt-8-max": {"max_input_tokens": 272_000, "max_output_tokens": 128_000, "input_cost_per_token": 2e-6},
    "gpt-8-nano": {"max_input_tokens": 131_072, "max_output_tokens": 131_072},
    "gpt-8-owl": {"max_input_tokens": 64_000, "max_output_tokens": 8_000, "input_cost_per_token": 1e-6},
    "us.anthropic.claude-x-9": {
        "litellm_provider": "bedrock_converse",
        "input_cost_per_token": 2.2e-6,
        "output_cost_per_token": 1.1e-5,
    },
}
COMMON = {"mode": "chat", "litellm_provider": "openai", "output_cost_per_token": 8e-6}


@cache
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("catalog_tool", ROOT / "tools/catalog.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def written() -> tuple[dict[str, Any], list[str]]:
    ours = {
        "unknown": {"context_window": 200_000, "output_limit": 8_192},
        "families": {"gpt": {"provider": "openai", "counter": "o200k_base"}},
        "aliases": {},
        "model": [
            {
                "id": "open-1",
                "name": "Open",
                "provider": "us",
                "context_window": 9,
                "output_limit": 3,
                "counter": "x",
            }
        ],
    }
    limits = {key: COMMON | one if key != "sample_spec" else one for key, one in LIMITS.items()} | {
        "bedrock/none": {"litellm_provider": "bedrock", "mode": "chat"},
        "bedrock-none": {"litellm_provider": "bedrock", "mode": "chat"},
    }
    writer = tool().Writer(
        {"genai-prices": ("1.2", PRICES), "litellm": ("3.4", json.dumps(limits))}, ours, TODAY
    )
    document = writer.document()
    return document, writer.disagreements


@pytest.mark.parametrize(
    ("id", "window", "output", "is_sent", "input"),
    [
        ("gpt-8", 400_000, 128_000, True, 2.0),  # input and output are the window; the price is genai-prices'
        ("gpt-8-codex", 400_000, 128_000, True, None),  # has the limits of gpt-8, so the window too
        ("gpt-8-max", 400_000, 128_000, True, 2.0),  # as gpt-8 in everything, which no name can tell
        ("gpt-8-nano", 100_000, 25_000, False, 4.0),  # the smaller window; no limit of its own; today's price
        ("gpt-8-long", 900_000, 128_000, False, 1.0),  # the relative's output limit
        ("gpt-8-owl", 64_000, 8_000, True, None),  # the price depends on the hour
        ("open-1", 9, 3, True, None),
    ],
)
def test_an_entry_is_made_from_both_sources(
    id: str, window: int, output: int, is_sent: bool, input: float | None
) -> None:
    (entry,) = (one for one in written()[0]["models"] if one["id"] == id)
    assert (entry["context_window"], entry["output_limit"]) == (window, output)
    assert entry.get("output_is_known", True) is is_sent
    assert entry.get("prices", {}).get("input") == input


def test_dates_sources_tiers_and_routes_are_kept() -> None:
    document, _ = written()
    entries = {one["id"]: one for one in document["models"]}
    assert (document["written"], document["sources"]) == (
        "2026-11-18",
        {"genai-prices": "1.2", "litellm": "3.4"},
    )
    assert entries["gpt-8"]["sources"] == ["genai-prices", "litellm"]
    assert entries["gpt-8-codex"]["ends"] == "2027-01-01"
    assert entries["gpt-8-long"]["prices"]["longer"] == [{"above": 200_000, "input": 2.0, "output": 4.0}]
    assert document["routes"] == {"us.anthropic.claude-x-9": {"input": 2.2, "output": 11.0}}


def test_names_that_resolve_alike_and_other_kinds_of_models_are_left_out() -> None:
    entries = {one["id"] for one in written()[0]["models"]}
    assert not entries & {"gpt-8-2026-10-01", "gpt-8-image", "sample_spec"}


def test_every_disagreement_is_reported() -> None:
    assert written()[1] == [
        "gpt-8: price of input 2 (genai-prices), 3 (litellm)",
        "gpt-8-nano: window 100,000 (genai-prices), 131,072 (litellm)",
    ]


def test_the_catalog_is_what_the_tool_writes() -> None:
    content = (ROOT / "src/turnstate/catalog.json").read_text("utf-8")
    assert tool().text(json.loads(content)) == content, "run: python tools/catalog.py"


NAMED = """
    chatgpt-4o-latest claude-fable-5 claude-fable-5-1 claude-fable-5-2 claude-haiku-4-5
    claude-haiku-4-5-20251001 claude-haiku-5-5 claude-mythos-5 claude-mythos-5-1 claude-mythos-5-2
    claude-mythos-preview claude-opus-4-5 claude-opus-4-5-20251101 claude-opus-4-6 claude-opus-4-7
    claude-opus-4-8 claude-opus-5 claude-opus-5-5 claude-sonnet-4-5 claude-sonnet-4-5-20250929
    claude-sonnet-4-6 claude-sonnet-5 claude-sonnet-5-5 gemini-2.5-flash gemini-2.5-flash-lite
    gemini-2.5-pro gemini-3-flash-preview gemini-3.1-flash-lite gemini-3.1-pro-preview
    gemini-3.5-flash gemini-3.5-flash-lite gemini-3.6-flash gemini-3.7-flash gemini-3.8-flash
    gemini-4-argon gemini-4-carbon gemini-flash-latest gemini-flash-lite-latest gemini-pro-latest
    gpt-4.1 gpt-4.1-mini gpt-4.1-nano gpt-4o gpt-4o-2024-05-13 gpt-4o-2024-11-20 gpt-4o-mini gpt-5
    gpt-5-2025-08-07 gpt-5-codex gpt-5-mini gpt-5-nano gpt-5-pro gpt-5.1 gpt-5.1-chat-latest
    gpt-5.1-codex gpt-5.1-codex-max gpt-5.2 gpt-5.2-chat-latest gpt-5.2-pro gpt-5.3-chat-latest
    gpt-5.4 gpt-5.4-mini gpt-5.4-mini-2026-03-17 gpt-5.4-nano gpt-5.5 gpt-5.5-2026-04-23 gpt-5.5-pro
    gpt-5.6-cyber gpt-5.6-luna gpt-5.6-sol gpt-5.6-terra gpt-6-astra gpt-6-cyber gpt-6-luna
    gpt-6-rosalind gpt-6-sol gpt-6.1-sol gpt-6.1-terra o1 o1-2024-12-17 o1-mini o1-preview o1-pro o3
    o3-2025-04-16 o3-mini o3-pro o4-mini
"""
"""Chat models that anthropic 2.8.0, openai 3.49.0 and google-genai 3.1.0 name, the oldest that we support."""

NOT_LISTED = ["gemini-4-carbon", "gpt-6-cyber"]  # by neither source; both have relatives


def test_the_models_that_the_minimum_versions_of_the_sdks_name_are_known() -> None:
    # `make models` compares with whatever is installed; new models of new SDKs must not fail the tests.
    assert {name for name in NAMED.split() if not catalog.model(name).known} <= set(NOT_LISTED)
    assert all(catalog.model(name).context_window > 200_000 for name in NOT_LISTED)
