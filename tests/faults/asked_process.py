"""The process of an agent that makes two payments, and tells whom it asks; it works until it is killed.

The first time, the first payment is approved and does not end, and the second question is not answered.
With a planted bug, it writes down both calls as started before it asks, as one batch.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from turnstate import Budget, Message, SessionManager, ToolCallRequest, ToolCallResult
from turnstate.agent import Agent, ToolFinished, ToolManager, tool
from turnstate.testing import ScriptedModel
from turnstate.tools import Approval, ApprovalRequest, Approvals

SESSION = "payer"


def tell(**told: Any) -> None:
    print(json.dumps(told), flush=True)


def plant_a_batch() -> None:
    really = ToolManager.run

    async def run(
        self: ToolManager, calls: Any, *, starting: Any, **settings: Any
    ) -> AsyncGenerator[ToolCallResult, None]:
        for call in calls:
            await starting(call)
        async for result in really(self, calls, **settings):
            yield result

    ToolManager.run = run  # type: ignore[method-assign, assignment]


async def live(folder: Path) -> None:
    async with SessionManager.open(f"sqlite:///{folder}/agent.db") as sessions:
        session = await sessions.open_or_create(SESSION)
        is_new = not await session.messages(last=1)

        @tool
        async def pay(where: str) -> str:
            """Do something that must not be done twice."""
            with (folder / "paid").open("a") as file:
                file.write(f"{where}\n")
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                await asyncio.Event().wait()
            return f"paid at {where}"

        async def ask(question: ApprovalRequest) -> Approval:
            where = question.call.args["where"]
            tell(asked=where)
            if is_new and where == "bank":
                while not (folder / "paid").exists():  # so that the kill comes when the first one runs
                    await asyncio.sleep(0.001)
                tell(ready=True)
                await asyncio.Event().wait()
            return Approval(allow=True)

        calls = [ToolCallRequest(name="pay", args={"where": where}) for where in ("shop", "bank")]
        model = ScriptedModel(*([Message.assistant(tool_calls=calls)] if is_new else []), "Paid.")
        manager = ToolManager([pay], approvals=Approvals(ask=ask))
        agent = Agent(model=model, session=session, tools=manager, budget=Budget(8_000))
        async for event in agent.run("Pay.") if is_new else agent.resume():
            if isinstance(event, ToolFinished):
                tell(call=event.call.args["where"], result=event.result.result)


if __name__ == "__main__":
    if "batch" in sys.argv[2:]:
        plant_a_batch()
    asyncio.run(live(Path(sys.argv[1])))
