"""The agent: ask the model, save its reply, run its tools, save their results, until it is done.

    async for event in Agent(model=model, session=session, tools=[…]).run("Why is the build red?"):
        …

Every step is durable before the next begins, so a run can end at any moment, by cancellation or with the
process, and leaves a valid history. `resume` continues from there: a call that was not started is run; one
that was started is run again only if its tool is idempotent, and otherwise gets an error result that says
that it may have run. So a tool that is not idempotent runs at most once.

A reply is saved when it is complete. If the model's stream breaks off, nothing of it is saved, the prompt
stays pending, and `resume` asks again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any

from msgspec import Struct

from ..catalog import named
from ..context.policy import Budget
from ..context.window import Window
from ..entry import UNCERTAIN, Usage
from ..errors import ModelFailed, RequestTooLong
from ..formats import ReceivedMessage
from ..ids import CallId
from ..message import Message, ToolCallRequest, ToolCallResult
from ..models import Model, ModelRequest, ReasoningDelta, Reply, TextDelta
from ..session import Session, Turn
from ..tools import Tool, ToolManager
from ..value import check_kind, check_whole
from .events import (
    AgentEvent,
    Compacted,
    Ended,
    EndReason,
    ReplySaved,
    RequestStarted,
    ToolFinished,
    ToolStarted,
)
from .hooks import Hooks, Stop

__all__ = ["Agent", "Limits"]


class Limits(Struct, frozen=True, kw_only=True):
    """When a run ends although the model would go on."""

    rounds: int = 100
    """Requests of one run."""
    repeats: int = 3
    """Rounds in a row that make exactly the same calls and get exactly the same results."""
    tokens: int | None = None
    """Tokens of one run, requests and replies, as the provider reports them or else as we count them."""

    def __post_init__(self) -> None:
        check_whole("Limits.rounds", self.rounds, least=1)
        check_whole("Limits.repeats", self.repeats, least=2)
        if self.tokens is not None:
            check_whole("Limits.tokens", self.tokens, least=1)


class Agent:
    """Runs turns of one session with one model."""

    def __init__(
        self,
        *,
        model: Model,
        session: Session,
        tools: ToolManager | Iterable[Tool | Callable[..., Any]] = (),
        budget: Budget | None = None,
        limits: Limits | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        check_kind("Agent(session)", session, Session)
        self.model, self.session = model, session
        self.tools = tools if isinstance(tools, ToolManager) else ToolManager(tools)
        self.budget = budget or Budget.of(named(model.name))
        self.limits, self.hooks = limits or Limits(), hooks or Hooks()

    async def run(self, words: str | Message, *, key: str | None = None) -> AsyncGenerator[AgentEvent, None]:
        """Answer the user's words; the last event is `Ended`."""
        async with aclosing(self._run(words, key)) as events:
            async for event in events:
                yield event

    async def resume(self) -> AsyncGenerator[AgentEvent, None]:
        """Continue what an interrupted run left; if nothing is left, only `Ended` is yielded."""
        async with aclosing(self._run(None, None)) as events:
            async for event in events:
                yield event

    async def _run(self, words: str | Message | None, key: str | None) -> AsyncGenerator[AgentEvent, None]:
        run = _Run(self)
        turn = self.session.turn(words, budget=self.budget, tools=self.tools.specs(), key=key)
        async with turn:
            try:
                async with aclosing(run.events(turn)) as events:
                    async for event in events:
                        yield event
            except Stop as stop:
                yield run.ended("stopped", str(stop))


