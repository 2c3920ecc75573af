"""Sessions for the commands to work on, and ways to look at what became of them."""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator
from contextlib import contextmanager

from tests.acceptance.cli_program import Outcome, on_a_terminal
from turnstate import Message, ToolCallRequest, ToolCallResult, blocking
from turnstate.stores.values import SessionRow

LONG = "".join(f"line {number} of the log\n" for number in range(1, 8_101))


@contextmanager
def opened(url: str, tenant: str = "default") -> Iterator[blocking.SessionManager]:
    with blocking.SessionManager.open(url, tenant=tenant) as sessions:
        yield sessions


def make(url: str, *said: str, tenant: str = "default", **settings: object) -> str:
    """Keep a session in which the user said this, and give its id."""
    with opened(url, tenant) as sessions:
        session = sessions.create(**settings)  # type: ignore[arg-type]
        for text in said:
            session.append(Message.user(text))
        return session.id


def work(url: str, *results: object, **settings: object) -> tuple[str, Message]:
    """Keep a session in which tools gave these results, and give its id and their message."""
    with opened(url) as sessions:
        session = sessions.create(**settings)  # type: ignore[arg-type]
        calls = [ToolCallRequest(name="read", args={"n": n}) for n, _ in enumerate(results)]
        session.append(Message.user("Read the log."), Message.assistant(None, tool_calls=calls))
        answers = [
            ToolCallResult(tool_call_id=call.id, result=result)
            for call, result in zip(calls, results, strict=True)
        ]
        session.append(message := Message.tool(answers))
        return session.id, message


def row(url: str, id: str, tenant: str = "default") -> SessionRow:
    with opened(url, tenant) as sessions:
        return sessions.open(id).info


def there(url: str, tenant: str = "default") -> list[str]:
    """Return the ids of all sessions."""
    with opened(url, tenant) as sessions:
        return [one.id for one in sessions.all()]


def answering(answer: str, *arguments: object, **changes: str) -> Outcome:
    """Run a command line in this process, on a terminal whose user types an answer."""
    master, slave = pty.openpty()
    os.write(master, f"{answer}\n".encode())
    try:
        return on_a_terminal(*arguments, stdin=slave, **changes)
    finally:
        os.close(master)
