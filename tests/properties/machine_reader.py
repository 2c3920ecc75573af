"""Another process: it opens the conversations of random machines and prints what it sees of each.

Files, budgets and caps are given as JSON on its standard input; a line of JSON is printed for each.
"""

from __future__ import annotations

import asyncio
import base64
import sys

import msgspec

from tests.harness.state_cap import state_cap
from tests.properties.machine import ID, POLICY, shown, view_of
from turnstate import Budget
from turnstate.session import SessionManager


async def _seen(file: str, limits: list[int]) -> list[str | None]:
    async with await SessionManager.open(f"sqlite:///{file}", policy=POLICY) as sessions:
        state = await (await sessions.open(ID)).conversation()
        view = view_of(state, [shown(state, Budget(limit)) for limit in limits])
    parts = (view.fields, view.tangents, view.messages, *view.windows)
    return [base64.b64encode(one).decode() if one is not None else None for one in parts]


if __name__ == "__main__":
    given = list[tuple[str, list[int], int]]
    for file, limits, cap in msgspec.json.decode(sys.stdin.buffer.read(), type=given):
        with state_cap(cap):
            print(msgspec.json.encode(asyncio.run(_seen(file, limits))).decode())
