"""What the tests of conversations share: agents, a tool manager, a clock that stands still, things to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from turnstate import Message, Session, SessionManager, ToolCallRequest, ToolCallResult, ToolSpec, formats
from turnstate.archive import adopt_state
from turnstate.context.cut import Strategy
from turnstate.context.window import Window
from turnstate.conversation import ConversationState, HistoryEntry, UserMessage, fields
from turnstate.conversation.tools import specs
from turnstate.sticky import Workspace
from turnstate.testing import FixedClock


class Harbor:
    """Agents, of which one is active."""

    def __init__(self, active: str = "keeper", prompt: str | None = None, paths: Sequence[str] = ()) -> None:
        self.active, self.prompt, self.context_paths = active, prompt, paths


class Toolbox:
    """A tool manager that knows definitions."""

    def __init__(self, tools: Mapping[str, Sequence[ToolSpec]]) -> None:
        self._tools = tools

    def schemas(self) -> Mapping[str, Sequence[ToolSpec]]:
        return self._tools


class Desk:
    """A system whose clock stands still, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, FixedClock()

    def now(self) -> int:
        return self.clock()

    def workspace(self) -> Workspace:
        return Workspace(root=self.folder, home=self.folder)


def tool(name: str) -> ToolSpec:
    return ToolSpec(name=name, description=f"does {name}", input_schema={"type": "object", "properties": {}})


def call(name: str = "ls", **args: Any) -> ToolCallRequest:
    return ToolCallRequest(name=name, args=args)


def result(call: ToolCallRequest, value: Any = "done", *, is_error: bool = False) -> ToolCallResult:
    return ToolCallResult(tool_call_id=call.id, result=value, is_error=is_error)


def talk(state: ConversationState, *questions: str) -> None:
    """Let the user ask, and the assistant answer each question."""
    for question in questions:
        state.set_next_user_message(question)
        state.push_assistant_message(Message.assistant(f"answer to {question}"))


def write(state: ConversationState, *messages: Message) -> None:
    """Write messages to the log as they are, with no call cancelled and no cut made."""
    for message in messages:
        state.log.add(message)


def work(state: ConversationState, question: str, *calls: ToolCallRequest) -> None:
    """Let the user ask, the assistant call tools, one after the other, and answer in the end."""
    state.set_next_user_message(question)
    for one in calls:
        state.push_assistant_message(Message.assistant(tool_calls=[one]))
        state.add_tool_results([result(one, f"{one.name} was run")])
    state.push_assistant_message(Message.assistant(f"answer to {question}"))


def prompts(state: ConversationState) -> list[str | None]:
    return [entry.user.prompt for entry in state.history]


def exchanges(count: int, *, a_turn: int = 1) -> list[Message]:
    """Return the messages of so many exchanges; a turn has some of them, with a call between each two."""
    said, open_call = list[Message](), None
    for number in range(count):
        if open_call is None:
            said.append(Message.user(f"question {number}"))
        else:
            said.append(Message.tool([result(open_call)]))
        open_call = call() if (number + 1) % a_turn else None
        calls = [open_call] if open_call else []
        said.append(Message.assistant(f"answer {number}", tool_calls=calls))
    return said


def entry_of(*messages: Message) -> HistoryEntry:
    *user, assistant = messages
    return HistoryEntry(UserMessage(tuple(user)), assistant)


def validate(window: Window, state: ConversationState | None = None) -> None:
    """Fail if a provider would refuse the window; as a request, where the user or a tool spoke last."""
    tools = specs(state.tools) if state else ()
    request = window.messages[-1].role in ("user", "tool")
    for name in formats.names():
        provider = formats.get(name)
        rendered = provider.render(window.messages, tools=tools)
        assert provider.validate(rendered, request=request) == [], name


async def stored(state: ConversationState, sessions: SessionManager) -> Session:
    """Import a state into a store, and return its session."""
    await adopt_state(sessions.store, sessions.tenant, state)
    return await sessions.open(state.conversation_id)


def spoken(*, os: Any = None) -> ConversationState:
    """Return a state with a prompt and two exchanges."""
    state = ConversationState("c", os=os)
    state.set_system("You keep a lighthouse.")
    talk(state, "one", "two")
    return state


def seen(state: ConversationState) -> bytes:
    """Return all fields and the next request as bytes."""
    return msgspec.json.encode([fields(state), state.preview().messages])


def compact(state: ConversationState, keep: int) -> None:
    plan = state.plan_compaction(Strategy(keep=keep))
    assert plan is not None
    state.compact(plan)
