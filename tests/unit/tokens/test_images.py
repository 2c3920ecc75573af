from __future__ import annotations

import struct

import pytest

from turnstate import ImagePart
from turnstate.tokens import images

pytestmark = pytest.mark.req("B3")


def image(width: int, height: int, detail: str | None = None) -> ImagePart:
    header = struct.pack(">I4sII", 13, b"IHDR", width, height)
    return ImagePart(data=b"\x89PNG\r\n\x1a\n" + header, media_type="image/png", detail=detail)


ELSEWHERE = ImagePart(url="https://example.org/cat.png")


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [
        (1024, 1024, 765),  # both examples that OpenAI works through
        (2048, 4096, 1105),
        (512, 512, 255),
        (513, 512, 425),
        (1, 1, 255),
        (100_000, 1, 765),
        (8_192, 8_192, 765),
    ],
)
def test_openai_charges_for_tiles(width: int, height: int, tokens: int) -> None:
    assert images.openai(image(width, height)) == tokens


def test_low_detail_has_one_price() -> None:
    assert images.openai(image(4096, 8192, detail="low")) == 85


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [
        (200, 200, 54),
        (1000, 1000, 1334),
        (1092, 1092, 1590),
        (1568, 1568, 1600),
        (3136, 1568, 1600),
        (15_680, 750, 157),
    ],
)
def test_claude_charges_for_pixels(width: int, height: int, tokens: int) -> None:
    assert images.anthropic(image(width, height)) == tokens


@pytest.mark.parametrize(
    ("width", "height", "tokens"), [(384, 384, 258), (385, 384, 258), (768, 769, 516), (1920, 1080, 1548)]
)
def test_gemini_charges_for_tiles(width: int, height: int, tokens: int) -> None:
    assert images.gemini(image(width, height)) == tokens


def test_an_image_elsewhere_costs_what_a_large_one_does() -> None:
    assert images.openai(ELSEWHERE) == 1445 >= images.openai(image(2048, 700))
    assert images.anthropic(ELSEWHERE) == 1600
    assert images.gemini(ELSEWHERE) == images.gemini(image(1920, 1080))


def test_bytes_that_are_no_image_cost_the_same() -> None:
    assert images.openai(ImagePart(data=b"garbage")) == images.openai(ELSEWHERE)


def test_the_rule_is_that_of_the_provider_whose_tokens_are_counted() -> None:
    assert images.rule_for("o200k_base") is images.rule_for("cl100k_base") is images.openai
    assert images.rule_for("estimate:claude") is images.anthropic
    assert images.rule_for("estimate:gemini") is images.gemini
    assert images.rule_for("estimate:llama") is images.cautious


def test_where_no_rule_is_known_the_dearest_is_taken() -> None:
    assert images.cautious(image(200, 200)) == images.gemini(image(200, 200)) == 258
    assert images.cautious(image(1024, 1024)) == images.anthropic(image(1024, 1024)) == 1399
