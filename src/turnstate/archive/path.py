"""The head's path of a session, as a conversation: for people, and for the formats of providers."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct

from ..context.budget import Budget
from ..context.head import Head
from ..context.manager import StateManager
from ..context.policy import Policy, Reduction
from ..context.rounds import answered
from ..context.window import Window
from ..entry import Bootstrap, Prompt
from ..message import Message
from ..session.loading import entry_of, path_to, shown_of
from ..stores.port import Log
from ..stores.values import Row, SessionRow, Span

__all__ = ["Conversation", "conversation", "rows_of"]

PAGE = 1_000
_WHOLE = 1 << 62  # tokens of an output that is shown whole: any


class Conversation(Struct, frozen=True):
    """The messages from the root to the head, with what stands before them."""

    head: Head
    messages: list[Message]
    tokens: list[int]
    counter: str

    @property
    def told(self) -> list[Message]:
        """Prompt, bootstrap and messages, as they stand in the log; calls left behind are answered."""
        return [*(message for _, message in self.head.system_messages()), *answered(self.messages)]

    def sound(self) -> list[Message]:
        """Return the messages such that every provider takes them: nothing left out, calls answered."""
        return list(self.window().messages)

    def window(self) -> Window:
        """Return the window that holds all of them, with a report of what had to be repaired."""
        policy = Policy(reduction=Reduction(soft_tokens=_WHOLE, hard_tokens=_WHOLE, share=1.0))
        manager, budget = StateManager(self.counter, policy), Budget.UNLIMITED
        counts = list(zip(self.messages, self.tokens, strict=True))
        tally = manager.tally(self.messages, budget, counts=counts)
        return manager.window(tally, budget, head=self.head)


async def conversation(log: Log, row: SessionRow) -> Conversation:
    """Read the conversation that a session has at its head."""
    prompt, bootstrap = None, None
    messages, tokens = list[Message](), list[int]()
    async for one in rows_of(log, row):
        if message := shown_of(one):
            messages.append(message)
            tokens.append(one.tokens)
            continue
        entry = entry_of(one)
        prompt = entry.text if isinstance(entry, Prompt) else prompt
        bootstrap = entry.text if isinstance(entry, Bootstrap) else bootstrap
    return Conversation(Head(system=prompt, bootstrap=bootstrap), messages, tokens, row.counter)


async def rows_of(log: Log, row: SessionRow) -> AsyncIterator[Row]:
    """Walk the path from the root to the head, page by page."""
    for span in reversed(await path_to(log, row.address, row.head)):
        first = span.first
        while first <= span.last:
            rows = await log.read(row.address, Span(span.branch, first, span.last), limit=PAGE)
            for one in rows:
                yield one
            first = rows[-1].seq + 1 if rows else span.last + 1
