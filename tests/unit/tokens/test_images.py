from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate import ImagePart, Message
from turnstate.tokens import counter_for, images, message_cost
from turnstate.tokens.cost import MESSAGE_FRAME
from turnstate.tokens.images import Size, size_of

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
    assert images.rule_for("estimate:claude-4.7") is images.anthropic_large
    assert images.rule_for("estimate:gemini") is images.gemini
    assert images.rule_for("estimate:llama") is images.cautious


def test_where_no_rule_is_known_the_dearest_is_taken() -> None:
    assert images.cautious(image(200, 200)) == images.gemini(image(200, 200)) == 258
    assert images.cautious(image(1024, 1024)) == images.anthropic(image(1024, 1024)) == 1399


MAGIC = [
    b"\x89PNG\r\n\x1a\n",
    b"GIF89a",
    b"\xff\xd8",
    b"\xff\xd8\xff",
    b"RIFF\x00\x00\x00\x00WEBPVP8X",
    b"RIFF____WEBPVP8L",
]


def png(width: int, height: int) -> bytes:
    return (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I4sIIBBBBB", 13, b"IHDR", width, height, 8, 6, 0, 0, 0)
        + b"\x00" * 4
    )


def gif(width: int, height: int, version: bytes = b"GIF89a") -> bytes:
    return version + struct.pack("<HHBBB", width, height, 0x80, 0, 0)


def jpeg(width: int, height: int, *, frame: int = 0xC0, before: bytes = b"") -> bytes:
    start = struct.pack(">BBHBHHB", 0xFF, frame, 17, 8, height, width, 3) + b"\x00" * 9
    return b"\xff\xd8" + segment(0xE0, b"JFIF\x00" + b"\x00" * 9) + before + start


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def webp(kind: bytes, body: bytes) -> bytes:
    chunk = kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk


def lossy(width: int, height: int) -> bytes:
    return webp(
        b"VP8 ", b"\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", width, height | 0x4000) + b"\x00" * 8
    )


def lossless(width: int, height: int) -> bytes:
    return webp(
        b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14 | 1 << 28) + b"\x00" * 8
    )


def extended(width: int, height: int) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return webp(b"VP8X", b"\x10\x00\x00\x00" + sides)


FILES = {
    "png": png(640, 480),
    "gif 87": gif(640, 480, b"GIF87a"),
    "gif 89": gif(640, 480),
    "jpeg": jpeg(640, 480),
    "progressive jpeg": jpeg(640, 480, frame=0xC2),
    "jpeg with a preview inside": jpeg(640, 480, before=segment(0xE1, b"Exif\x00\x00" + jpeg(160, 120))),
    "jpeg with tables first": jpeg(640, 480, before=segment(0xC4, b"\x00" * 30) + b"\xff" * 3),
    "jpeg with a restart marker": jpeg(640, 480, before=b"\xff\xd0\xff\x01"),
    "webp lossy": lossy(640, 480),
    "webp lossless": lossless(640, 480),
    "webp extended": extended(640, 480),
}


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in FILES.items()])
def test_the_size_is_read_from_the_header(data: bytes) -> None:
    assert size_of(data) == Size(640, 480)


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in FILES.items()])
def test_a_file_that_is_cut_off_has_a_size_or_none(data: bytes) -> None:
    for end in range(len(data)):
        assert size_of(data[:end]) in (None, Size(640, 480))


@pytest.mark.parametrize("data", [png(0, 480), gif(640, 0), jpeg(0, 0), lossy(0, 1)])
def test_an_image_without_area_has_no_size(data: bytes) -> None:
    assert size_of(data) is None


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"<svg width='3'/>", b"BM" + b"\x00" * 50, b"\xff\xd8\xff\xd9", b"%PDF-1.7"]
)
def test_what_is_no_such_image_has_no_size(data: bytes) -> None:
    assert size_of(data) is None


@given(st.builds(lambda start, rest: start + rest, st.sampled_from([b"", *MAGIC]), st.binary(max_size=120)))
def test_garbage_never_raises(data: bytes) -> None:
    size = size_of(data)
    assert size is None or (size.width > 0 and size.height > 0)


def test_a_jpeg_of_nothing_but_segments_comes_to_an_end() -> None:
    assert size_of(b"\xff\xd8" + b"\xff\xe0\x00\x00" * 10_000) is None


@pytest.mark.parametrize(
    ("model", "width", "height", "tokens"),
    [
        ("gpt-4.1-mini", 1024, 1024, 1659),  # 1,024 patches, by the example of OpenAI's guide
        ("gpt-5-mini", 1024, 1024, 1659),
        ("gpt-5-nano", 1024, 1024, 2520),
        ("gpt-5-nano", 1800, 2400, 3572),  # 1,452 patches after scaling, by the same guide
        ("o4-mini", 32, 33, 4),
        ("gpt-5-mini", 1, 60_000, 2489),  # a strip has no more patches than any other image
        ("gpt-4o-mini", 512, 512, 8_500),
        ("gpt-5", 1024, 1024, 765),
        ("claude-sonnet-4-6", 3000, 2000, 1600),
        ("claude-opus-5-5", 3000, 2000, 5000),
        ("claude-opus-5-5", 1000, 750, 1000),
    ],
)
def test_models_of_one_provider_count_images_in_their_own_way(
    model: str, width: int, height: int, tokens: int
) -> None:
    message = Message.user([image(width, height)])
    cost = message_cost(message, counter_for(model))
    assert (cost.tokens - MESSAGE_FRAME, cost.quality) == (tokens, "estimated")


def test_an_image_of_unknown_size_counts_as_the_largest_of_its_model() -> None:
    for model in ("gpt-5-mini", "gpt-5-nano", "gpt-4o-mini", "claude-opus-5-5"):
        rule = images.rule_for(counter_for(model).name)
        assert rule(ELSEWHERE) >= max(rule(image(4000, 4000)), rule(image(2048, 700)))
    assert images.rule_for("o200k_base:tiles-5667")(image(9, 9, detail="low")) == 2833


@pytest.mark.parametrize("size", [(1, 1), (31, 4000), (5000, 33), (1536, 1025), (12_345, 9_876)])
def test_patches_never_exceed_the_budget(size: tuple[int, int]) -> None:
    assert 1 <= images.patches(image(*size), each=1) <= 1536
