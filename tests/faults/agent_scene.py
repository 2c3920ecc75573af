"""An agent that works on files, and what must hold of it whenever it was killed or cancelled.

Its model is a script that follows from the conversation, so every process continues where the last one
stopped. It reads and writes a file, appends to another with a command, has a sub-agent pay, and pays itself:
each payment is a line of a file, which shows afterwards how often it ran.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from turnstate import Budget, Message, SessionManager, ToolCallRequest, ToolCallResult, formats
from turnstate.agent import (
    Agent,
    AgentEvent,
    CheckpointFailed,
    CheckpointSaved,
    ReplySaved,
    ToolFinished,
    ToolManager,
    subagent,
    tool,
)
from turnstate.checkpoints import CheckpointManager
from turnstate.entry import UNCERTAIN
from turnstate.errors import NotFound
from turnstate.home import Home
from turnstate.models import ModelRequest
from turnstate.session import Session
from turnstate.testing import ScriptedModel
from turnstate.tools import FILE_TOOLS, Approvals, Rule, run_command

ROUNDS, SESSION, BUDGET = 9, "worker", Budget(100_000)
LOG, JOURNAL, BEGINNING = "log", "journal", "start\n"


def call(name: str, **args: Any) -> ToolCallRequest:
    return ToolCallRequest(name=name, args=args)


def next_reply(request: ModelRequest) -> Message:
    """Return the reply that follows from the number of replies so far."""
    done = sum(message.role == "assistant" for message in request.messages)
    if done == ROUNDS:
        return Message.assistant("Done.")
    rounds = (
        [call("read_file", path=LOG), call("look", what=f"{done}")],
        [call("write_file", path=LOG, content=f"round {done}\n"), call("pay", what=f"{done}")],
        [call("run_command", command=f"echo {done} >> {JOURNAL}"), call("pay", what=f"{done}")],
        [call("delegate", task=f"{done}"), call("look", what=f"{done}")],
    )
    return Message.assistant(tool_calls=rounds[done % len(rounds)])


def delegated_reply(request: ModelRequest) -> Message:
    """Return the reply of the sub-agent: it pays for its task, and is done."""
    if any(message.role == "assistant" for message in request.messages):
        return Message.assistant("It is settled.")
    task = next(message.text for message in request.messages if message.role == "user")
    return Message.assistant(tool_calls=[call("pay", what=f"task {task}")])


def tools(folder: Path, sessions: SessionManager) -> ToolManager:
    @tool
    async def pay(what: str) -> str:
        """Do something that must not be done twice."""
        with (folder / "paid").open("a") as file:
            file.write(f"{what}\n")
            file.flush()
            os.fsync(file.fileno())
        await asyncio.sleep(0.005)
        return f"paid {what}"

    @tool(idempotent=True)
    async def look(what: str) -> str:
        """Do something that may be done again."""
        return f"looked at {what}"

    allow = Approvals([Rule("*", "allow")])
    delegate = subagent(
        sessions,
        model=ScriptedModel(*[delegated_reply] * 9),
        tools=ToolManager([pay], approvals=allow),
        budget=BUDGET,
    )
    every = [*FILE_TOOLS, run_command, pay, look, delegate]
    return ToolManager(every, approvals=allow, workspace=folder / "work")


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[SessionManager, Session, CheckpointManager]]:
    """Open the session and its checkpoints, as every process does."""
    async with SessionManager.open(f"sqlite:///{folder}/agent.db") as sessions:
        session = await sessions.open_or_create(SESSION)
        checkpoints = await CheckpointManager.open(session, folder / "work", home=Home(folder / "home"))
        yield sessions, session, checkpoints


async def events(
    folder: Path, sessions: SessionManager, session: Session, checkpoints: CheckpointManager
) -> AsyncGenerator[dict[str, Any], None]:
    """Run the agent, or resume it, and yield what each event acknowledges."""
    model = ScriptedModel(*[next_reply] * 100)
    agent = Agent(
        model=model, session=session, tools=tools(folder, sessions), budget=BUDGET, checkpoints=checkpoints
    )
    run = agent.run("Go.") if not await session.messages(last=1) else agent.resume()
    async for event in run:
        yield acknowledged(event)


def acknowledged(event: AgentEvent) -> dict[str, Any]:
    match event:
        case ReplySaved(message=message):
            return {"event": "reply", "calls": [one.name for one in message.tool_calls]}
        case ToolFinished(call=call, result=result):
            return {"event": "result", "call": call.id, "result": result.result}
        case CheckpointSaved(label=label):
            return {"event": "checkpoint", "label": label}
        case CheckpointFailed(text=text):
            return {"event": "failed", "text": text}
        case _:
            return {"event": type(event).__name__}


def prepared(folder: Path) -> Path:
    (folder / "work").mkdir(parents=True)
    (folder / "work" / LOG).write_text(BEGINNING)
    (folder / "work" / JOURNAL).touch()
    (folder / "paid").touch()
    return folder


class Expected(NamedTuple):
    """What files may contain after the results of a conversation: what surely happened, and what may have."""

    log: set[str]
    journal: set[str]
    perhaps: set[str]

    def check(self, work: Path) -> None:
        assert (work / LOG).read_text() in self.log, (work / LOG).read_text()
        lines = Counter((work / JOURNAL).read_text().splitlines())
        assert set(lines.values()) <= {1}, lines
        assert self.journal <= set(lines) <= self.journal | self.perhaps, (lines, self)


def expected(messages: Iterable[Message]) -> Expected:
    """Return what the results say of the files; a call without one, or an uncertain one, may have run."""
    log, journal, perhaps = {BEGINNING}, set[str](), set[str]()
    every = list(messages)
    results = {one.tool_call_id: one for message in every for one in message.tool_results}
    for asked in (one for message in every for one in message.tool_calls):
        result = results.get(asked.id)
        certain = result is not None and not result.is_error
        if asked.name == "write_file" and (certain or may_have_run(result)):
            log = {asked.args["content"]} | (set() if certain else log)
        if asked.name == "run_command" and (certain or may_have_run(result)):
            (journal if certain else perhaps).add(asked.args["command"].split()[1])
    return Expected(log, journal, perhaps)


def may_have_run(result: ToolCallResult | None) -> bool:
    return result is None or result.result == UNCERTAIN


async def check(folder: Path, heard: Iterable[Mapping[str, Any]]) -> None:
    """Check a conversation after a kill: valid for every provider, with all that was acknowledged, once."""
    async with SessionManager.open(f"sqlite:///{folder}/agent.db") as sessions:
        try:
            session = await sessions.open(SESSION)
        except NotFound:  # it was killed before it began
            assert not list(heard)
            return
        await check_session(session, heard)
        expected(await session.messages()).check(folder / "work")


async def check_session(session: Session, heard: Iterable[Mapping[str, Any]]) -> None:
    heard, window = list(heard), await session.window(BUDGET)
    for name in formats.names() if window.messages else ():  # it may have been killed before the first word
        provider, request = formats.get(name), window.messages[-1].role in ("user", "tool")
        violations = provider.validate(provider.render(window.messages), request=request)
        assert violations == [], (name, violations)
    messages = await session.messages()
    answers = [(one.tool_call_id, one.result) for message in messages for one in message.tool_results]
    assert len({id for id, _ in answers}) == len(answers)
    found = dict(answers)
    labels = [one.entry.label for one in await session.entries(kinds=["checkpoint"])]  # type: ignore[union-attr]
    for one in heard:
        assert one["event"] != "failed", one
        if one["event"] == "result":
            assert found.get(one["call"]) == one["result"], one
        elif one["event"] == "checkpoint":
            assert one["label"] in labels, one
    replies = sum(one["event"] == "reply" for one in heard)
    assert sum(message.role == "assistant" for message in messages) >= replies


def check_payments(folder: Path) -> None:
    paid = Counter((folder / "paid").read_text().splitlines())
    assert set(paid.values()) <= {1}, f"paid twice: {paid}"


async def check_end(folder: Path) -> None:
    """Check the end of a run, and that each checkpoint restores the files that its conversation speaks of."""
    check_payments(folder)
    async with opened(folder) as (_, session, checkpoints):
        messages = await session.messages()
        assert (messages[-1].text, await session.pending()) == ("Done.", None)
        settled = {one.tool_call_id for message in messages for one in message.tool_results}
        assert {one.id for message in messages for one in message.tool_calls} == settled
        paid = set((folder / "paid").read_text().splitlines())
        said = [str(one.result) for message in messages for one in message.tool_results]
        assert {one.removeprefix("paid ") for one in said if one.startswith("paid ")} <= paid
        assert (await checkpoints.diff("1")).files == (), "a checkpoint has other files"
        labels = [one.label for turn in await checkpoints.turns() for one in turn.tools]
        for label in reversed(labels):  # the older ones are still there after a restore
            await checkpoints.restore(label, hard=True)
            expected(await session.messages()).check(folder / "work")
