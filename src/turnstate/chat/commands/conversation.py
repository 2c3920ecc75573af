"""Commands for the conversation itself: compact, clear, go back, fork, tangents, search and undo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...context.cut import Compaction
from ...conversation import KeptTangent
from ...log.path import Damage, WatchedLog
from ...message import Message
from ...plain_text import counted, first_words, harmless
from ...report import read_tree
from ...stores.values import Address
from ...terminal.screen import styled
from ...terminal.session_text import entry_text, tree_lines
from ...terminal.times import ago
from ..view import Choice
from .usage import WrongUsage, nothing, typed_number

if TYPE_CHECKING:
    from ..chat import Chat

SHOWN_SUMMARY_LINES = 14
SHOWN_MESSAGES = 10
"""Messages that /history shows by default."""
MAX_HITS = 20
MAX_BACK = 30
"""Messages of the user that /back lists."""


async def compact(chat: Chat, rest: str) -> None:
    """Replace older exchanges with a summary, after a preview. FOCUS says what the summary is about.

    `/compact preview` only shows what would be replaced; `/compact undo` brings it back. Nothing is deleted:
    `/history` and `/search` still find what was replaced.
    """
    if rest == "undo":
        await _undo_compaction(chat)
        return
    preview = await chat.session.preview_compact(chat.budget)
    await chat.view.output(_described(preview, "would be replaced"))
    if rest == "preview":
        return
    chat.check_writable()
    if chat.view.interactive:
        choices = [Choice("y", "compact"), Choice("n", "leave it")]
        if await chat.view.choose("Compact the conversation?", choices) != "y":
            return
    done = await chat.session.compact(chat.budget, focus=rest or None)
    by = "the model's summary" if done.source == "model" else "a digest"
    if done.refused:
        await chat.view.notice(f"the model's summary was not used: {done.refused}")
    await chat.view.output(_described(done, f"replaced by {by}"))
    await chat.view.notice("/compact undo takes it back")


async def _undo_compaction(chat: Chat) -> None:
    chat.check_writable()
    await chat.session.undo(only="compact")
    await chat.view.notice("the compaction is undone")


def _described(done: Compaction, how: str) -> str:
    lines = harmless(done.summary).splitlines()
    more = f"\n  … and {counted(len(lines) - SHOWN_SUMMARY_LINES, 'line')} more"
    shown = "\n".join(f"  {line}" for line in lines[:SHOWN_SUMMARY_LINES])
    title = f"{counted(done.messages, 'message')} {how}: {done.tokens_before:,} → "
    text = f"{title}{done.tokens_after:,} tokens\n{styled(shown, dim=True)}"
    return text + (more if len(lines) > SHOWN_SUMMARY_LINES else "")


async def reset(chat: Chat, rest: str) -> None:
    """End this conversation and begin the next under the same id. The old one goes to long-term memory."""
    nothing(rest)
    chat.check_writable()
    if chat.view.interactive:
        choices = [Choice("y", "begin the next"), Choice("n", "stay")]
        if await chat.view.choose("End this conversation and begin the next?", choices) != "y":
            return
    await chat.enter(await chat.session.reset(), take_over=True)
    await chat.view.notice("a new conversation begins")


async def clear(chat: Chat, rest: str) -> None:
    """Start from an empty window. What was said stays in the log, and `/undo` brings it back."""
    nothing(rest)
    chat.check_writable()
    await chat.session.clear()
    await chat.view.notice("the window is empty; /undo brings the conversation back")


async def undo(chat: Chat, rest: str) -> None:
    """Undo the newest operation: a compaction, clear, fork, rewind, tangent or restore. Files stay."""
    nothing(rest)
    chat.check_writable()
    await chat.view.notice(f"undone: {await chat.session.undo()}")


async def fork(chat: Chat, rest: str) -> None:
    """Continue on a new branch from here; `/undo` goes back, `/tree` shows both."""
    chat.check_writable()
    branch = await chat.session.fork(name=rest)
    await chat.view.notice(f"on branch {branch.id}{f' ({branch.name})' if branch.name else ''}")


async def back(chat: Chat, rest: str) -> None:
    """Go back to before an earlier message of yours, the Nth from the end, to say it differently.

    Without N, the messages are listed. On a terminal, Esc Esc does the same and puts the message into the
    prompt. What came after it stays in the log, and `/undo` returns.
    """
    said = await spoken(chat)
    if not rest:
        lines = [f"{number:>3}  {harmless(first_words(one.text, 90))}" for number, one in enumerate(said, 1)]
        await chat.view.output("\n".join(lines) or "nothing was said yet")
        if lines:
            await chat.view.notice("/back N goes back to before the message with that number")
        return
    place = typed_number(rest)
    if place is None or not 1 <= place <= len(said):
        raise WrongUsage(f"there are {counted(len(said), 'message')} to go back to" if said else "")
    chat.check_writable()
    message = said[place - 1]
    await chat.go_back(message)
    chat.view.suggest(message.text)
    await chat.view.notice("back before that message; /undo returns")


async def spoken(chat: Chat) -> list[Message]:
    """Return the user's last messages on the current path, newest first."""
    messages = await chat.session.messages(last=40 * MAX_BACK)
    return [one for one in reversed(messages) if one.role == "user" and not one.kind][:MAX_BACK]


