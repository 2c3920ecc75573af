"""A real MCP server for tests: `python mcp_server.py` speaks over stdio, with a port over HTTP."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("tests")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


_inside: list[None] = []


@server.tool()
async def meet(count: int) -> str:
    """Wait until so many calls are inside at once."""
    _inside.append(None)
    with anyio.fail_after(20):
        while len(_inside) < count:
            await anyio.sleep(0.01)
    return "met"


@server.tool()
def inside() -> str:
    """Return how many calls have met or wait to meet."""
    return str(len(_inside))


@server.tool()
def crash() -> str:
    """Die in the middle of a call."""
    os._exit(3)


@server.tool()
async def wait(seconds: float) -> str:
    """Answer later."""
    await anyio.sleep(seconds)
    return "waited"


@server.tool()
def babble(lines: int) -> str:
    """Print what is no message of the protocol, as programs do that log to their output."""
    for number in range(lines):
        os.write(1, b"DEBUG \xff\x00 {not json %d\n" % number)
    return "babbled"


@server.tool()
def lie(kind: str) -> str:
    """Answer to calls that no one made, or with an invalid answer, and then hang."""
    lies = {
        "ids": '{"jsonrpc": "2.0", "id": 987654, "result": {"content": []}}',
        "shape": '{"jsonrpc": "2.0", "id": %d, "result": {"content": "no list"}}',
        "version": '{"jsonrpc": "1.0", "id": %d}',
    }
    for number in range(20):
        text = lies[kind]
        os.write(1, ((text % number) if "%d" in text else text).encode() + b"\n")
    return "the truth"


@server.tool()
def spawn() -> str:
    """Start a process of its own, as servers do that run programs."""
    return str(subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).pid)


@server.tool()
def hang() -> str:
    """Block the whole server."""
    time.sleep(600)
    return ""


@server.tool()
def flood(size: int) -> str:
    """Answer with a lot of text."""
    return "x" * size


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("it failed")


@server.tool()
def pid() -> str:
    """Return the id of the process."""
    return str(os.getpid())


@server.tool()
async def grow(ctx: Context) -> str:
    """Offer one more tool, and say so."""

    def added() -> str:
        """Be new."""
        return "new"

    server.add_tool(added)
    await ctx.notify_tools_changed()
    return "grown"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
