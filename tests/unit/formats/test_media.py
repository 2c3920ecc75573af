"""Bytes in documents: what is read is written again, and what cannot be read is left alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate import formats
from turnstate.formats import media
from turnstate.message import Message
from turnstate.part import FilePart, ImagePart

PNG = b"\x89PNG\r\n"


@given(data=st.binary(), kind=st.sampled_from(["image/png", "text/plain;charset=utf-8", "x/y"]))
def test_bytes_survive_a_data_url(data: bytes, kind: str) -> None:
    assert media.from_data_url(media.data_url(data, kind)) == (data, kind)


@given(data=st.binary())
def test_bytes_survive_base64(data: bytes) -> None:
    assert media.decoded(media.encoded(data)) == data


@pytest.mark.parametrize("text", ["a", "====", "aGk", "aGk=\n", "ü", "a-_b", "aGk=aGk="])
def test_what_is_not_base64_is_not_read(text: str) -> None:
    assert media.decoded(text) is None


@pytest.mark.parametrize(
    "url", ["", "https://e.org/a.png", "data:image/png,abc", "data:image/png;base64,%%", "DATA:;base64,aGk="]
)
def test_a_url_that_holds_no_bytes_is_a_reference(url: str) -> None:
    assert media.from_data_url(url) is None
    assert media.image(url) == ImagePart(url=url)


def test_bytes_that_are_not_utf_8_are_no_text() -> None:
    assert media.as_text(b"\xff") is None
    assert media.as_text("ü".encode()) == "ü"


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("https://e.org/a.png", "image/png"),
        ("https://e.org/a.JPG?x=.pdf#y", "image/jpeg"),
        ("https://e.org/a.b/c", None),
        ("", None),
    ],
)
def test_a_url_tells_its_media_type_by_its_ending(url: str, kind: str | None) -> None:
    assert media.type_of_url(url) == kind


def test_short_names_and_media_types_are_each_others_inverse() -> None:
    for name in ("png", "jpeg", "pdf", "csv", "docx", "txt", "md", "mp3"):
        kind = media.media_type(name)
        assert kind is not None
        assert media.extension(kind) == name
    assert media.extension(None) is None
    assert media.media_type("exe") is None


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (FilePart(data=PNG, media_type="image/png", name="a.png"), ImagePart),
        (FilePart(url="https://e.org/a.png"), ImagePart),
        (FilePart(url="https://e.org/a.png", media_type="application/pdf"), FilePart),
        (ImagePart(data=PNG, media_type="application/pdf"), FilePart),
        (ImagePart(data=PNG), ImagePart),
        (ImagePart(data=PNG, media_type="application/octet-stream"), ImagePart),
        (ImagePart(url="https://e.org/picture.html"), ImagePart),
        (FilePart(data=PNG), FilePart),
        (FilePart(file_id="f", media_type="image/png"), ImagePart),
    ],
)
def test_a_picture_is_an_image_and_anything_else_a_file(part: ImagePart | FilePart, kind: type) -> None:
    proper = media.by_type(part)
    assert type(proper) is kind
    assert (proper.data, proper.url, proper.file_id) == (part.data, part.url, part.file_id)
    assert media.by_type(proper) == proper


def one_block(target: str, part: ImagePart | FilePart, role: Any = Message.user) -> Any:
    rendering = formats.get(target).rendering([Message.user("Look:"), role([part])])
    return rendering, str(rendering.payload)


@pytest.mark.req("A8")
@pytest.mark.parametrize("target", formats.names())
@pytest.mark.parametrize(
    "part",
    [
        ImagePart(data=PNG, media_type="image/png"),
        FilePart(data=PNG, media_type="image/png", name="a.png"),
        FilePart(data=b"%PDF", media_type="application/pdf", name="a b/ü.pdf"),
        FilePart(data=b"hi", media_type="text/plain"),
    ],
)
def test_media_that_every_provider_takes_are_sent_as_media(target: str, part: ImagePart | FilePart) -> None:
    rendering, _ = one_block(target, part)
    assert rendering.left_out == ()
    back = [one for message in formats.get(target).parse(rendering.payload) for one in message.parts]
    assert [one.data for one in back if isinstance(one, ImagePart | FilePart)] == [part.data]


@pytest.mark.req("A8")
@pytest.mark.parametrize(
    ("target", "part"),
    [
        ("anthropic", ImagePart(data=PNG, media_type="image/tiff")),
        ("anthropic", FilePart(data=b"a,b", media_type="text/csv")),
        ("anthropic", FilePart(data=b"\xff", media_type="text/plain")),
        ("anthropic", ImagePart(url="s3://bucket/a.png")),
        ("anthropic", ImagePart(url="")),
        ("bedrock", ImagePart(url="https://e.org/a.png")),
        ("bedrock", FilePart(data=b"RIFF", media_type="audio/wav")),
        ("bedrock", ImagePart(file_id="f", media_type="image/png")),
        ("gemini", ImagePart(data=PNG)),
        ("gemini", ImagePart(url="https://e.org/picture")),
        ("gemini", FilePart(file_id="f")),
        ("openai-chat", FilePart(url="https://e.org/a.pdf")),
        ("openai-chat", ImagePart(url="gs://bucket/a.png")),
        ("openai-chat", ImagePart(file_id="f")),
        ("openai-responses", FilePart(url="s3://bucket/a.pdf")),
    ],
)
def test_media_that_a_provider_cannot_take_are_described_and_listed(
    target: str, part: ImagePart | FilePart
) -> None:
    rendering, text = one_block(target, part)
    noun = "image" if isinstance(part, ImagePart) else "file"
    assert f"[{noun} " in text
    assert [(one.index, one.text) for one in rendering.left_out] == [(1, f"{noun} part sent as text")]
    assert formats.get(target).validate(rendering.payload) == []


@pytest.mark.parametrize("target", formats.names())
def test_the_assistant_shows_media_only_in_words(target: str) -> None:
    rendering, text = one_block(target, ImagePart(data=PNG, media_type="image/png"), Message.assistant)
    if target != "gemini":
        assert "[image image/png, 6 bytes, sha256 " in text
    assert formats.get(target).validate(rendering.payload) == []


@pytest.mark.req("A8")
def test_the_id_of_a_file_goes_only_to_the_company_that_keeps_it() -> None:
    document = [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}]
    messages = formats.get("openai-chat").parse(document)
    assert formats.get("openai-chat").rendering(messages).document == document
    assert "file_id" in str(formats.get("openai-responses").render(messages))
    for target in ("anthropic", "bedrock", "gemini"):
        rendering = formats.get(target).rendering(messages)
        assert "[file id file-1]" in str(rendering.payload)
        assert [one.text for one in rendering.left_out] == ["file part sent as text"]


def test_a_file_id_that_the_caller_gives_is_for_whoever_is_asked() -> None:
    messages = [Message.user([FilePart(file_id="file_1")])]
    assert formats.get("anthropic").rendering(messages).left_out == ()
