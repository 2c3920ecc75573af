"""Three more APIs of providers for the local server: OpenAI Responses, Gemini, Bedrock's ConverseStream.

As in `provider_server`, what the providers reject is rejected, by checks that share nothing with Turnstate.
"""

from __future__ import annotations

import json
import re
import struct
from binascii import crc32
from collections.abc import Iterator
from typing import Any

from tests.harness.provider_model import (
    FINAL,
    REFUSAL,
    Call,
    Results,
    Said,
    Turn,
    called,
    only,
    reject_unless,
)

__all__ = [
    "bedrock_events",
    "bedrock_steps",
    "event_stream",
    "gemini_events",
    "gemini_steps",
    "responses_events",
    "responses_steps",
]


def arguments(call: Call) -> str:
    """Return the text of a call's arguments, which may be no JSON."""
    return call.args if isinstance(call.args, str) else json.dumps(call.args)


# OpenAI Responses.


def responses_steps(request: dict[str, Any]) -> list[Turn]:
    """Check a request, and return its steps."""
    options = ("model", "input", "tools", "stream", "max_output_tokens", "temperature", "text", "store")
    only(request, *options, "prompt_cache_key", where="request")
    for tool in request.get("tools", ()):
        only(tool, "type", "name", "description", "parameters", "strict", where="tools")
    steps: list[Turn] = []
    open_calls: dict[str, Call] = {}
    answered: list[tuple[Call, str]] = []
    for place, item in enumerate(request["input"]):
        where = f"input[{place}]"
        match item.get("type"):
            case "function_call":
                only(item, "type", "id", "call_id", "name", "arguments", "status", where=where)
                reject_unless(item["call_id"] not in open_calls, f"{where}: {item['call_id']} twice")
                open_calls[item["call_id"]] = called(item["name"], item["arguments"])
            case "function_call_output":
                only(item, "type", "call_id", "output", where=where)
                call = open_calls.pop(item["call_id"], None)
                reject_unless(call, f"{where}: no open call {item['call_id']}")
                reject_unless(isinstance(item["output"], str), f"{where}: output")
                answered.append((call or Call("", {}), item["output"]))
                if not open_calls:
                    steps.append(Results(tuple(answered)))
                    answered = []
            case "message":
                reject_unless(not open_calls, f"{where}: calls {sorted(open_calls)} have no output")
                only(item, "type", "role", "content", "id", "status", where=where)
                if item["role"] == "user":
                    steps.append(item["content"])
                for block in item["content"] if isinstance(item["content"], list) else ():
                    kinds = {"output_text": ("text", "annotations", "logprobs"), "refusal": ("refusal",)}
                    reject_unless(block.get("type") in kinds, f"{where}: block {block.get('type')}")
                    only(block, "type", *kinds[block["type"]], where=where)
            case kind:
                reject_unless(False, f"{where}: type {kind}")
    reject_unless(not open_calls, f"calls {sorted(open_calls)} have no output")
    return steps


def responses_events(said: Said, number: int) -> Iterator[dict[str, Any]]:
    """Yield the events of a response."""
    text = {"type": "output_text", "text": FINAL, "annotations": [], "logprobs": []}
    content = {"type": "refusal", "refusal": REFUSAL} if said.refuses else text
    output: list[dict[str, Any]] = [
        {
            "type": "function_call",
            "id": f"fc_{n}",
            "call_id": f"call_{n}",
            "name": one.name,
            "arguments": arguments(one),
            "status": "completed",
        }
        for n, one in enumerate(said.calls)
    ] or [{"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [content]}]
    usage = {
        "input_tokens": 100,
        "output_tokens": 20,
        "total_tokens": 120,
        "input_tokens_details": {"cached_tokens": 40},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    response = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_761_368_591,
        "model": "gpt-5",
        "status": "completed",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
    }
    begun = response | {"status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    delta = {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0}
    if not said.calls and not said.refuses:
        events += [delta | {"delta": letter, "logprobs": []} for letter in FINAL]
    events.append({"type": "response.completed", "response": response})
    yield from (event | {"sequence_number": place} for place, event in enumerate(events))


# Google Gemini.

SIGNATURE = "c2lnbmF0dXJl"


def gemini_steps(request: dict[str, Any]) -> list[Turn]:
    """Check a request, and return its steps."""
    only(request, "contents", "systemInstruction", "tools", "generationConfig", where="request")
    steps: list[Turn] = []
    asked: list[Call] = []
    roles = [content["role"] for content in request["contents"]]
    reject_unless(roles == (["user", "model"] * len(roles))[: len(roles)], "the roles do not alternate")
    for place, content in enumerate(request["contents"]):
        where = f"contents[{place}]"
        only(content, "role", "parts", where=where)
        reject_unless(content["parts"], f"{where}: no parts")
        kinds = [next(iter(part.keys() - {"thoughtSignature", "thought"})) for part in content["parts"]]
        if content["role"] == "model":
            calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
            asked = [Call(call["name"], call.get("args", {})) for call in calls]
            signed = [part.get("thoughtSignature") for part in content["parts"] if "functionCall" in part]
            reject_unless(not signed or signed[0] == SIGNATURE, f"{where}: the call is not signed")
            continue
        answers = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        names = [answer["name"] for answer in answers]
        reject_unless(names == [call.name for call in asked], f"{where}: answers {names} for {asked}")
        reject_unless(not answers or set(kinds[: len(answers)]) == {"functionResponse"}, f"{where}: order")
        if answers:
            texts = [str(next(iter(answer["response"].values()))) for answer in answers]
            steps.append(Results(tuple(zip(asked, texts, strict=True))))
        steps += [part["text"] for part in content["parts"] if "text" in part]
        asked = []
    reject_unless(roles[-1] == "user", "the last content is not the user's")
    return steps


def gemini_events(said: Said, number: int) -> Iterator[dict[str, Any]]:
    """Yield the responses of a stream."""
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 20, "cachedContentTokenCount": 40}
    frame = {"responseId": f"r{number}", "modelVersion": "gemini-3", "usageMetadata": usage}

    def chunk(parts: list[dict[str, Any]], finish: str | None = None) -> dict[str, Any]:
        ending = {"finishReason": finish} if finish else {}
        return frame | {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0} | ending]}

    if said.refuses:
        yield chunk([], "SAFETY")
    elif said.calls:
        parts: list[dict[str, Any]] = [
            {"functionCall": {"name": one.name, "args": one.args}} for one in said.calls
        ]
        parts[0]["thoughtSignature"] = SIGNATURE
        for part in parts[:-1]:
            yield chunk([part])
        yield chunk([parts[-1]], "STOP")
    else:
        for letter in FINAL[:-1]:
            yield chunk([{"text": letter}])
        yield chunk([{"text": FINAL[-1]}], "STOP")