async def history(chat: Chat, rest: str) -> None:
    """Show the last N messages, 10 by default, also those that the window no longer shows."""
    last = typed_number(rest) if rest else SHOWN_MESSAGES
    if not last:
        raise WrongUsage("N is a number of messages")
    messages = await chat.session.messages(last=last)
    text = "\n\n".join(entry_text(str(one.id), one) for one in messages)
    await chat.view.output(text or "nothing was said yet")


async def search(chat: Chat, rest: str) -> None:
    """Find messages of this session that contain all the words, the newest first."""
    if not rest:
        raise WrongUsage
    lines = list[str]()
    async for hit in chat.sessions.search(rest, session=chat.session.id, limit=MAX_HITS):
        text = hit.message.text or " ".join(str(one.result) for one in hit.message.tool_results)
        lines.append(f"{hit.seq:>6,}  {hit.message.role:9}  {harmless(first_words(text, 90))}")
    await chat.view.output("\n".join(lines) or "nothing found")


async def tree(chat: Chat, rest: str) -> None:
    """Show the branches of this session: forks, tangents and restores, with cuts and checkpoints."""
    nothing(rest)
    row = await chat.sessions.store.get(Address(chat.sessions.tenant, chat.session.id))
    found = await read_tree(WatchedLog(chat.sessions.store, Damage()), row)
    await chat.view.output("\n".join(tree_lines(found)))


async def tangent(chat: Chat, rest: str) -> None:
    """Enter a side conversation, or leave it. What is said in a tangent is not part of the main conversation.

    `/tangent` enters one, or leaves it; `/tangent enter` nests another. `/tangent leave` returns
    as if nothing had been said, `/tangent tail` keeps the last question and answer, `/tangent summary`
    a summary of all of it. `/tangent list` shows the tangents that were left, and `/tangent reopen N`
    continues one.
    """
    word, _, more = rest.partition(" ")
    if word == "list":
        await chat.view.output(_kept_tangents(await chat.session.tangents()))
        return
    chat.check_writable()
    inside = await chat.in_tangent()
    match word:
        case "reopen":
            kept = await chat.session.tangents()
            place = typed_number(more.strip())
            if place is None or not 1 <= place <= len(kept):
                raise WrongUsage(f"there are {counted(len(kept), 'tangent')} to reopen")
            await chat.session.reopen_tangent(kept[place - 1].name)
            said = "back in the tangent; /tangent leaves it"
        case "" | "enter" if not inside or word:
            await chat.session.begin_tangent()
            said = "in a tangent; /tangent leaves it, /tangent tail or summary brings something back"
        case "" | "leave" | "tail" | "summary" if inside:
            said = await _left_tangent(chat, word)
        case "leave" | "tail" | "summary":
            raise WrongUsage("there is no tangent to leave")
        case _:
            raise WrongUsage
    await chat.view.notice(said)


async def _left_tangent(chat: Chat, how: str) -> str:
    match how:
        case "tail":
            await chat.session.leave_tangent("tail")
            said = "the last exchange came along"
        case "summary":
            await chat.session.leave_tangent("summary")
            said = "a summary of it came along"
        case _:
            await chat.session.leave_tangent()
            said = "it stays in the log"
    place = "in the tangent around it" if await chat.in_tangent() else "in the main conversation"
    return f"back {place}; {said}"


def _kept_tangents(kept: Sequence[KeptTangent]) -> str:
    rows = [
        f"{number:>3}  {ago(one.started):14}  {harmless(first_words(one.opening, 80))}"
        for number, one in enumerate(kept, 1)
    ]
    return "\n".join(rows) or "no tangent was left yet"
