"""The tool manager runs calls side by side, and whatever a tool does becomes a result."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from turnstate import ToolCallRequest, ToolCallResult
from turnstate.conversation import ToolOrigin
from turnstate.errors import AlreadyExists, InvalidSetting, StoreUnavailable
from turnstate.message import UNPARSED
from turnstate.tools import FILE_TOOLS, Approval, ApprovalRequest, Approvals, Rule, ToolManager, tool

ALLOW = Approvals([Rule("*", "allow")])


def call(name: str, **args: Any) -> ToolCallRequest:
    return ToolCallRequest(name=name, args=args)


async def results(manager: ToolManager, *calls: ToolCallRequest) -> list[ToolCallResult]:
    return [result async for result in manager.run(calls)]


def one(manager: ToolManager, name: str, **args: Any) -> ToolCallResult:
    (result,) = asyncio.run(results(manager, call(name, **args)))
    return result


@pytest.mark.req("L2")
def test_results_are_yielded_as_they_finish_and_every_call_gets_one() -> None:
    first = asyncio.Event()

    @tool
    async def slow() -> str:
        """Wait for the other."""
        await first.wait()
        return "slow"

    @tool
    async def quick() -> str:
        """End first."""
        first.set()
        return "quick"

    manager = ToolManager([slow, quick], approvals=ALLOW)
    calls = [call("slow"), call("quick")]
    found = asyncio.run(results(manager, *calls))
    assert [result.result for result in found] == ["quick", "slow"]
    assert {result.tool_call_id for result in found} == {one.id for one in calls}


@pytest.mark.req("L2")
def test_whatever_goes_wrong_is_an_error_result_that_says_what() -> None:
    @tool(timeout=0.01)
    async def hangs() -> None:
        """Never end."""
        await asyncio.Event().wait()

    @tool
    def fails() -> None:
        """Fail."""
        raise ZeroDivisionError("by zero")

    @tool
    async def times_out_itself() -> None:
        """Raise what a time limit raises."""
        raise TimeoutError("the server did not answer")

    @tool
    def leaves() -> None:
        """End the program."""
        sys.exit("bad usage")

    @tool
    async def leaves_at_once() -> None:
        """End the program, in the event loop."""
        sys.exit(3)

    @tool
    def endless() -> list[Any]:
        """Return what contains itself."""
        itself: list[Any] = []
        itself.append(itself)
        return itself

    class Unprintable(Exception):
        def __str__(self) -> str:
            raise ValueError("not even this")

    @tool
    def unprintable() -> None:
        """Fail, and fail to say why."""
        raise Unprintable

    broken = [hangs, fails, times_out_itself, leaves, leaves_at_once, endless, unprintable]
    manager = ToolManager(broken, approvals=ALLOW)
    cases = {
        "leaves": "the tool ended with sys.exit('bad usage')",
        "leaves_at_once": "SystemExit: 3",
        "endless": "nested deeper than",
        "unprintable": "Unprintable",
        "hangs": "did not finish within 0.01 seconds",
        "fails": "ZeroDivisionError: by zero",
        "times_out_itself": "the server did not answer",
        "fals": "there is no tool fals; did you mean fails?",
        "zzz": "the tools are hangs, fails, times_out_itself, leaves",
    }
    for name, text in cases.items():
        result = one(manager, name)
        assert result.is_error, name
        assert text in result.result
    assert "invalid arguments" in one(manager, "fails", extra=1).result


def test_any_output_becomes_json_and_a_tool_may_say_that_it_failed() -> None:
    @tool
    def odd(kind: str) -> Any:
        """Return something that JSON has no word for."""
        outputs = {"set": {1}, "bytes": b"\xff", "nan": float("nan"), "surrogate": "\ud800", "none": None}
        return outputs.get(kind, ToolCallResult(tool_call_id="x", result="no", is_error=True))

    manager = ToolManager([odd], approvals=ALLOW)
    for kind in ("set", "bytes", "nan", "surrogate", "none"):
        assert not one(manager, "odd", kind=kind).is_error, kind
    assert one(manager, "odd", kind="none").result is None
    assert one(manager, "odd", kind="failed").is_error


def test_output_beyond_the_limit_is_cut_and_says_so() -> None:
    @tool
    def flood() -> str:
        """Print a lot."""
        return "ü" * 5_000

    result = one(ToolManager([flood], approvals=ALLOW, output_limit=1_000), "flood").result
    assert result.startswith("ü" * 500)
    assert result.endswith("[The output had 10,002 bytes; the first 1,000 were kept.]")
    with pytest.raises(InvalidSetting):
        ToolManager(output_limit=1)


def test_cancelling_a_batch_stops_the_tools_that_still_run() -> None:
    stopped = list[str]()

    @tool
    async def waits(which: str) -> None:
        """Wait until it is stopped."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(which)

    async def cancelled() -> None:
        manager = ToolManager([waits], approvals=ALLOW)
        task = asyncio.ensure_future(results(manager, call("waits", which="a"), call("waits", which="b")))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert sorted(stopped) == ["a", "b"]


