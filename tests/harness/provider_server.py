"""A local server that speaks the HTTP APIs of providers, and rejects what they reject.

It answers 400 to torn pairs, missing results, fields that only responses have, wrong alternation, and
thinking that is not as it was signed. The checks are written here and share nothing with Turnstate's own
rules. The model behind it is in `provider_model`. It uses the same call ids again and again, as some
providers do. A script of troubles makes it fail as they fail.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from tests.harness.provider_model import (
    FINAL,
    REFUSAL,
    Call,
    Rejected,
    Results,
    Said,
    Turn,
    called,
    next_of,
    only,
    reject_unless,
)
from tests.harness.provider_protocols import (
    arguments,
    bedrock_events,
    bedrock_steps,
    event_stream,
    gemini_events,
    gemini_steps,
    responses_events,
    responses_steps,
)

__all__ = ["FINAL", "LocalServer", "ProviderServer", "Sent", "Trouble"]

# OpenAI Chat Completions.


def chat_steps(request: dict[str, Any]) -> list[Turn]:
    """Check a request, and return its steps."""
    options = ("model", "messages", "tools", "stream", "stream_options", "temperature", "max_tokens")
    only(request, *options, "prompt_cache_key", where="request")
    steps: list[Turn] = []
    open_calls: dict[str, Call] = {}
    answered: list[tuple[Call, str]] = []
    for place, message in enumerate(request["messages"]):
        where, role = f"messages[{place}]", message.get("role")
        if role == "tool":
            only(message, "role", "content", "tool_call_id", where=where)
            call = open_calls.pop(message["tool_call_id"], None)
            reject_unless(call, f"{where}: no open call {message['tool_call_id']}")
            reject_unless(isinstance(message["content"], str), f"{where}: content")
            if call:
                answered.append((call, message["content"]))
            if not open_calls:
                steps.append(Results(tuple(answered)))
            continue
        reject_unless(not open_calls, f"{where}: calls {sorted(open_calls)} have no result")
        open_calls, answered = chat_message(message, role, where), []
        if role == "user":
            steps.append(message["content"])
    reject_unless(not open_calls, f"calls {sorted(open_calls)} have no result")
    return steps


def chat_message(message: dict[str, Any], role: Any, where: str) -> dict[str, Call]:
    if role in ("system", "user"):
        only(message, "role", "content", where=where)
        reject_unless(isinstance(message["content"], str), f"{where}: content")
        return {}
    reject_unless(role == "assistant", f"{where}: role {role}")
    only(message, "role", "content", "tool_calls", "refusal", where=where)
    if message.get("content") is None:
        spoken = message.get("tool_calls") or message.get("refusal")
        reject_unless(spoken, f"{where}: neither content nor calls")
    calls: dict[str, Call] = {}
    for call in message.get("tool_calls", ()):
        only(call, "id", "type", "function", where=where)
        only(call["function"], "name", "arguments", where=where)
        reject_unless(call["id"] not in calls, f"{where}: id {call['id']} twice")
        calls[call["id"]] = called(call["function"]["name"], call["function"]["arguments"])
    reject_unless("tool_calls" not in message or calls, f"{where}: empty tool_calls")
    return calls


def chat_response(said: Said, number: int) -> dict[str, Any]:
    calls = [
        {
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": one.name, "arguments": arguments(one)},
        }
        for n, one in enumerate(said.calls)
    ]
    message = {
        "role": "assistant",
        "content": None if calls or said.refuses else FINAL,
        "refusal": REFUSAL if said.refuses else None,
        "annotations": [],
        **({"tool_calls": calls} if calls else {}),
    }
    finish = "tool_calls" if calls else "stop"
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1_761_368_591,
        "model": "gpt-4o-2024-08-06",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 40},
        },
    }


def chat_chunks(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    (choice,) = response["choices"]
    message = choice["message"]
    frame = {**response, "object": "chat.completion.chunk", "usage": None}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": "" if message["content"] else None, "refusal": None})
    for letter in message["content"] or "":
        yield chunk({"content": letter})
    if message["refusal"]:
        yield chunk({"refusal": message["refusal"]})
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        yield chunk({"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]})
        for piece in re.findall(".{1,4}", function["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, choice["finish_reason"])
    yield {**frame, "choices": [], "usage": response["usage"]}


# Anthropic Messages.


def signature(thinking: str) -> str:
    return hashlib.sha256(b"secret" + thinking.encode()).hexdigest()


def anthropic_steps(request: dict[str, Any]) -> list[Turn]:
    """Check a request, and return its steps."""
    options = ("model", "messages", "system", "max_tokens", "tools", "thinking", "stream")
    only(request, *options, where="request")
    reject_unless(json.dumps(request).count('"cache_control"') <= 4, "more than four marks for the cache")
    reject_unless(isinstance(request.get("max_tokens"), int), "max_tokens is required")
    messages = request["messages"]
    roles = [message["role"] for message in messages]
    reject_unless(roles == (["user", "assistant"] * len(roles))[: len(roles)], "the roles do not alternate")
    reject_unless(len(roles) % 2, "the last message is not the user's")
    steps: list[Turn] = []
    seen: set[str] = set()
    asked: dict[str, Call] = {}
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        only(message, "role", "content", where=where)
        blocks = message["content"]
        blocks = [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks
        reject_unless(blocks, f"{where}: empty")
        if message["role"] == "user":
            steps += user_steps(blocks, asked, where)
            continue
        asked = assistant_calls(blocks, where)
        reject_unless(not seen & asked.keys(), f"{where}: a tool_use id was used before")
        seen |= asked.keys()
        last = place == len(messages) - 2
        if request.get("thinking", {}).get("type") == "enabled" and asked and last:
            reject_unless(blocks[0]["type"] == "thinking", f"{where}: does not begin with thinking")
    return steps


def user_steps(blocks: list[dict[str, Any]], asked: dict[str, Call], where: str) -> Iterator[Turn]:
    kinds = [block["type"] for block in blocks]
    results = [block for block in blocks if block["type"] == "tool_result"]
    reject_unless(kinds[: len(results)] == ["tool_result"] * len(results), f"{where}: results come first")
    for block in results:
        only(block, "type", "tool_use_id", "content", "is_error", "cache_control", where=where)
    ids = [block["tool_use_id"] for block in results]
    reject_unless(sorted(ids) == sorted(asked), f"{where}: results {ids} for calls {sorted(asked)}")
    if results:
        pairs = ((asked[block["tool_use_id"]], block.get("content", "")) for block in results)
        yield Results(tuple(pairs))
    for block in blocks[len(results) :]:
        only(block, "type", "text", "cache_control", where=where)
        reject_unless(block["text"].strip(), f"{where}: an empty text")
        yield block["text"]


def assistant_calls(blocks: list[dict[str, Any]], where: str) -> dict[str, Call]:
    fields = {
        "text": ("type", "text", "cache_control"),
        "thinking": ("type", "thinking", "signature"),
        "redacted_thinking": ("type", "data"),
        "tool_use": ("type", "id", "name", "input", "cache_control"),
    }
    calls: dict[str, Call] = {}
    for block in blocks:
        reject_unless(block["type"] in fields, f"{where}: block {block['type']}")
        only(block, *fields[block["type"]], where=where)
        if block["type"] == "thinking":
            reject_unless(
                block["signature"] == signature(block["thinking"]), f"{where}: not as it was signed"
            )
        if block["type"] == "tool_use":
            reject_unless(re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]), f"{where}: id {block['id']}")
            calls[block["id"]] = Call(block["name"], block["input"])
    return calls


def anthropic_response(said: Said, number: int) -> dict[str, Any]:
    thinking = f"Thought {number}."
    content: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": thinking, "signature": signature(thinking)},
        *([{"type": "redacted_thinking", "data": "ZGF0YQ=="}] if number % 3 == 0 else []),
    ]
    if said.refuses:
        content = []
    elif not said.calls:
        content.append({"type": "text", "text": FINAL, "citations": None})
    content += [
        {"type": "tool_use", "id": f"toolu_{n}", "name": one.name, "input": one.args}
        for n, one in enumerate(said.calls)
    ]
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": content,
        "stop_reason": "refusal" if said.refuses else "tool_use" if said.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 60, "cache_read_input_tokens": 40, "output_tokens": 20},
    }


def anthropic_events(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": {**response, "content": [], "stop_reason": None}}
    for index, block in enumerate(response["content"]):
        empty, deltas = anthropic_deltas(block)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ending = {"stop_reason": response["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 20}}
    yield {"type": "message_stop"}


def anthropic_deltas(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": letter} for letter in block["text"]]
        case "thinking":
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                signed,
            ]
        case "tool_use":
            given = block["input"]
            pieces = re.findall(".{1,4}", given if isinstance(given, str) else json.dumps(given))
            return {**block, "input": {}}, [
                {"type": "input_json_delta", "partial_json": piece} for piece in pieces
            ]
        case _:
            return block, []


# The server.


class Api(NamedTuple):
    """How one API is spoken: its checks, its streams, its whole responses, and how it tells errors."""

    steps: Callable[[dict[str, Any]], list[Turn]]
    events: Callable[[Said, int], Iterator[dict[str, Any]]]
    framed: Callable[[dict[str, Any]], bytes]
    error: Callable[[int, str], dict[str, Any]]
    too_long: str
    response: Callable[[Said, int], dict[str, Any]] | None = None
    end: bytes = b""
    kind: str = "text/event-stream"


def sse(event: dict[str, Any]) -> bytes:
    """Return an event of a stream."""
    return f"data: {json.dumps(event)}\n\n".encode()


def named_sse(event: dict[str, Any]) -> bytes:
    """Return an event of a stream that is named by its type."""
    return f"event: {event['type']}\n".encode() + sse(event)


def openai_error(status: int, text: str) -> dict[str, Any]:
    return {"error": {"message": text, "type": "error", "code": str(status)}}


TOO_LONG = "Your input exceeds the context window of this model."
CHAT = Api(
    chat_steps,
    lambda said, number: chat_chunks(chat_response(said, number)),
    sse,
    openai_error,
    "This model's maximum context length is 8192 tokens.",
    chat_response,
    b"data: [DONE]\n\n",
)
RESPONSES = Api(responses_steps, responses_events, named_sse, openai_error, TOO_LONG)
ANTHROPIC = Api(
    anthropic_steps,
    lambda said, number: anthropic_events(anthropic_response(said, number)),
    named_sse,
    lambda status, text: {"type": "error", "error": {"type": f"error_{status}", "message": text}},
    "prompt is too long: 210000 tokens > 200000 maximum",
    anthropic_response,
)
GEMINI = Api(
    gemini_steps,
    gemini_events,
    sse,
    lambda status, text: {"error": {"code": status, "message": text, "status": "UNKNOWN"}},
    "The input token count exceeds the maximum number of tokens allowed (1048576).",
)
BEDROCK = Api(
    bedrock_steps,
    bedrock_events,
    event_stream,
    lambda _status, text: {"message": text},
    "Input is too long for requested model.",
    kind="application/vnd.amazon.eventstream",
)
APIS = {
    "/chat/completions": CHAT,
    "/responses": RESPONSES,
    "/messages": ANTHROPIC,
    ":streamGenerateContent": GEMINI,
    "/converse-stream": BEDROCK,
}


class Sent(NamedTuple):
    """An HTTP response; one that is torn ends in the middle, with its connection."""

    status: int
    body: bytes
    kind: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    is_torn: bool = False


class Trouble(NamedTuple):
    """What goes wrong with a request: an error with this status, or a stream that is torn."""

    status: int = 0
    text: str = "try again later"
    headers: tuple[tuple[str, str], ...] = ()
    is_torn: bool = False
    is_too_long: bool = False


class LocalServer:
    """An HTTP server on this machine, in threads of this process, while the block runs."""

    def __init__(self, answer: Callable[[str, bytes], Sent]) -> None:
        self._server = _Server(("127.0.0.1", 0), _handler(answer))
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class ProviderServer(LocalServer):
    """The server of all APIs.

    ``rejected`` lists why requests were answered with 400. `before_reply` is called with the number of each
    request that was accepted, before it is answered. `say` is the model. ``troubles`` says what goes wrong
    with the next requests, and ``requests`` has those that arrived.
    """

    def __init__(
        self,
        before_reply: Callable[[int], None] = lambda _number: None,
        *,
        say: Callable[[list[Turn]], Said] = next_of,
        troubles: Sequence[Trouble | None] = (),
    ) -> None:
        super().__init__(self._answer)
        self.rejected: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.troubles = list(troubles)
        self.accepted = 0
        self.largest = 0
        self._before_reply, self.say = before_reply, say
        self._lock = threading.Lock()

    def _answer(self, path: str, body: bytes) -> Sent:
        api = next(one for ending, one in APIS.items() if path.endswith(ending))
        request = json.loads(body)
        self.requests.append(request)
        trouble = self.troubles.pop(0) if self.troubles else None
        if trouble and trouble.is_too_long:
            trouble = Trouble(400, api.too_long)
        if trouble and trouble.status:
            error = json.dumps(api.error(trouble.status, trouble.text)).encode()
            return Sent(trouble.status, error, headers=trouble.headers)
        try:
            said = self.say(api.steps(request))
        except (Rejected, LookupError, TypeError, ValueError) as reason:
            self.rejected.append(f"{type(reason).__name__}: {reason}")
            return Sent(400, json.dumps(api.error(400, str(reason))).encode())
        with self._lock:
            self.accepted += 1
            self.largest = max(self.largest, len(body))
            number = self.accepted
        self._before_reply(number)
        if api.response and not request.get("stream"):
            return Sent(200, json.dumps(api.response(said, number)).encode())
        events = b"".join(map(api.framed, api.events(said, number)))
        return Sent(200, events + api.end, api.kind, is_torn=bool(trouble and trouble.is_torn))


class _Server(ThreadingHTTPServer):
    """A server to whom it is nothing special that a client is killed."""

    def handle_error(self, request: object, client_address: object) -> None:
        pass


def _handler(answer: Callable[[str, bytes], Sent]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sent = answer(self.path.partition("?")[0], body)
            self.send_response(sent.status)
            self.send_header("Content-Type", sent.kind)
            for name, value in sent.headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(sent.body)))
            self.end_headers()
            if sent.is_torn:
                self.close_connection = True
            self.wfile.write(sent.body[: len(sent.body) // 2] if sent.is_torn else sent.body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
