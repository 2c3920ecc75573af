"""Real MCP servers, over stdio and HTTP: calls, crashes, hangs, floods, lies, and lists that change."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_server
import pytest

from turnstate import ToolCallRequest, ToolCallResult
from turnstate.errors import InputError
from turnstate.tools import Answer, Approvals, McpServer, McpServers, Question, Rule, ToolManager

PROGRAM = mcp_server.__file__
ALLOW = Approvals([Rule("*", "allow")])


def stdio(name: str = "tests", **settings: Any) -> McpServer:
    return McpServer(name=name, command=sys.executable, args=(PROGRAM,), **settings)


async def call(manager: ToolManager, name: str, **args: Any) -> ToolCallResult:
    (result,) = [one async for one in manager.run([ToolCallRequest(name=name, args=args)])]
    return result


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, PROGRAM, str(port)], **quiet)  # type: ignore[call-overload]
    try:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def has_ended(pid: int) -> bool:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            if "zombie" in Path(f"/proc/{pid}/status").read_text():
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.req("L1", "L2")
def test_tools_of_servers_over_stdio_and_http_are_called_side_by_side(url: str) -> None:
    async def called() -> int:
        manager = ToolManager(approvals=ALLOW)
        async with McpServers([stdio("one"), McpServer(name="two", url=url)], manager) as servers:
            assert servers.failures == {}
            assert set(manager.schemas()) == {"one", "two"}
            for server in ("one", "two"):
                assert (await call(manager, f"{server}__add", a=2, b="3")).is_error
                assert (await call(manager, f"{server}__add", a=2, b=3)).result == "5"
                failed = await call(manager, f"{server}__fail")
                assert failed.is_error
                assert "fail" in failed.result
            calls = [ToolCallRequest(name="one__meet", args={"count": 5}) for _ in range(5)]
            assert [one.result async for one in manager.run(calls)] == ["met"] * 5
            pid = int((await call(manager, "one__pid")).result)
        assert manager.tools == ()
        return pid

    assert has_ended(asyncio.run(called()))


@pytest.mark.req("L2")
def test_a_server_that_crashes_is_an_error_result_and_is_started_again() -> None:
    async def crashed() -> None:
        manager = ToolManager(approvals=ALLOW)
        async with McpServers([stdio()], manager):
            first = (await call(manager, "tests__pid")).result
            failed = await call(manager, "tests__crash")
            assert failed.is_error
            assert "the MCP server tests failed" in failed.result
            again = await call(manager, "tests__pid")
            assert not again.is_error
            assert again.result != first

    asyncio.run(crashed())


@pytest.mark.req("L2")
def test_a_server_that_hangs_is_an_error_result_and_does_not_survive() -> None:
    async def hung() -> int:
        manager = ToolManager(approvals=ALLOW)
        async with McpServers([stdio(seconds=0.5)], manager):
            pid = int((await call(manager, "tests__pid")).result)
            failed = await call(manager, "tests__hang")
            assert failed.is_error
        return pid

    assert has_ended(asyncio.run(hung()))


@pytest.mark.req("L2")
def test_a_flood_is_cut_to_the_limit() -> None:
    async def flooded() -> ToolCallResult:
        manager = ToolManager(approvals=ALLOW, output_limit=100_000)
        async with McpServers([stdio()], manager):
            return await call(manager, "tests__flood", size=5_000_000)

    result = asyncio.run(flooded()).result
    assert len(result) < 101_000
    assert "were kept" in result


@pytest.mark.req("L2")
def test_a_server_that_does_not_start_or_speaks_nonsense_costs_the_others_nothing(tmp_path: Path) -> None:
    children = tmp_path / "pids"
    sleeper = f"echo $$ >> {children}; exec sleep 600"
    servers = [
        stdio("good"),
        McpServer(name="missing", command="no-such-program"),
        McpServer(name="silent", command="/bin/sh", args=("-c", sleeper), start_seconds=1),
        McpServer(
            name="garbage",
            command="/bin/sh",
            args=("-c", "yes garbage | head -5; exec sleep 600"),
            start_seconds=1,
        ),
        McpServer(name="nowhere", url="http://127.0.0.1:9/mcp"),
    ]

    async def started() -> dict[str, str]:
        manager = ToolManager(approvals=ALLOW)
        async with McpServers(servers, manager) as running:
            assert (await call(manager, "good__add", a=1, b=1)).result == "2"
            return dict(running.failures)

    failures = asyncio.run(started())
    assert set(failures) == {"missing", "silent", "garbage", "nowhere"}
    assert all(f"MCP server {name}" in text for name, text in failures.items())
    assert all(has_ended(int(pid)) for pid in children.read_text().split())


@pytest.mark.req("L2", "L4")
def test_a_list_that_changes_is_read_again_and_new_tools_are_asked_about() -> None:
    asked = list[str]()

    async def user(question: Question) -> Answer:
        asked.append(question.tool.name)
        return Answer(allow=True, scope="session")

    async def grown() -> None:
        manager = ToolManager(approvals=Approvals(ask=user))
        async with McpServers([stdio()], manager) as servers:
            assert manager.get("tests__added") is None
            await call(manager, "tests__grow")
            for _ in range(100):
                await servers.refresh()
                if manager.get("tests__added") is not None:
                    break
                await asyncio.sleep(0.02)
            assert (await call(manager, "tests__added")).result == "new"
            await call(manager, "tests__added")

    asyncio.run(grown())
    assert asked == ["tests__grow", "tests__added"]


def test_a_definition_that_changed_after_its_approval_is_asked_about_again() -> None:
    from turnstate.conversation import ToolOrigin
    from turnstate.tools import Tool
    from turnstate.toolspec import ToolSpec

    async def run(*_: Any) -> str:
        return "ran"

    def made(description: str) -> Tool:
        return Tool(ToolSpec("s__t", description), run, origin=ToolOrigin.mcp("s"))

    asked = list[str]()

    async def user(question: Question) -> Answer:
        asked.append(question.tool.spec.description)
        return Answer(allow=True, scope="session")

    approvals = Approvals(ask=user)
    for description in ("Look.", "Look.", "Delete everything."):
        asyncio.run(call(ToolManager([made(description)], approvals=approvals), "s__t"))
    assert asked == ["Look.", "Delete everything."]


def test_a_server_needs_a_name_and_one_way_to_reach_it() -> None:
    for wrong in ({"name": "a/b", "command": "x"}, {"name": "a"}, {"name": "a", "command": "x", "url": "y"}):
        with pytest.raises(InputError):
            McpServer(**wrong)
    assert os.path.exists(PROGRAM)
