"""A compaction of the demo: the user asks for a summary in the place of old exchanges, and takes it back."""

from __future__ import annotations

from .. import formats
from ..context.window import Window
from ..session import SessionManager
from . import demo_picture, demo_screen
from .demo_claims import Claims
from .demo_script import BUDGET, SESSION

__all__ = ["tell"]


async def tell(sessions: SessionManager, claims: Claims) -> None:
    """Compact the conversation, and take that back."""
    before = await demo_picture.taken(sessions)
    session = await sessions.open(SESSION)
    shown = _spoken(await session.preview(BUDGET))
    done = await session.compact(BUDGET)
    demo_screen.line(
        f"  Compacted: {done.messages} messages make room; {done.tokens_before:,} tokens "
        f"become {done.tokens_after:,}."
    )
    demo_screen.note(done.summary, margin=4)
    window = await (await sessions.open(SESSION)).preview(BUDGET)
    request = list(window.messages)
    refused = [name for name in formats.names() if (to := formats.get(name)).validate(to.render(request))]
    claims.make(
        f"The request has {window.tokens:,} tokens, and all five providers' rules take it.",
        holds=not refused
        and window.tokens == done.tokens_after < done.tokens_before
        and _spoken(window) == shown - done.messages,
    )
    await session.undo()
    claims.make(
        "Undone: messages, state and next request are byte for byte what they were.",
        holds=await demo_picture.taken(sessions) == before,
    )


def _spoken(window: Window) -> int:
    """Count the messages of a request that somebody said."""
    return sum(message.kind != "summary" for message in window.messages)
