"""Built-in tools for what the window does not show: stored outputs, earlier messages, and long-term memory.

Of a long output, the model sees only the beginning and the end; old outputs are hidden. Both show the id of
the whole output in the log. `read_output` reads it by lines. `search_conversation` searches everything that
was said in the session. `recall`, `remember`, `correct` and `forget` use the user's long-term
memory, across sessions; what changes it needs approval.
"""

from __future__ import annotations

import asyncio

from ..context import text as text_lines
from ..context.reduction import full_range, output_id, output_texts
from ..errors import InputError, NotFound
from ..memory.port import Recollection
from ..message import Message
from ..search_terms import query as terms_of
from ..search_terms import searchable, snippet
from ..session import SearchResult, Session
from .definition import BUILTIN, Tool, ToolContext, tool

MAX_HITS = 20
LINES = 90
"""Lines of an output that are returned by default: few enough not to be shortened again."""

EXCERPT = 240
"""Characters of a hit that a search shows."""

MAX_RECOLLECTION = 1_200
"""Characters of one memory that are shown; its message has the rest."""


def _session(context: ToolContext) -> Session:
    if context.session is None:
        raise InputError("there is no session; this tool reads what a session stored")
    return context.session


@tool(origin=BUILTIN, idempotent=True)
async def read_output(id: str, context: ToolContext, first_line: int = 1, lines: int = LINES) -> str:
    """Read a tool output that was shortened or hidden.

    Args:
        id: The id in the line [Full output: …].
        first_line: The first line to return, counted from 1.
        lines: How many lines to return.
    """
    message_id, _, call = id.partition("/")
    try:
        message = (await _session(context).entry(message_id)).entry
    except NotFound:
        message = None
    results = message.tool_results if isinstance(message, Message) else ()
    found = [one for one in results if not call or one.tool_call_id == call]
    if not found or not isinstance(message, Message):
        raise InputError(f"{id!r:.120} is not the id of a tool output; copy it from [Full output: …]")
    if len(found) > 1:
        ids = ", ".join(output_id(message, one) for one in found)
        raise InputError(f"{id!r:.120} has {len(found)} outputs; ask for one of them: {ids:.1000}")
    return await asyncio.to_thread(_lines, found[0].result, max(1, first_line), max(1, lines))


def _lines(output: object, first: int, count: int) -> str:
    text = "\n".join(output_texts(output))
    total = text_lines.count(text)
    if first > total:
        return f"[the output has {total:,} lines]"
    last = min(total, first + count - 1)
    return f"[lines {first:,}-{last:,} of {total:,}]\n{full_range(text, first, last)}"


@tool(origin=BUILTIN, idempotent=True)
async def search_conversation(query: str, context: ToolContext) -> str:
    """Search everything that was said in this conversation, also what is no longer shown.

    Args:
        query: The words to look for; a hit contains all of them.
    """
    session, terms = _session(context), terms_of(query)
    hits = [_hit(found, terms) async for found in session.search(query, limit=MAX_HITS)]
    return "\n".join(hits) or "[no hit]"


def _hit(found: SearchResult, terms: list[str]) -> str:
    message = found.message
    shown = snippet("\n".join(searchable(message)), terms, EXCERPT)
    role = "tool output" if message.role == "tool" else message.role
    return f"{message.id} {message.timestamp} {role}: {shown}"


@tool(origin=BUILTIN, idempotent=True)
async def recall(query: str, context: ToolContext, hits: int = 6) -> str:
    """Search what is remembered of the user from all conversations.

    Args:
        query: A question, or the words to look for.
        hits: How many memories to return.
    """
    found = await _session(context).recall(query, min(max(1, hits), MAX_HITS))
    return "\n".join(map(_recollection, found)) or "[nothing is remembered of that]"


def _recollection(found: Recollection) -> str:
    return f"{found.timestamp[:10]} {found.role}: {found.text[:MAX_RECOLLECTION]}"


@tool(origin=BUILTIN)
async def remember(text: str, context: ToolContext) -> str:
    """Remember something about the user for later conversations.

    Args:
        text: One fact or preference, in a sentence that can be understood on its own.
    """
    await _session(context).remember(text)
    return "Remembered."


@tool(origin=BUILTIN)
async def correct(fact: str, value: str, context: ToolContext) -> str:
    """Correct something that is remembered about the user and is wrong or outdated.

    Args:
        fact: The value that is remembered, or the id of the fact.
        value: The value that is right.
    """
    changed = await _session(context).correct(fact, value)
    return f"Corrected. {changed.kind}: {changed.value}"


@tool(origin=BUILTIN)
async def forget(fact: str, context: ToolContext) -> str:
    """Delete something that is remembered about the user, for good.

    Args:
        fact: The value that is remembered, or the id of the fact.
    """
    forgotten = await _session(context).forget(fact)
    return f"Forgotten. {forgotten.kind}: {forgotten.value}"


CONVERSATION_TOOLS: tuple[Tool, ...] = (read_output, search_conversation)
"""The tools that read what a session stored."""

MEMORY_TOOLS: tuple[Tool, ...] = (recall, remember, correct, forget)
"""The tools for a user's long-term memory; they fail in a session without one."""


def session_tools(session: Session) -> tuple[Tool, ...]:
    """Return the tools that a session supports; the memory tools only if it has a memory."""
    return (*CONVERSATION_TOOLS, *(MEMORY_TOOLS if session.has_memory else ()))
