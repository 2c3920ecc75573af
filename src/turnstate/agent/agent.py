"""The agent: ask the model, save its reply, run its tools, save their results, until it is done.

    async for event in Agent(model=model, session=session, tools=[…]).run("Why is the build red?"):
        …

Every step is durable before the next begins, so a run can end at any moment, by cancellation or with the
process, and leaves a valid history. `resume` continues from there: a call that was not started is run; one
that was started is run again only if its tool is idempotent. Otherwise it gets an error result that says
that it may have run, so a tool that is not idempotent runs at most once.

A reply is saved when it is complete. If the model's stream breaks off, nothing of it is saved, the prompt
stays pending, and `resume` asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any

from .. import telemetry, wire_text
from ..catalog import named
from ..checkpoints import CheckpointManager
from ..context.policy import Budget
from ..context.window import Window
from ..entry import UNCERTAIN, Usage
from ..errors import ReplyInterrupted, RequestTooLong, SessionError, TooManyTools
from ..ids import CallId
from ..message import Message, ToolCallRequest, ToolCallResult
from ..models import Model, ModelRequest, ReasoningDelta, Reply, Retried, TextDelta
from ..session import Session, Turn
from ..sticky import ContextManager
from ..tokens import counter
from ..tools import Tool, ToolManager
from ..tools.manager import malformed
from ..value import check_kind
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
from .limits import Limits, Spending
from .tracked_files import AgentFiles


class Agent:
    """Runs turns of one session with one model.

    With ``checkpoints``, which must belong to this session and to the tools' workspace, files and
    conversation can be restored together to the point after any tool or turn that changed files.
    """

    def __init__(
        self,
        *,
        model: Model,
        session: Session,
        tools: ToolManager | Iterable[Tool | Callable[..., Any]] = (),
        budget: Budget | None = None,
        limits: Limits | None = None,
        hooks: Hooks | None = None,
        checkpoints: CheckpointManager | None = None,
        context: ContextManager | None = None,
    ) -> None:
        check_kind("Agent(session)", session, Session)
        self.model, self.session = model, session
        self.tools = tools if isinstance(tools, ToolManager) else ToolManager(tools)
        self.budget = budget or Budget.of(named(model.name))
        self.limits, self.hooks = limits or Limits(), hooks or Hooks()
        self._files = AgentFiles(session, self.tools, checkpoints)
        self.context = context

    def run(self, words: str | Message, *, key: str | None = None) -> AsyncGenerator[AgentEvent, None]:
        """Answer the user's words; the last event is `Ended`."""
        return self._run(words, key)

    def resume(self) -> AsyncGenerator[AgentEvent, None]:
        """Continue an interrupted run; if nothing is left to do, only `Ended` is yielded."""
        return self._run(None, None)

    async def _run(self, words: str | Message | None, key: str | None) -> AsyncGenerator[AgentEvent, None]:
        run, sticky = _Run(self), await self._sticky()
        turn = self.session.turn(words, budget=self.budget, tools=self.tools.specs(), context=sticky, key=key)
        try:
            async with turn:
                await self._files.begin()
                try:
                    async with aclosing(run.events(turn)) as events:
                        async for event in events:
                            yield event
                except Stop as stop:
                    yield run.ended("stopped", str(stop))
        except Exception as error:
            run.span.fail(type(error).__name__)
            raise
        finally:
            run.span.end()

    async def _sticky(self) -> str | None:
        """Return the text of the sticky files; it stays the same for a whole turn."""
        if self.context is None:
            return None
        gathered = await asyncio.to_thread(self.context.gather, counter(named(self.model.name).counter))
        return gathered.text


