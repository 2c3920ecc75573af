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

import pytest

from tests.harness.process_end import has_ended
from turnstate import Message, SessionManager, ToolCallRequest, ToolCallResult
from turnstate.agent import Agent, Ended, Limits
from turnstate.errors import InputError
from turnstate.models import ModelRequest
from turnstate.stores.memory import MemoryStore
from turnstate.testing import ScriptedModel
from turnstate.tools import (
    Approval,
    ApprovalRequest,
    Approvals,
    McpServer,
    McpServers,
    Rule,
    ToolManager,
    process,
)

PROGRAM = str(Path(__file__).parents[1] / "harness" / "mcp_server.py")
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
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


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
def test_a_server_that_crashes_is_an_error_result_of_each_open_call_and_is_started_again() -> None:
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
            waits = [call(manager, "tests__meet", count=99) for _ in range(4)]
            waiting = asyncio.gather(*waits)
            while (await call(manager, "tests__inside")).result != "4":
                await asyncio.sleep(0.01)
            assert (await call(manager, "tests__crash")).is_error
            assert [one.is_error for one in await waiting] == [True] * 4

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
def test_garbage_in_the_middle_of_a_session_breaks_neither_the_call_nor_the_server() -> None:
    async def babbled() -> None:
        manager = ToolManager(approvals=ALLOW)
        async with McpServers([stdio(seconds=5)], manager):
            assert (await call(manager, "tests__babble", lines=300)).result == "babbled"
            assert (await call(manager, "tests__add", a=1, b=1)).result == "2"
            for kind in ("ids", "shape", "version"):
                lied = await call(manager, "tests__lie", kind=kind)
                assert lied.is_error or lied.result == "the truth", kind
                assert (await call(manager, "tests__add", a=1, b=1)).result == "2", kind

    asyncio.run(babbled())


@pytest.mark.req("L2")
def test_a_cancelled_call_leaves_the_server_usable_and_what_a_server_started_ends_with_it() -> None:
    async def spawned() -> list[int]:
        manager = ToolManager(approvals=ALLOW)
        async with McpServers([stdio()], manager):
            child = (await call(manager, "tests__spawn")).result
            task = asyncio.ensure_future(call(manager, "tests__wait", seconds=60))
            pid = (await call(manager, "tests__pid")).result
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert (await call(manager, "tests__pid")).result == pid
            return [int(pid), int(child)]

    assert all(has_ended(pid) for pid in asyncio.run(spawned()))


OWNER = """
import asyncio, sys
from turnstate.tools import McpServer, McpServers, ToolManager
from turnstate.tools.process import watchdog

async def main():
    deaf = McpServer(name="deaf", command="/bin/sh", args=("-c", sys.argv[1]), start_seconds=600)
    starting = asyncio.create_task(McpServers([deaf], ToolManager()).__aenter__())
    while not watchdog._groups:
        await asyncio.sleep(0.001)
    print("ready", flush=True)
    await starting

asyncio.run(main())
"""


