"""Whatever a caller passes, the answer is a result or an error of Turnstate, never one of Python."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import AsyncIterator
from typing import Any

import pytest

from turnstate import Budget, Message, Session, SessionManager, StateManager, errors, fit, formats

pytestmark = pytest.mark.anyio

WRONG: list[Any] = [
    *(None, True, -1, 10**30, 1.5, float("nan"), "", "x\ud800", "a\0b", "no such thing", b"bytes"),
    *([], {}, (), [None], [1], (1, 2), {"a": 1}, {1: 2}, [[]], [{}], object()),
]
RIGHT: dict[str, Any] = {
    "messages": [Message.user("hello")],
    "message": Message.user("hello"),
    "payload": [{"role": "user", "content": "hello"}],
    "response": {},
    "chunks": [],
    "budget": Budget(8_000),
    "name": "one",
}
PATIENCE = 0.02  # seconds: some methods wait for others, or never end


async def test_no_argument_of_a_session_raises_an_error_of_python(tmp_path: Any) -> None:
    async with SessionManager.open(f"sqlite:///{tmp_path}/agent.db") as sessions:
        session = await sessions.create(id="x", user="u")
        await session.append(Message.user("hello"))
        await _sweep(session)
        await _sweep(sessions, leave_out={"close", "open", "store", "memory", "policy"})


async def test_no_argument_of_the_state_manager_raises_an_error_of_python() -> None:
    await _sweep(StateManager(), leave_out={"counter", "policy"})
    for wrong in WRONG:
        await _call(StateManager, {"counter": wrong})
        await _call(StateManager, {"policy": wrong})


@pytest.mark.parametrize("name", formats.names())
async def test_no_document_raises_an_error_of_python(name: str) -> None:
    format = formats.get(name)
    for wrong in WRONG:
        for method in (format.parse, format.validate, format.reply, format.tools, format.collect):
            await _call(method, {next(iter(inspect.signature(method).parameters)): wrong})
        await _call(fit, {"messages": wrong, "budget": Budget(8_000), "format": name})
        await _call(fit, {"messages": RIGHT["payload"], "budget": wrong, "format": name})


async def _sweep(of: object, leave_out: frozenset[str] | set[str] = frozenset()) -> None:
    """Call every public method with wrong values, one argument at a time."""
    for name in sorted(name for name in dir(of) if not name.startswith("_") and name not in leave_out):
        method = getattr(of, name)
        if not callable(method):
            continue
        given = [
            one for one in inspect.signature(method).parameters.values() if one.kind is not one.VAR_KEYWORD
        ]
        needed = {one.name: RIGHT.get(one.name, "x") for one in given if one.default is one.empty}
        for argument in given:
            for wrong in WRONG:
                await _call(method, needed | {argument.name: wrong})


async def _call(function: Any, arguments: dict[str, Any]) -> None:
    positional = [
        one.name for one in inspect.signature(function).parameters.values() if one.kind is one.VAR_POSITIONAL
    ]
    named = {key: value for key, value in arguments.items() if key not in positional}
    try:
        async with asyncio.timeout(PATIENCE):
            await _use(function(*(arguments[name] for name in positional if name in arguments), **named))
    except (errors.TurnstateError, TimeoutError):
        pass
    except Exception as error:
        shown = {key: repr(value)[:60] for key, value in arguments.items()}
        pytest.fail(f"{function.__qualname__}({shown}): {''.join(traceback.format_exception(error)[-4:])}")


async def _use(result: Any) -> None:
    """Await a result, enter it or iterate over it, as its caller would."""
    if inspect.isawaitable(result):
        result = await result
    if isinstance(result, AsyncIterator):
        async for _ in result:
            break
    elif hasattr(result, "__aenter__") and not isinstance(result, Session):
        async with result:
            pass