# Amazon Bedrock.


def bedrock_steps(request: dict[str, Any]) -> list[Turn]:
    """Check a request, and return its steps; the SDK has checked its fields."""
    steps: list[Turn] = []
    asked: dict[str, Call] = {}
    roles = [message["role"] for message in request["messages"]]
    reject_unless(roles == (["user", "assistant"] * len(roles))[: len(roles)], "the roles do not alternate")
    for place, message in enumerate(request["messages"]):
        where, blocks = f"messages[{place}]", message["content"]
        reject_unless(blocks, f"{where}: empty")
        if message["role"] == "assistant":
            uses = [block["toolUse"] for block in blocks if "toolUse" in block]
            reject_unless(len({use["toolUseId"] for use in uses}) == len(uses), f"{where}: an id twice")
            asked = {use["toolUseId"]: Call(use["name"], use["input"]) for use in uses}
            continue
        results = [block["toolResult"] for block in blocks if "toolResult" in block]
        ids = [result["toolUseId"] for result in results]
        reject_unless(sorted(ids) == sorted(asked), f"{where}: results {ids} for {sorted(asked)}")
        if results:
            texts = [next(iter(result["content"][0].values())) for result in results]
            steps.append(Results(tuple((asked[id], str(one)) for id, one in zip(ids, texts, strict=True))))
        steps += [block["text"] for block in blocks if "text" in block]
        asked = {}
    return steps


def bedrock_events(said: Said, number: int) -> Iterator[dict[str, Any]]:
    """Yield the events of a response, each under its name."""
    yield {"messageStart": {"role": "assistant"}}
    for index, one in enumerate(said.calls):
        use = {"toolUseId": f"tooluse_{index}", "name": one.name}
        yield {"contentBlockStart": {"start": {"toolUse": use}, "contentBlockIndex": index}}
        for piece in re.findall(".{1,4}", arguments(one)):
            delta = {"toolUse": {"input": piece}}
            yield {"contentBlockDelta": {"delta": delta, "contentBlockIndex": index}}
        yield {"contentBlockStop": {"contentBlockIndex": index}}
    if not said.calls:
        for piece in [REFUSAL] if said.refuses else FINAL:
            yield {"contentBlockDelta": {"delta": {"text": piece}, "contentBlockIndex": 0}}
        yield {"contentBlockStop": {"contentBlockIndex": 0}}
    ending = "guardrail_intervened" if said.refuses else "tool_use" if said.calls else "end_turn"
    yield {"messageStop": {"stopReason": ending}}
    usage = {"inputTokens": 60, "outputTokens": 20, "totalTokens": 120, "cacheReadInputTokens": 40}
    yield {"metadata": {"usage": usage, "metrics": {"latencyMs": number}}}


def event_stream(event: dict[str, Any]) -> bytes:
    """Return an event in the binary framing of Amazon: lengths, headers, payload, checksums."""
    ((kind, body),) = event.items()
    named = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
        for name, value in named.items()
    )
    payload = json.dumps(body).encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack("!I", crc32(prelude)) + headers + payload
    return message + struct.pack("!I", crc32(message))
