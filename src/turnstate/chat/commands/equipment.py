"""Commands for everything around the conversation: the window, files, tools, model, agent, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import ids
from ...catalog import named
from ...config.profile import agents
from ...entry import Usage
from ...errors import InputError
from ...memory.builtin import BuiltinEngine
from ...memory.facts import Fact
from ...memory.port import User
from ...plain_text import counted, first_words, harmless
from ...report import read_context
from ...sticky import ContextManager
from ...stores.values import Address
from ...terminal import screen
from ...terminal.screen import table
from ...terminal.session_text import context_lines, cost_text
from .usage import WrongUsage, nothing, typed_number

if TYPE_CHECKING:
    from ..chat import Chat


async def context(chat: Chat, rest: str) -> None:
    """Show what the next request contains, what was left out and why; or change its sticky files.

    `/context add PATH` sends a file, folder or pattern with every request, `/context remove PATH` stops
    that, and `/context files` lists them.
    """
    word, _, path = rest.partition(" ")
    match word, path.strip():
        case "", "":
            row = await chat.sessions.store.get(Address(chat.sessions.tenant, chat.session.id))
            report = await read_context(chat.sessions, row, budget=chat.budget)
            await chat.view.output("\n".join(context_lines(report)))
        case "files", "":
            await _files(chat)
        case "add" | "remove", path if path:
            await _change_files(chat, word, path)
        case _:
            raise WrongUsage


async def _files(chat: Chat) -> None:
    manager = (await chat.kept_settings()).context_manager
    rows = [
        (harmless(one.path), one.owner, counted(len(one.files), "file"))
        for one in (manager.show() if manager else ())
    ]
    await chat.view.output(table(("path", "from", "now"), rows) if rows else "no sticky files")


async def _change_files(chat: Chat, word: str, path: str) -> None:
    chat.check_writable()
    state = await chat.kept_settings()
    manager = state.context_manager or ContextManager()
    manager.attach(state.os.workspace())
    if word == "add":
        manager.add(path)
    else:
        manager.remove(path)
    await chat.session.change_settings(context_manager=manager)
    await chat.view.notice(f"{path} is {'sent with every request' if word == 'add' else 'no longer sent'}")


async def tools(chat: Chat, rest: str) -> None:
    """List the tools, and whether the model may use each of them without asking."""
    nothing(rest)
    words = {"allow": "runs", "ask": "asks", "deny": "never runs"}
    rows = [
        (one.name, one.origin.key, words[chat.tools.approvals.decision(one, {})], one.spec.description or "")
        for one in chat.tools.tools
    ]
    await chat.view.output(table(("tool", "origin", "approval", "what it does"), rows))


async def mcp(chat: Chat, rest: str) -> None:
    """List the MCP servers and their tools."""
    nothing(rest)
    rows = dict[str, int]()
    for one in chat.tools.tools:
        if one.origin.kind == "mcp":
            rows[one.origin.key] = rows.get(one.origin.key, 0) + 1
    lines = [(name, counted(count, "tool")) for name, count in rows.items()]
    lines += [(name, harmless(why)) for name, why in chat.equipment.servers.failures.items()]
    shown = table(("server", "tools"), lines) if lines else "no MCP server is configured"
    await chat.view.output("\n".join([shown, *map(screen.escaped, chat.equipment.servers.notices)]))


async def model(chat: Chat, rest: str) -> None:
    """Show the model, or use another from now on: gpt-6.1-sol, claude-sonnet-5-5, NAME@URL, local.

    The session is sent to that model's endpoint from then on, also by `--continue`.
    """
    if not rest:
        ends = named(chat.model.name).ends
        until = f" · the provider ends it on {ends}" if ends else ""
        shown = f"{chat.model.name} · {chat.model.endpoint} · window {chat.budget.limit:,} tokens{until}"
        await chat.view.output(shown)
        return
    chat.check_writable()
    await chat.use_model(rest)
    info = named(chat.model.name)
    known = "" if info.known else "; it is not in the catalog, so its limits are assumed"
    await chat.view.notice(f"{chat.model.shown} answers from now on{known}")


async def agent(chat: Chat, rest: str) -> None:
    """Show the agent that answers and the others there are; or let another one answer from now on."""
    if rest:
        chat.check_writable()
        await chat.use_agent(rest)
        await chat.view.notice(f"{chat.profile.name} answers from now on")
        return
    rows = [
        ("●" if one.name == chat.profile.name else " ", one.name, one.state, harmless(one.description))
        for one in agents(chat.workspace, chat.home)
    ]
    shown = [
        f"agent: {chat.profile.name}",
        *([table(("", "agent", "state", "description"), rows)] if rows else []),
    ]
    prompt = await chat.session.system() or ""
    await chat.view.output("\n".join([*shown, f"prompt: {harmless(first_words(prompt, 200))}"]))


async def usage(chat: Chat, rest: str) -> None:
    """Show the tokens that the provider reported for this session, how many were cached, and the cost."""
    nothing(rest)
    found = [one.entry for one in await chat.session.entries(kinds=["usage"])]
    entries = [one for one in found if isinstance(one, Usage)]
    if not entries:
        await chat.view.output("the provider has reported nothing yet")
        return
    sent, cached = sum(one.input for one in entries), sum(one.cached for one in entries)
    written = sum(one.output for one in entries)
    share = f"{cached / sent:.0%}" if sent else "–"
    count = sum(one.is_of_reply for one in entries)
    replies = "1 reply" if count == 1 else f"{count:,} replies"
    if summaries := len(entries) - count:
        replies += " and 1 summary" if summaries == 1 else f" and {summaries:,} summaries"
    cost = cost_text(entries)
    await chat.view.output(
        f"{replies} · {sent:,} tokens sent, {cached:,} of them ({share}) from the cache · "
        f"{written:,} tokens written{f' · {cost}' if cost else ''}"
    )


async def memory(chat: Chat, rest: str) -> None:
    """Show, search and change what is remembered about you across sessions."""
    word, _, more = rest.partition(" ")
    more = more.strip()
    match word or "list":
        case "search" if more:
            hits = await chat.session.recall(more, 8)
            lines = [f"{hit.score:6.2f}  {hit.role:9}  {harmless(first_words(hit.text, 90))}" for hit in hits]
            await chat.view.output("\n".join(lines) or "nothing found")
        case "add" if more:
            chat.check_writable()
            await chat.session.remember(more)
            await chat.view.notice("remembered")
        case "forget" if more:
            chat.check_writable()
            facts = await _facts(chat)
            place = typed_number(more)
            if place is None or not 1 <= place <= len(facts):
                raise WrongUsage(f"there are {counted(len(facts), 'fact')} to forget")
            await _engine(chat).drop(_user(chat), facts[place - 1].id)
            await chat.view.notice("forgotten")
        case "list" if not more:
            facts = await _facts(chat)
            lines = [f"{number:>3}  {harmless(one.text)}" for number, one in enumerate(facts, 1)]
            await chat.view.output("\n".join(lines) or "nothing is remembered yet")
        case _:
            raise WrongUsage


async def _facts(chat: Chat) -> list[Fact]:
    return await _engine(chat).facts(_user(chat), as_of=ids.now())


def _engine(chat: Chat) -> BuiltinEngine:
    engine = chat.sessions.memory
    if not isinstance(engine, BuiltinEngine):
        raise InputError("this chat has no built-in memory; start it without --no-memory")
    return engine


def _user(chat: Chat) -> User:
    return User(chat.sessions.tenant, chat.user)