class _Run:
    """One run of an agent: its spending and its last reply."""

    def __init__(self, agent: Agent) -> None:
        self._agent, self._hooks, self._files = agent, agent.hooks, agent._files
        self._last: Message | None = None
        self._spending = Spending(agent.limits)
        named = {"gen_ai.conversation.id": agent.session.id, "gen_ai.request.model": agent.model.name}
        self.span = telemetry.started("invoke_agent", "", named)
        self._tool_spans = dict[CallId, telemetry.TracedSpan]()

    def ended(self, reason: EndReason, text: str = "") -> Ended:
        self.span.set({"turnstate.end": reason})
        return Ended(reason=reason, message=self._last, text=text)

    def _finished(self, turn: Turn) -> Ended:
        match turn.ended_early:
            case "refusal":
                return self.ended("refusal", "the model refused to answer")
            case "length":
                return self.ended("length", "the answer was cut off at the token limit")
            case _:
                return self.ended("done")

    async def events(self, turn: Turn) -> AsyncGenerator[AgentEvent, None]:
        async with aclosing(self._settle(turn)) as settled:
            async for event in settled:
                yield event
        limits = self._agent.limits
        for number in range(1, limits.rounds + 1):
            window = await self._window(turn)
            if window is None:
                self._last = self._last or turn.answer  # a run under a key that was seen before asks nothing
                if kept := await self._files.turn_finished():
                    yield kept
                yield self._finished(turn)
                return
            async with aclosing(self._ask(turn, window, number)) as asked:
                async for event in asked:
                    yield event
            if reached := self._spending.exhausted():
                yield self.ended(*reached)
                return
            results = list[ToolCallResult]()
            async with aclosing(self._use_tools(turn, self._calls)) as used:
                async for event in used:
                    if isinstance(event, ToolFinished):
                        results.append(event.result)
                    yield event
            if self._spending.repeats(self._calls, results):
                yield self.ended("repeated", f"the same calls gave the same results {limits.repeats} times")
                return
        yield self.ended("rounds", f"the limit of {limits.rounds} requests is reached")

    async def _window(self, turn: Turn) -> Window | None:
        """Return the window to send now, with the current tools."""
        return await turn.window(model=self._agent.model.name, tools=await self._agent.tools.refresh())

    async def _settle(self, turn: Turn) -> AsyncGenerator[AgentEvent, None]:
        """Run the calls that an interrupted run left open; those that may have run get an error result."""
        if kept := await self._files.resumed():
            yield kept
        again = list[ToolCallRequest]()
        for call in turn.calls:
            known = self._agent.tools.get(call.name)
            if call.id in turn.uncertain and not (known and known.idempotent):
                result = ToolCallResult.of(call.id, UNCERTAIN, is_error=True)
                await turn.result(call, UNCERTAIN, is_error=True)
                yield ToolFinished(call=call, result=result)
                if kept := await self._files.tool_finished(call):
                    yield kept
            else:
                again.append(call)
        async with aclosing(self._use_tools(turn, again)) as used:
            async for event in used:
                yield event

    async def _ask(self, turn: Turn, window: Window, number: int) -> AsyncGenerator[AgentEvent, None]:
        """Send the request and save the reply; if the provider finds it too long, compact and retry once."""
        for attempt in (1, 2):
            if cut := window.pending_cut:
                told = {"turnstate.messages": len(cut.evicted), "turnstate.tokens": window.tokens}
                self.span.event("turnstate.cut", told)
            yield RequestStarted(
                round=number, tokens=window.tokens, limit=window.limit, reused=window.reused_prefix_tokens
            )
            reply = Reply()
            try:
                async with aclosing(self._streamed(window, reply)) as deltas:
                    async for delta in deltas:
                        yield delta
                break
            except RequestTooLong as error:
                if attempt == 2:
                    raise
                try:
                    with self.span.current():
                        outcome = await self._agent.session.compact(turn.budget)
                except SessionError as refused:
                    if type(refused) is not SessionError:  # another writer, a lost lease, an ended epoch
                        raise
                    raise error from refused  # there is nothing to compact
                yield Compacted(outcome)
                window = await self._window(turn) or window
        message, usage = self._received(reply)
        reason = reply.reason or "stop"
        self._spending.replied(usage, window)
        stopped: Stop | None = None
        if self._hooks.after_reply:
            try:
                message = await self._hooks.after_reply(message) or message
            except Stop as stop:  # the reply is saved anyway
                stopped = stop
        ended = Usage(model=self._agent.model.name, details={"reason": reason})
        # A later run must know that a reply ended early, whether or not its tokens were reported.
        self._calls = await turn.reply(message, usage=usage or (ended if ended.ended_early else None))
        self._last = message
        yield ReplySaved(message=message, reason=reason, usage=usage)
        if stopped:
            raise stopped

    async def _streamed(
        self, window: Window, reply: Reply
    ) -> AsyncGenerator[TextDelta | ReasoningDelta | Retried, None]:
        tools = self._agent.tools.specs()
        request = ModelRequest(
            messages=window.messages,
            tools=tools,
            max_output=self._agent.budget.max_output,
            cache_key=self._agent.session.cache_key,
        )
        if self._hooks.before_request:
            request = await self._hooks.before_request(request) or request
        stream = self._agent.model.stream(request)
        try:
            while True:
                with self.span.current():
                    event = await anext(stream, None)
                if event is None:
                    return
                reply.add(event)
                if isinstance(event, TextDelta | ReasoningDelta | Retried):
                    yield event
        except TooManyTools as error:
            raise TooManyTools(
                f"{error}: {self._agent.tools.counts()}; select some with tools = […] in [mcp.NAME], or in "
                "the agent's file"
            ) from None
        finally:
            if isinstance(stream, AsyncGenerator):  # an abandoned run releases its connection
                await stream.aclose()

    def _received(self, reply: Reply) -> tuple[Message, Usage | None]:
        """Return the whole reply and its usage; raise `ReplyInterrupted` if the stream broke off."""
        whole = reply.completion()
        if whole is None:
            raise ReplyInterrupted(
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
        return whole.message, usage

    async def _use_tools(
        self, turn: Turn, calls: Sequence[ToolCallRequest]
    ) -> AsyncGenerator[AgentEvent, None]:
        """Run calls concurrently and save each result as it arrives."""
        if not calls:
            return
        by_id = {call.id: call for call in calls}
        ready = dict[CallId, ToolCallResult]()
        for call in calls:  # before any call starts, since a hook may stop the run
            given = malformed(call) or _cut_off(turn, call)
            if given is None and self._hooks.before_tool:
                given = await self._hooks.before_tool(call)
            if given is not None:
                ready[call.id] = given
        left = [call for call in calls if call.id not in ready]
        for call in calls:
            self._begin_span(call)
            yield ToolStarted(call)
        for id, result in ready.items():
            yield await self._save(turn, by_id[id], result)
        running = self._agent.tools.run(
            left,
            session=self._agent.session,
            tracking=self._files.tracking,
            starting=lambda call: turn.started([call]),
        )
        async with aclosing(running) as results:
            async for result in results:
                call = by_id[result.tool_call_id]
                yield await self._save(turn, call, result)
                if kept := await self._files.tool_finished(call):
                    yield kept

    async def _save(self, turn: Turn, call: ToolCallRequest, result: ToolCallResult) -> ToolFinished:
        if self._hooks.after_tool:
            result = await self._hooks.after_tool(call, result) or result
        await self._files.record()
        await turn.result(call, result.result, is_error=result.is_error)
        self._end_span(result)
        return ToolFinished(call=call, result=result)

    def _begin_span(self, call: ToolCallRequest) -> None:
        attributes = {
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
        }
        if telemetry.captures_content():
            attributes["gen_ai.tool.call.arguments"] = wire_text.args_text(call)
        with self.span.current():
            self._tool_spans[call.id] = telemetry.started("execute_tool", call.name, attributes)

    def _end_span(self, result: ToolCallResult) -> None:
        span = self._tool_spans.pop(result.tool_call_id, None)
        if span is None:
            return
        if result.is_error:
            span.fail("tool_error")
        if telemetry.captures_content():
            span.set({"gen_ai.tool.call.result": wire_text.result_text(result.result)})
        span.end()

    _calls: Sequence[ToolCallRequest] = ()


def _cut_off(turn: Turn, call: ToolCallRequest) -> ToolCallResult | None:
    """Return the result of the last call of a reply that was cut off, whose arguments may be incomplete.

    They may be an object all the same: some providers send what they have so far as one.
    """
    if call.id != turn.cut_off:
        return None
    text = f"the reply was cut off at the token limit, perhaps within this call; {call.name} was not run"
    return ToolCallResult.of(call.id, text, is_error=True)
