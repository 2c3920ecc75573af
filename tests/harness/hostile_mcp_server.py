"""An MCP server whose definitions are hostile or odd; it writes the protocol itself, without the SDK.

Its argument is a file with a JSON object: ``tools`` to list, and ``noise``, what it prints before anything
else. A tool answers with its name, and with the structured content in ``structured``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

NOTHING = {"type": "object", "properties": {}}


def say(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answer(method: str, params: dict[str, Any], script: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            version = params["protocolVersion"]
            info = {"name": "hostile", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [{"inputSchema": NOTHING, **one} for one in script["tools"]]}
        case "tools/call":
            content = [{"type": "text", "text": params["name"]}]
            structured = script.get("structured")
            return {"content": content, **({"structuredContent": structured} if structured else {})}
        case _:
            return None


def main() -> None:
    script = json.loads(Path(sys.argv[1]).read_text())
    if noise := script.get("noise"):
        print(noise, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        result = answer(asked["method"], asked.get("params") or {}, script)
        if result is None:
            say({"id": asked["id"], "error": {"code": -32601, "message": "unknown method"}})
        else:
            say({"id": asked["id"], "result": result})


if __name__ == "__main__":
    main()
