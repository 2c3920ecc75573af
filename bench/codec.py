"""Messages to JSON and back: `codec` compared with other libraries, on the same messages in the same run.

What each library checks is printed next to its time: the fastest ones check nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import Annotated, Any, Literal

import msgspec
import orjson
import pydantic

from turnstate import codec
from turnstate.message import Message
from turnstate.testing import conversations

MESSAGES = 10_000
ROUNDS = 9


class RawText(msgspec.Struct, tag="text", tag_field="type"):
    text: str


class RawMedia(msgspec.Struct, tag="image", tag_field="type", omit_defaults=True):
    data: bytes | None = None
    url: str | None = None
    file_id: str | None = None
    media_type: str | None = None
    detail: str | None = None
    name: str | None = None


class RawFile(RawMedia, tag="file", tag_field="type"):
    pass


class RawCall(msgspec.Struct, omit_defaults=True):
    id: str
    name: str
    args: dict[str, Any]
    provider_id: str | None = None


class RawResult(msgspec.Struct):
    tool_call_id: str
    result: Any
    is_error: bool


class RawMessage(msgspec.Struct, omit_defaults=True):
    id: str
    timestamp: str
    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[RawText | RawMedia | RawFile] | None = None
    tool_calls: list[RawCall] = []
    tool_results: list[RawResult] = []
    kind: str | None = None


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(
        frozen=True, extra="allow", ser_json_bytes="base64", val_json_bytes="base64"
    )


class ModelText(_Model):
    type: Literal["text"]
    text: str


class ModelMedia(_Model):
    type: Literal["image", "file"]
    data: bytes | None = None
    url: str | None = None
    file_id: str | None = None
    media_type: str | None = None
    detail: str | None = None
    name: str | None = None


class ModelCall(_Model):
    id: str
    name: str
    args: dict[str, Any]
    provider_id: str | None = None


class ModelResult(_Model):
    tool_call_id: str
    result: Any
    is_error: bool


class ModelMessage(_Model):
    id: str
    timestamp: str
    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[Annotated[ModelText | ModelMedia, pydantic.Field(discriminator="type")]] | None = None
    tool_calls: list[ModelCall] = []
    tool_results: list[ModelResult] = []
    kind: str | None = None


def sample() -> list[Message]:
    """Return messages from generated conversations."""
    return list(islice(chain.from_iterable(conversations.many(MESSAGES)), MESSAGES))


def best(contenders: Sequence[Callable[[], object]]) -> list[float]:
    """Time each contender once per round, in turn, so that a busy moment of the machine affects all."""
    seconds = [float("inf")] * len(contenders)
    for _ in range(ROUNDS):
        for index, run in enumerate(contenders):
            start = time.perf_counter()
            run()
            seconds[index] = min(seconds[index], time.perf_counter() - start)
    return seconds


def table(title: str, size: int, rows: Sequence[tuple[str, str, Callable[[], object]]]) -> None:
    """Print the rows with their times, and as ratios to the first row, which is ours."""
    print(f"{title}: {MESSAGES:,} messages, {size / 1e6:.1f} MB")
    seconds = best([run for _, _, run in rows])
    for (name, does, _), taken in zip(rows, seconds, strict=True):
        rate = f"{size / 1e6 / taken:6.0f} MB/s"
        print(f"  {name:16} {taken * 1000:7.1f} ms {rate}   {taken / seconds[0]:5.2f} x ours   {does}")


def main() -> None:
    """Print the times of writing and reading."""
    messages = sample()
    written = [codec.encode(message) for message in messages]
    dicts = [orjson.loads(data) for data in written]
    raw_decoder, raw_encoder = msgspec.json.Decoder(RawMessage), msgspec.json.Encoder()
    raws = [raw_decoder.decode(data) for data in written]
    models = [ModelMessage.model_validate_json(data) for data in written]
    size = sum(map(len, written))
    table(
        "write",
        size,
        [
            ("codec.encode", "unknown fields put back", lambda: [codec.encode(one) for one in messages]),
            ("msgspec structs", "nothing more", lambda: [raw_encoder.encode(one) for one in raws]),
            ("orjson", "dicts, no types", lambda: [orjson.dumps(one) for one in dicts]),
            ("pydantic", "models", lambda: [one.model_dump_json(exclude_defaults=True) for one in models]),
        ],
    )
    table(
        "read",
        size,
        [
            ("codec.decode", "types, roles, JSON owned", lambda: [codec.decode(data) for data in written]),
            ("msgspec structs", "types only", lambda: [raw_decoder.decode(data) for data in written]),
            ("orjson", "dicts, no checks", lambda: [orjson.loads(data) for data in written]),
            (
                "pydantic",
                "types only, unknown fields kept",
                lambda: [ModelMessage.model_validate_json(data) for data in written],
            ),
        ],
    )
    document = codec.dump(messages)
    table(
        "read one foreign document",
        len(document),
        [
            (
                "codec.load",
                "the above; duplicate keys, NaN, surrogates, depth refused",
                lambda: codec.load(document),
            ),
            ("json", "dicts; takes all of these", lambda: json.loads(document)),
            ("orjson", "dicts; last of duplicate keys wins", lambda: orjson.loads(document)),
        ],
    )


if __name__ == "__main__":
    main()
