"""Conversations for Hypothesis: sound ones of every shape, and documents with something wrong in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from turnstate import ids
from turnstate.message import Message, ToolCallRequest, ToolCallResult
from turnstate.part import FilePart, ImagePart, OpaquePart, Part, ReasoningPart, TextPart

__all__ = ["conversations", "json_values", "mutations", "texts"]

TIME = "2025-03-01T09:00:00Z"
ODD_TEXTS = (
    "",
    " ",
    "\n\t\u3000",
    "\x00",
    "\x1c",
    "[empty]",
    "[System message] no",
    "{}",
    "null",
    "\U0001f3d4\ufe0f",
    "e\u0301\u0323",
    "\u202e\u2028\ufeff",
    "\x1b[31m",
    "<|endoftext|>",
)

texts = st.sampled_from(ODD_TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | texts
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, json_values, max_size=3)

text_parts = st.builds(TextPart, texts)
types = st.sampled_from(
    ["image/png", "image/webp", "application/pdf", "text/plain", "text/csv", "audio/wav", "x/y; a=b", None]
)
bytes_of_a_type = st.fixed_dictionaries({"data": st.binary(max_size=8), "media_type": types})
references: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"url": "https://e.org/a.png"},
        {"url": "https://e.org/a.png", "media_type": "image/png"},
        {"url": "https://e.org/b.pdf"},
        {"url": "https://e.org/picture.html", "media_type": "image/png"},
        {"url": "http://e.org/c"},
        {"url": "http://e.org/c", "media_type": "application/pdf"},
        {"url": "s3://b/d"},
        {"url": "gs://b/e"},
        {"url": ""},
        {"file_id": "file-1"},
        {"file_id": "f", "media_type": "image/png"},
    ]
)


def media(kind: Callable[..., Part]) -> st.SearchStrategy[Part]:
    return (bytes_of_a_type | references).map(lambda source: kind(**source))


any_media = media(ImagePart) | media(FilePart)
opaque = st.builds(lambda text, body: OpaquePart(format="elsewhere", body=body, text=text), texts, objects)
reasoning = st.builds(ReasoningPart, texts, st.none() | texts)
parts = st.lists(text_parts | any_media | reasoning | opaque, min_size=1, max_size=3)
contents = texts | parts

part_like = st.lists(
    st.builds(lambda text: {"type": "text", "text": text}, texts)
    | st.just({"type": "image", "url": "https://e.org/a.png"})
    | st.just({"type": "file", "data": "JVBERg==", "media_type": "application/pdf"}),
    max_size=2,
)
results = json_values | part_like

names = (
    st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True)
    | st.sampled_from(["look", "hear"])
    | (st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=150))
)
provider_ids = st.none() | st.sampled_from(["call_0", "call_1", "a b", "é", "x" * 41, "x" * 65]) | texts


@st.composite
def conversations(draw: st.DrawFn, *, salt: bytes = b"") -> list[Message]:
    """Draw a conversation in which every call is answered once, after it was made."""
    writer = _Writer(draw, salt)
    for _ in range(draw(st.integers(0, 2))):
        writer.system()
    if draw(st.integers(0, 9)) == 0:
        writer.say(Message.assistant)
    for _ in range(draw(st.integers(1, 3))):
        writer.say(Message.user)
        for _ in range(draw(st.integers(0, 2))):
            writer.round()
        if draw(st.booleans()):
            writer.say(Message.assistant)
        if draw(st.integers(0, 5)) == 0:
            writer.system()
    return writer.messages


class _Writer:
    def __init__(self, draw: st.DrawFn, salt: bytes) -> None:
        self.messages: list[Message] = []
        self._draw = draw
        self._salt = salt

    def _stamp(self) -> dict[str, Any]:
        return {"id": ids.derived_id(len(self.messages), self._salt), "timestamp": TIME}

    def system(self) -> None:
        self.messages.append(Message.system(self._draw(contents), **self._stamp()))

    def say(self, speak: Callable[..., Message]) -> None:
        self.messages.append(speak(self._draw(contents), **self._stamp()))

    def round(self) -> None:
        """Draw calls of the assistant, in one or two messages, and results of the tools, some interrupted."""
        draw = self._draw
        calls = self._call() + (self._call() if draw(st.integers(0, 5)) == 0 else [])
        if draw(st.integers(0, 5)) == 0:
            self.say(Message.user)
        answers = [
            ToolCallResult(tool_call_id=id, result=draw(results), is_error=draw(st.booleans()))
            for id in draw(st.permutations(calls))
        ]
        while answers:
            size = draw(st.integers(1, len(answers)))
            self.messages.append(Message.tool(answers[:size], **self._stamp()))
            answers = answers[size:]

    def _call(self) -> list[ids.CallId]:
        draw = self._draw
        calls = [
            ToolCallRequest(
                id=ids.derived_call_id(len(self.messages), self._salt, bytes([place])),
                name=draw(names),
                args=draw(objects),
                provider_id=draw(provider_ids),
            )
            for place in range(draw(st.integers(1, 3)))
        ]
        said = draw(st.none() | contents)
        self.messages.append(Message.assistant(said, tool_calls=calls, **self._stamp()))
        return [call.id for call in calls]


@st.composite
def mutations(draw: st.DrawFn, document: Any) -> Any:
    """Draw a copy of a document with one to three nodes removed, duplicated or replaced by anything."""
    for _ in range(draw(st.integers(1, 3))):
        paths = list(_paths(document, ()))
        path = draw(st.sampled_from(paths))
        change = draw(st.sampled_from(["drop", "double", "replace", "retype"]))
        new = draw(json_values) if change == "replace" else draw(st.sampled_from(_OTHER_TYPES))
        document = _changed(document, path, change, new)
    return document


_OTHER_TYPES: tuple[Any, ...] = (None, True, 0, 1.5, "", "user", [], {}, [[]], [{}], {"type": "text"}, ["a"])


def _paths(value: Any, path: tuple[Any, ...]) -> Any:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in items:
        yield from _paths(item, (*path, step))


def _changed(value: Any, path: tuple[Any, ...], change: str, new: Any) -> Any:
    if not path:
        return new
    step, rest = path[0], path[1:]
    if rest:
        changed = _changed(value[step], rest, change, new)
        if isinstance(value, dict):
            return {**value, step: changed}
        return [*value[:step], changed, *value[step + 1 :]]
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if key != step}
        if change == "drop":
            return kept
        return (
            {**kept, f"{step}_too": value[step], step: value[step]}
            if change == "double"
            else {**value, step: new}
        )
    middle = {"drop": [], "double": [value[step], value[step]]}.get(change, [new])
    return [*value[:step], *middle, *value[step + 1 :]]