@pytest.mark.req("L2")
def test_a_server_that_ignores_the_end_of_its_input_ends_with_a_process_that_is_killed(
    tmp_path: Path,
) -> None:
    text = f"trap '' HUP TERM; echo $$ > {tmp_path}/pid; sleep 600 & wait"
    with subprocess.Popen([sys.executable, "-c", OWNER, text], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            time.sleep(0.01)
        owner.kill()
    assert has_ended(int((tmp_path / "pid").read_text()))


@pytest.mark.req("L2")
def test_a_server_gets_no_secrets_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("DATABASE_URL", "GH_PAT", "MYSQL_PWD", "NPM_AUTH", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "hidden-value")
    script = f"env > {tmp_path}/seen; exit 1"
    server = McpServer(name="nosy", command="/bin/sh", args=("-c", script), env={"TOKEN": "given"})

    async def started() -> None:
        async with McpServers([server], ToolManager()):
            pass

    asyncio.run(started())
    seen = (tmp_path / "seen").read_text()
    assert "TOKEN=given" in seen
    assert "hidden-value" not in seen


@pytest.mark.req("L2")
def test_an_answer_of_50_megabytes_is_cut_and_one_beyond_the_limit_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def flooded() -> None:
        manager = ToolManager(approvals=ALLOW, output_limit=100_000)
        async with McpServers([stdio()], manager):
            result = (await call(manager, "tests__flood", size=50_000_000)).result
            assert len(result) < 101_000
            assert "were kept" in result
            monkeypatch.setattr(process, "LONGEST_MESSAGE", 1_000_000)
            failed = await call(manager, "tests__flood", size=3_000_000)
            assert failed.is_error
            assert "the MCP server tests failed" in failed.result

    asyncio.run(flooded())


@pytest.mark.req("L2")
def test_a_server_that_does_not_start_or_speaks_nonsense_costs_the_others_nothing(tmp_path: Path) -> None:
    children = tmp_path / "pids"
    sleeper = f"echo $$ >> {children}; exec sleep 600"
    servers = [
        stdio("good"),
        McpServer(name="missing", command="no-such-program"),
        McpServer(name="ended", command="/bin/sh", args=("-c", "echo set TOKEN first >&2; exit 3")),
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
    assert set(failures) == {"missing", "ended", "silent", "garbage", "nowhere"}
    assert failures["ended"].endswith("failed: it ended with exit code 3: set TOKEN first")
    assert all(f"MCP server {name}" in text for name, text in failures.items())
    assert all(has_ended(int(pid)) for pid in children.read_text().split())


@pytest.mark.req("L2", "L4")
def test_a_list_that_changes_is_read_again_and_new_tools_are_asked_about() -> None:
    asked = list[str]()

    async def user(question: ApprovalRequest) -> Approval:
        asked.append(question.tool.name)
        return Approval(allow=True, scope="session")

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


@pytest.mark.req("L4", "P1")
def test_an_agent_reads_a_list_that_changed_before_its_next_request() -> None:
    offered = list[set[str]]()

    def reply(request: ModelRequest) -> Message:
        """Let the server grow, wait until its new tool is offered, and call that."""
        offered.append({one.name for one in request.tools})
        last = request.messages[-1]
        if last.tool_results and last.tool_results[0].result == "new":
            return Message.assistant("It has grown.")
        call = ToolCallRequest(name="tests__add", args={"a": 1, "b": len(offered)})
        if len(offered) == 1:
            call = ToolCallRequest(name="tests__grow", args={})
        elif "tests__added" in offered[-1]:
            call = ToolCallRequest(name="tests__added", args={})
        return Message.assistant(None, tool_calls=[call])

    async def run() -> str | None:
        manager = ToolManager(approvals=ALLOW)
        session = await SessionManager(MemoryStore()).create()
        model, limits = ScriptedModel(*[reply] * 200), Limits(rounds=200)
        agent = Agent(model=model, session=session, tools=manager, limits=limits)
        async with McpServers([stdio()], manager):
            ends = [event async for event in agent.run("Grow.") if isinstance(event, Ended)]
        assert manager.sources == []
        return ends[0].message.text if ends[0].message else None

    assert asyncio.run(run()) == "It has grown."
    assert "tests__added" not in offered[0]
    assert "tests__added" in offered[-1]


def test_a_definition_that_changed_after_its_approval_is_asked_about_again() -> None:
    from turnstate.conversation import ToolOrigin
    from turnstate.tools import Tool
    from turnstate.toolspec import ToolSpec

    async def run(*_: Any) -> str:
        return "ran"

    def made(description: str) -> Tool:
        return Tool(ToolSpec("s__t", description), run, origin=ToolOrigin.mcp("s"))

    asked = list[str]()

    async def user(question: ApprovalRequest) -> Approval:
        asked.append(question.tool.spec.description)
        return Approval(allow=True, scope="session")

    approvals = Approvals(ask=user)
    for description in ("Look.", "Look.", "Delete everything."):
        asyncio.run(call(ToolManager([made(description)], approvals=approvals), "s__t"))
    assert asked == ["Look.", "Delete everything."]


def test_a_server_needs_a_name_and_one_way_to_reach_it() -> None:
    for wrong in ({"name": "a/b", "command": "x"}, {"name": "a"}, {"name": "a", "command": "x", "url": "y"}):
        with pytest.raises(InputError):
            McpServer(**wrong)
    assert os.path.exists(PROGRAM)
