"""A picture of a conversation: all that is seen of it, as bytes, to be compared with a later one.

It is taken from the store through a handle of its own, so nothing that somebody still has in memory
can make two pictures alike.
"""

from __future__ import annotations

import hashlib

import msgspec

from .. import codec
from ..conversation import fields
from ..message import Message
from ..session import SessionManager
from .demo_script import BUDGET, SESSION

__all__ = ["Picture", "fingerprint", "taken"]


class Picture(msgspec.Struct, frozen=True):
    """The messages of a conversation, its state, and the request that would come next."""

    messages: tuple[bytes, ...]
    state: bytes
    request: tuple[bytes, ...]


async def taken(sessions: SessionManager) -> Picture:
    """Take a picture of the conversation as the store has it now."""
    session = await sessions.open(SESSION)
    window = await session.preview(BUDGET)
    return Picture(
        messages=tuple(map(codec.encode, await session.messages())),
        state=msgspec.json.encode(fields(await session.conversation()), order="sorted"),
        request=tuple(map(codec.encode, window.messages)),
    )


def fingerprint(message: Message) -> str:
    """Give a short text that no other message has."""
    return hashlib.sha256(codec.encode(message)).hexdigest()
