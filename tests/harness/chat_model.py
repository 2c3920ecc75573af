"""A scripted model for chats, behind OpenAI's streaming protocol: what the user says decides its answer.

write NAME     calls write_file, then says so        run COMMAND   calls run_command, then shows it
slow N         streams N words, one each 20 ms       show          answers with Markdown of every kind
anything else  is repeated
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

__all__ = ["ChatModel"]

MARKDOWN = """# A title

Some *emphasis* and `code`, in a paragraph.

- one
- two

```python
def f(x):
    return x + 1
```

| a | b |
|---|---|
| 1 | 2 |

The end."""


class ChatModel:
    """Serves the model on a loopback address while a block runs; ``requests`` is what it was sent."""

    def __init__(self) -> None:
        self.requests = list[dict[str, Any]]()
        handler = type("Handler", (_Handler,), {"model": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def address(self) -> str:
        """The address for ``--model``."""
        return f"scripted@http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    model: ChatModel
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.model.requests.append(request)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            for delta, reason in answer(request["messages"]):
                self._send({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
            usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
            self._send({"choices": [], "usage": {**usage, "prompt_tokens_details": {"cached_tokens": 60}}})
            self.wfile.write(b"data: [DONE]\n\n")
        except (BrokenPipeError, ConnectionResetError):  # the chat was stopped
            pass

    def _send(self, fields: dict[str, Any]) -> None:
        frame = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "scripted", **fields}
        self.wfile.write(f"data: {json.dumps(frame)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def answer(messages: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Yield the pieces of the answer, and at the end why it ended."""
    last = messages[-1]
    said = next(one["content"] for one in reversed(messages) if one["role"] == "user")
    words = said if isinstance(said, str) else " ".join(part.get("text", "") for part in said)
    if last["role"] == "tool":
        yield from text(f"The tool says: {last['content'][:200]}")
    elif found := re.match(r"write (\S+)", words):
        yield from call("write_file", {"path": found[1], "content": f"written for: {words}\n"})
    elif found := re.match(r"run (.+)", words):
        yield from call("run_command", {"command": found[1]})
    elif found := re.match(r"slow (\d+)", words):
        for number in range(int(found[1])):
            time.sleep(0.02)
            yield {"content": f"word{number} " + ("\n\n" if number % 20 == 19 else "")}, None
        yield {}, "stop"
    elif words.startswith("show"):
        yield from text(MARKDOWN)
    else:
        yield from text(f"You said: {words[:500]}")


def text(answer: str) -> Iterator[tuple[dict[str, Any], str | None]]:
    yield {"role": "assistant", "content": ""}, None
    for piece in re.findall(r"(?s).{1,7}", answer):
        yield {"content": piece}, None
    yield {}, "stop"


def call(name: str, args: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str | None]]:
    function = {"name": name, "arguments": json.dumps(args)}
    yield {"tool_calls": [{"index": 0, "id": "call_0", "type": "function", "function": function}]}, None
    yield {}, "tool_calls"
