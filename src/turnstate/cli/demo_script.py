"""What is said in the demo: a night of failing jobs, two tool calls at a time, and one enormous log.

It is the same on every run: the messages differ in their times only.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from .. import ids
from ..context import Budget
from ..ids import CallId, MessageId
from ..message import Message, ToolCallRequest, ToolCallResult

__all__ = ["BUDGET", "LOG_JOB", "LOG_LINES", "SESSION", "SYSTEM", "messages", "output", "source"]

SESSION = "nightly-jobs"
SYSTEM = "You look after the nightly jobs. Read before you write, and say what you changed."
BUDGET = Budget(17_000, output=1_000)
LOG_JOB = 6
LOG_LINES = 250_000

_JOBS = ("cleanup", "export", "billing", "search index", "backup", "mail digest", "thumbnails", "reports")


def messages(number: int) -> Iterator[Message]:
    """Return the messages of one job: a question, two calls at once, their results, an answer.

    Their ids follow from the job: windows name them, so the demo prints the same figures every time.
    """
    job = _JOBS[number % len(_JOBS)]
    path = f"jobs/{job.replace(' ', '_')}_{number}.py"
    read = ToolCallRequest(id=_call(number, 1), name="read_file", args={"path": path})
    command = {"command": f"python {path} --dry-run"}
    run = ToolCallRequest(id=_call(number, 2), name="run_command", args=command)
    printed = ToolCallResult(tool_call_id=run.id, result=output(number), is_error=number % 3 == 0)
    text = ToolCallResult(tool_call_id=read.id, result=source(path))
    asked = f"The {job} job of night {number} failed. Why, and what do we change in {path}?"
    said = (
        f"The connection of the {job} job times out at row {number * 37}: the pool in {path} is never "
        "closed. I close it in a finally block and retry three times, with a pause that doubles."
    )
    both = "I read the job and run it dry at the same time."
    yield Message.user(asked, id=_id(number, 1))
    yield Message.assistant(both, tool_calls=[read, run], id=_id(number, 2))
    yield Message.tool([printed], id=_id(number, 3))
    yield Message.tool([text], id=_id(number, 4))
    yield Message.assistant(said, id=_id(number, 5))


def _id(number: int, place: int) -> MessageId:
    return ids.derived_id(place, b"%d" % number)


def _call(number: int, place: int) -> CallId:
    return ids.derived_call_id(place, b"%d" % number)


@cache
def output(number: int) -> str:
    """Give what a dry run prints: a few rows, or the enormous log."""
    if number == LOG_JOB:
        lines = (f"02:{i // 3600:02d}:{i % 60:02d} worker {i % 7} row {i} ok" for i in range(LOG_LINES))
        return "\n".join(lines)
    return "\n".join(f"row {row}: {'timeout after 30 s' if row % 5 == 0 else 'ok'}" for row in range(12))


def source(path: str) -> str:
    """Give the text of a job's file."""
    body = "\n".join(f"    rows.extend(fetch(pool, page={page}))" for page in range(8))
    return f"# {path}\ndef job(pool):\n    rows = []\n{body}\n    return store(rows)\n"
