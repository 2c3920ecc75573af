"""A tangent of the demo: aside from the conversation, with tools, and back to exactly where it was."""

from __future__ import annotations

from ..conversation import ConversationState
from ..message import Message, ToolCallRequest, ToolCallResult
from ..session import SessionManager
from . import demo_picture, demo_screen
from .demo_claims import Claims
from .demo_script import SESSION

__all__ = ["tell"]


async def tell(sessions: SessionManager, claims: Claims) -> list[Message]:
    """Go aside and come back; give what was said there."""
    before = await demo_picture.taken(sessions)
    session = await sessions.open(SESSION)
    state = await session.conversation()
    name = state.begin_tangent()
    _talk(state)
    await session.commit(state)
    said = state.messages[len(before.messages) :]
    demo_screen.line(
        f"  Aside from message {len(before.messages)}: {len(said)} messages, two tool calls among them."
    )

    state.exit_tangent_mode()
    await session.commit(state)
    claims.make(
        "Left: messages, state and next request are byte for byte what they were.",
        holds=await demo_picture.taken(sessions) == before,
    )

    again = await (await sessions.open(SESSION)).conversation()
    again.reopen_tangent(name)
    claims.make(
        f"The {len(said)} messages of the tangent are kept: it can be taken up again.",
        holds=again.messages[len(before.messages) :] == said,
    )
    return said


def _talk(state: ConversationState) -> None:
    """Ask two things that have nothing to do with the jobs."""
    disk = ToolCallRequest(name="run_command", args={"command": "df -h /var/backup"})
    calendar = ToolCallRequest(name="read_file", args={"path": "ops/calendar.md"})
    state.set_next_user_message("By the way: does the backup of Sunday still fit on the disk?")
    state.push_assistant_message(Message.assistant("I look at both.", tool_calls=[disk, calendar]))
    state.add_tool_results(
        [
            ToolCallResult(tool_call_id=calendar.id, result="Sunday: full backup, about 40 GB"),
            ToolCallResult(tool_call_id=disk.id, result="120G   71G   49G  60% /var/backup"),
        ]
    )
    state.push_assistant_message(Message.assistant("It does: 49 GB are free, and it takes about 40."))
    state.set_next_user_message("Good. Remind me on Saturday.")
    state.push_assistant_message(Message.assistant("I will."))
