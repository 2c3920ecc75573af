"""What the tests of a session's conversations share: a state that talks, other processes, long histories."""

from __future__ import annotations

import msgspec

from tests.unit.session.session_fixtures import Harness, answer, answers, call
from turnstate import Budget, Message, formats
from turnstate.codec import encode
from turnstate.context.window import Window
from turnstate.conversation import ConversationState, fields
from turnstate.entry import Checkpoint, Restore
from turnstate.log.operations import Operation
from turnstate.log.undo import restore
from turnstate.session import Session
from turnstate.stores.values import Record

BUDGET = Budget(20_000)


async def said(session: Session, *questions: str) -> None:
    """Append exchanges, in one write."""
    both = [(Message.user(one), Message.assistant(f"answer to {one}")) for one in questions]
    await session.append(*(message for exchange in both for message in exchange))


def spoken(state: ConversationState, *questions: str) -> None:
    """Let a conversation without a session have these exchanges."""
    for question in questions:
        state.set_next_user_message(question)
        state.push_assistant_message(Message.assistant(f"answer to {question}"))


def prompts(state: ConversationState) -> list[str | None]:
    return [entry.user.prompt for entry in state.history]


def plain(state: ConversationState) -> bytes:
    return msgspec.json.encode(fields(state))


async def elsewhere(harness: Harness, session: Session) -> Session:
    """Open the session as another process does."""
    return await (await harness.manager()).open(session.id)


async def reloaded(harness: Harness, session: Session, *, last: int | None = None) -> ConversationState:
    """Return a view of the session, as another process reads it."""
    return await (await elsewhere(harness, session)).conversation(last=last)


def validate(window: Window) -> None:
    for name in formats.names():
        provider = formats.get(name)
        request = window.messages[-1].role in ("user", "tool")
        assert provider.validate(provider.render(window.messages), request=request) == [], name


def exchanges(count: int, a_turn: int) -> list[Message]:
    """Return the messages of so many exchanges; a turn has some of them, with a call between each two."""
    found, open_call = list[Message](), None
    for number in range(count):
        told = answers(answer(open_call)) if open_call else Message.user(f"question {number}")
        open_call = call() if (number + 1) % a_turn else None
        found += [told, Message.assistant(f"{number}", tool_calls=[open_call] if open_call else [])]
    return found


def recorded(message: Message) -> Record:
    return Record(id=message.id, kind="message", body=encode(message), tokens=3)


def restored(number: int) -> Operation:
    """Return the restore of a checkpoint with this number."""
    checkpoint = Checkpoint(label="1", commit="0" * 40)
    return restore(number, checkpoint, Restore(label="1", commit=checkpoint.commit, files=False))