class _Run:
    """One run: what it has used, and what it did last."""

    def __init__(self, agent: Agent) -> None:
        self._agent, self._hooks = agent, agent.hooks
        self._last: Message | None = None
        self._spent = 0
        self._rounds = list[tuple[object, ...]]()

    def ended(self, reason: EndReason, text: str = "") -> Ended:
        return Ended(reason=reason, message=self._last, text=text)

    async def events(self, turn: Turn) -> AsyncGenerator[AgentEvent, None]:
        async with aclosing(self._settle(turn)) as settled:
            async for event in settled:
                yield event
        limits = self._agent.limits
        for number in range(1, limits.rounds + 1):
            window = await turn.window()
            if window is None:
                yield self.ended("done")
                return
            async with aclosing(self._ask(turn, window, number)) as asked:
                async for event in asked:
                    yield event
            if limits.tokens is not None and self._spent >= limits.tokens:
                yield self.ended("tokens", f"{self._spent:,} of {limits.tokens:,} tokens are spent")
                return
            results = list[ToolCallResult]()
            async with aclosing(self._use_tools(turn, self._calls)) as used:
                async for event in used:
                    if isinstance(event, ToolFinished):
                        results.append(event.result)
                    yield event
            if self._repeats(results):
                yield self.ended("repeated", f"the same calls gave the same results {limits.repeats} times")
                return
        yield self.ended("rounds", f"the limit of {limits.rounds} requests is reached")

    async def _settle(self, turn: Turn) -> AsyncGenerator[AgentEvent, None]:
        """Run the calls that an earlier process left, or answer those that may have run."""
        again = list[ToolCallRequest]()
        for call in turn.calls:
            known = self._agent.tools.get(call.name)
            if call.id in turn.uncertain and not (known and known.idempotent):
                result = ToolCallResult.of(call.id, UNCERTAIN, is_error=True)
                await turn.result(call, UNCERTAIN, is_error=True)
                yield ToolFinished(call=call, result=result)
            else:
                again.append(call)
        async with aclosing(self._use_tools(turn, again)) as used:
            async for event in used:
                yield event

    async def _ask(self, turn: Turn, window: Window, number: int) -> AsyncGenerator[AgentEvent, None]:
        """Send the request and save the reply; one that the provider finds too long is compacted once."""
        for attempt in (1, 2):
            yield RequestStarted(
                round=number, tokens=window.tokens, limit=window.limit, reused=window.reused_prefix_tokens
            )
            reply = Reply()
            try:
                async with aclosing(self._streamed(window, reply)) as deltas:
                    async for delta in deltas:
                        yield delta
                break
            except RequestTooLong:
                if attempt == 2:
                    raise
                yield Compacted(await self._agent.session.compact(self._agent.budget))
                window = await turn.window() or window
        message = self._received(reply)
        self._calls = await turn.reply(message)
        self._last = message.without_usage
        self._spent += _spent(message.usage, window)
        if self._hooks.after_reply:
            await self._hooks.after_reply(self._last)
        yield ReplySaved(message=self._last, usage=message.usage)

    async def _streamed(
        self, window: Window, reply: Reply
    ) -> AsyncGenerator[TextDelta | ReasoningDelta, None]:
        tools = self._agent.tools.specs()
        request = ModelRequest(
            messages=window.messages, tools=tools, max_output=self._agent.budget.output or None
        )
        if self._hooks.before_request:
            request = await self._hooks.before_request(request) or request
        async for event in self._agent.model.stream(request):
            reply.add(event)
            if isinstance(event, TextDelta | ReasoningDelta):
                yield event

    def _received(self, reply: Reply) -> ReceivedMessage:
        """Return the whole reply with its usage; raise `ModelFailed` if the stream broke off."""
        whole = reply.completion()
        if whole is None:
            raise ModelFailed(
                f"the answer of {self._agent.model.name} was interrupted; resume the run to ask again",
                partial=reply.message(),
            )
        usage = None
        if told := whole.usage:
            details = {**told.details, "reason": whole.reason}
            name = told.model or self._agent.model.name
            usage = Usage(
                input=told.input, output=told.output, cached=told.cached, model=name, details=details
            )
        fields = {name: getattr(whole.message, name) for name in Message.__struct_fields__}
        return ReceivedMessage(**fields, usage=usage)

    async def _use_tools(
        self, turn: Turn, calls: Sequence[ToolCallRequest]
    ) -> AsyncGenerator[AgentEvent, None]:
        """Run calls side by side, and save each result as it finishes."""
        if not calls:
            return
        tools = self._agent.tools
        by_id = {call.id: call for call in calls}
        risky = [call for call in calls if not ((known := tools.get(call.name)) and known.idempotent)]
        await turn.started(risky)
        for call in calls:
            yield ToolStarted(call)
        ready = dict[CallId, ToolCallResult]()
        if self._hooks.before_tool:
            given = [await self._hooks.before_tool(call) for call in calls]
            ready = {call.id: one for call, one in zip(calls, given, strict=True) if one is not None}
        left = [call for call in calls if call.id not in ready]
        for id, result in ready.items():
            yield await self._save(turn, by_id[id], result)
        async with aclosing(tools.run(left, session=self._agent.session)) as results:
            async for result in results:
                yield await self._save(turn, by_id[result.tool_call_id], result)

    async def _save(self, turn: Turn, call: ToolCallRequest, result: ToolCallResult) -> ToolFinished:
        if self._hooks.after_tool:
            result = await self._hooks.after_tool(call, result) or result
        await turn.result(call, result.result, is_error=result.is_error)
        return ToolFinished(call=call, result=result)

    def _repeats(self, results: Sequence[ToolCallResult]) -> bool:
        """Return True if the last rounds made the same calls and got the same results."""
        calls = [(call.name, repr(call.args)) for call in self._calls]
        said = sorted((repr(one.result), one.is_error) for one in results)
        self._rounds.append((tuple(calls), tuple(said)))
        last = self._rounds[-self._agent.limits.repeats :]
        return bool(calls) and len(last) == self._agent.limits.repeats and len(set(last)) == 1

    _calls: Sequence[ToolCallRequest] = ()


def _spent(usage: Usage | None, window: Window) -> int:
    return usage.input + usage.output if usage else window.tokens
