"""The loops of the quick start with the real SDKs: hundreds of turns, two kills, nothing rejected or lost."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.quickstart_agent import PAGE, SESSION
from tests.harness.programs import environment, program
from tests.harness.provider_server import FINAL, ProviderServer
from tests.harness.thoroughness import runs
from turnstate import Message, SessionManager

pytestmark = pytest.mark.req("A4", "A5", "G6")

LOOPS = dict.fromkeys(("after", "streamed", "claude", "claude_streamed"), runs(30, long=200))
"""The turns of each loop."""


@pytest.fixture(scope="module")
def agent() -> Iterator[subprocess.Popen[str]]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    command = program("tests.acceptance.quickstart_agent")
    with subprocess.Popen(command, env=environment(), **pipes) as process:  # type: ignore[call-overload]
        yield process
        process.stdin.close()


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_that_is_killed_twice_has_nothing_rejected_and_loses_nothing(
    loop: str, agent: subprocess.Popen[str], tmp_path: Path
) -> None:
    """In the first life the reply to a request is lost; in the second, one of two tools has run."""
    store, turns, process = f"sqlite:///{tmp_path}/agent.db", LOOPS[loop], 0
    stuck = turns * 2 // 3

    def before_reply(number: int) -> None:
        if number == turns * 3 // 4:
            os.kill(process, signal.SIGKILL)

    with ProviderServer(before_reply) as server:
        lives, code = set[int](), None
        print(loop, server.url, store, turns, stuck, sep="\t", file=agent.stdin)
        for line in agent.stdout or ():
            if ended := re.search(r"ended (\d+)\n", line):
                code = int(ended[1])
                break
            told = re.fullmatch(r"(?:OK)*(\d+) (\d+) (\d+) (\w+)\n", line)
            if told is None:
                continue
            process, life = int(told[1]), int(told[2])
            lives.add(life)
            if (life, int(told[3]), told[4]) == (2, stuck, "listen"):
                os.kill(process, signal.SIGKILL)
        assert code == 0
    assert server.rejected == []
    assert lives == {1, 2, 3}
    assert server.largest < 16_000 * 5  # bytes of a request: about 4 a token
    asyncio.run(check(store, turns))


async def check(store: str, count: int) -> None:
    """Check that the log has every turn whole and in order."""
    async with SessionManager.open(store) as sessions:
        session = await sessions.open(SESSION, user="u1")
        assert await session.pending() is None
        messages = await session.messages()
        cuts, usage = await session.entries(kinds=["cut"]), await session.entries(kinds=["usage"])
    turns = list[list[Message]]()
    for message in messages:
        turns += [[]] if message.role == "user" else []
        turns[-1].append(message)
    assert [re.match(r"turn (\d+):", turn[0].text)[1] for turn in turns] == [str(n) for n in range(count)]  # type: ignore[index]
    for number, turn in enumerate(turns):
        batches = [message.tool_calls for message in turn if message.tool_calls]
        names = ["look", "listen"] + ["smell"] * (number % 7 == 0)
        assert [[call.name for call in batch] for batch in batches] == [names] + [["look"]] * (
            number % 5 == 0
        )
        results = {one.tool_call_id: one.result for message in turn for one in message.tool_results}
        calls = [call for batch in batches for call in batch]
        assert results.keys() == {call.id for call in calls}
        assert all(results[call.id].startswith(f"{call.name} {number}:") for call in calls)
        assert (turn[-1].role, turn[-1].text) == ("assistant", FINAL)
    assert cuts
    assert len(usage) == sum(one.role == "assistant" for one in messages)


def test_the_loop_needs_at_most_eight_lines() -> None:
    """Count the lines of the loop after, which are not tools, options or the loop before."""
    after = (
        PAGE.read_text()
        .partition("## The same loop, after")[2]
        .partition("```python\n")[2]
        .partition("```")[0]
    )
    lines = [
        line
        for line in after.splitlines()
        if line.strip() and not re.match(r"\s*(async def|tools =|print\(await after)", line)
    ]
    assert len(lines) <= 8, lines


def chat(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "turn 1"}, *messages]}


def claude(*messages: dict[str, Any], **options: Any) -> dict[str, Any]:
    first = {"role": "user", "content": "turn 1"}
    return {"model": "m", "max_tokens": 9, "messages": [first, *messages], **options}


def calling(*ids: str) -> dict[str, Any]:
    calls = [
        {"id": id, "type": "function", "function": {"name": "look", "arguments": '{"n": 1}'}} for id in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def using(*ids: str) -> dict[str, Any]:
    uses = [{"type": "tool_use", "id": id, "name": "look", "input": {"n": 1}} for id in ids]
    return {"role": "assistant", "content": uses}


def result(id: str, **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": "look 1", **fields}


def used(*ids: str) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": id, "content": "look 1"} for id in ids],
    }


def test_the_server_rejects_what_the_providers_reject() -> None:
    said: dict[str, Any] = {"role": "assistant", "content": "OK"}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "forged"}
    thinking = {"type": "enabled", "budget_tokens": 1_024}
    good = {
        "/v1/chat/completions": [chat(), chat(calling("a", "b"), result("b"), result("a"))],
        "/v1/messages": [claude(), claude(using("a", "b"), used("b", "a"))],
    }
    bad = {
        "/v1/chat/completions": [
            chat(calling("a", "b"), result("a")),
            chat(result("a")),
            chat(calling("a"), said, result("a")),
            chat(calling("a"), result("a"), result("a")),
            chat(calling("a"), result("a", is_error=True)),
            chat({**said, "refusal": None}),
            chat({**said, "annotations": []}),
            chat({**said, "tool_calls": []}),
            chat({"role": "assistant", "content": None}),
        ],
        "/v1/messages": [
            claude(using("a", "b"), used("a")),
            claude(said, used("a")),
            claude({"role": "user", "content": "again"}),
            claude(said),
            claude({**said, "id": "msg_1"}, {"role": "user", "content": "turn 2"}),
            claude(using("a"), used("a"), using("a"), used("a")),
            claude({"role": "assistant", "content": [thought]}, {"role": "user", "content": "turn 2"}),
            claude(using("a"), used("a"), thinking=thinking),
            {key: value for key, value in claude().items() if key != "max_tokens"},
        ],
    }
    with ProviderServer() as server:
        for expected, samples in ((200, good), (400, bad)):
            for path, requests in samples.items():
                for request in requests:
                    assert posted(server.url + path, request) == expected, request


def posted(url: str, request: dict[str, Any]) -> int:
    body = urllib.request.Request(url, json.dumps(request).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(body) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