@pytest.mark.req("L1")
def test_tools_are_registered_by_origin_under_unique_names(tmp_path: Path) -> None:
    @tool
    def read_file() -> None:
        """Be taken."""

    manager = ToolManager(FILE_TOOLS, workspace=tmp_path)
    with pytest.raises(AlreadyExists, match="read_file"):
        manager.add(read_file)
    manager.remove(ToolOrigin("builtin"))
    manager.add(read_file)
    assert list(manager.schemas()) == ["custom___"]
    assert [spec.name for spec in manager.specs()] == ["read_file"]


MALFORMED = (
    '{"target": "staging", "dry_run": tr',
    '["staging"]',
    '"staging"',
    "7",
    "null",
    '{"target": "staging", "target": "production"}',
    '{"target": NaN}',
    "target=staging",
)


@pytest.mark.req("L2")
@pytest.mark.parametrize("written", MALFORMED)
def test_arguments_that_are_not_an_object_run_nothing_and_are_quoted(written: str) -> None:
    ran, asked = list[str](), list[str]()

    @tool
    def deploy(target: str = "production") -> None:
        """Deploy."""
        ran.append(target)

    async def ask(question: ApprovalRequest) -> Approval:
        asked.append(question.tool.name)
        return Approval(allow=True)

    manager = ToolManager([deploy], approvals=Approvals(ask=ask))
    both = [
        ToolCallRequest(name="deploy", args={}, raw=written),
        ToolCallRequest(name="deploy", args={UNPARSED: written}),  # how it was stored before `raw` existed
    ]
    for result in asyncio.run(results(manager, *both)):
        assert result.is_error
        assert written in result.result
        assert "deploy was not run" in result.result
    assert (ran, asked) == ([], [])


def test_the_quotation_of_long_arguments_is_bounded_and_shows_their_end() -> None:
    @tool
    def deploy(target: str = "production") -> None:
        """Deploy."""

    manager = ToolManager([deploy], approvals=ALLOW)
    written = '{"target": "' + "x" * 1_000_000 + "the end"
    (result,) = asyncio.run(results(manager, ToolCallRequest(name="deploy", args={}, raw=written)))
    assert len(result.result) < 1_500
    assert "the end" in result.result


def test_a_call_is_announced_after_its_approval_and_before_it_runs_unless_it_is_idempotent() -> None:
    steps = list[str]()

    @tool
    def pay(where: str) -> None:
        """Pay."""
        steps.append(f"run {where}")

    @tool(idempotent=True)
    def look() -> None:
        """Look."""

    async def ask(question: ApprovalRequest) -> Approval:
        steps.append(f"ask {question.call.args['where']}")
        return Approval(allow=question.call.args["where"] != "bank")

    async def starting(call: ToolCallRequest) -> None:
        steps.append(f"start {call.args['where']}")

    async def run() -> None:
        manager = ToolManager([pay, look], approvals=Approvals(ask=ask))
        for where in ("shop", "bank"):
            async for _ in manager.run([call("pay", where=where)], starting=starting):
                pass
        async for _ in manager.run([call("look"), call("pay"), call("unknown")], starting=starting):
            pass

    asyncio.run(run())
    assert steps == ["ask shop", "start shop", "run shop", "ask bank"]


def test_a_call_whose_start_cannot_be_saved_does_not_run() -> None:
    ran = list[str]()

    @tool
    def pay() -> None:
        """Pay."""
        ran.append("paid")

    async def starting(_: ToolCallRequest) -> None:
        raise StoreUnavailable("the disk is gone")

    async def run() -> None:
        async for _ in ToolManager([pay], approvals=ALLOW).run([call("pay")], starting=starting):
            pass

    with pytest.raises(StoreUnavailable):
        asyncio.run(run())
    assert ran == []
