"""``turnstate chat``: talk to a model in this folder, in a session that survives a crash."""

from __future__ import annotations

import asyncio
import getpass
import sys
from collections.abc import Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ... import files
from ...config import AgentProfile, NotTrusted, Settings
from ...config.table import default_store
from ...errors import InputError, NotFound
from ...home import Home
from ...session import Session, SessionManager
from ...snapshots import Snapshots
from ...terminal import lookup, screen
from ..engine import engine_name
from ..store import EXIT_CODES, store_flags
from .config import approve

if TYPE_CHECKING:
    from ...chat import Chat
    from ...chat.terminal import TerminalView

DEFAULT_MODELS = {"anthropic": "claude-sonnet-5-5", "openai": "gpt-6.1-sol", "gemini": "gemini-3.8-flash"}
"""The model that answers if only a key is set, by the provider of the key."""

DEFAULT = "[default: environment, or turnstate.toml]"

WAYS_ON = """no model is selected. Choose one of these:
  a key        export ANTHROPIC_API_KEY=… (or OPENAI_API_KEY, GEMINI_API_KEY); turnstate chat
  an endpoint  turnstate chat --model NAME@http://localhost:11434/v1
  local        turnstate chat --model local  (a small model on this machine; `make chat` installs it)"""


@click.command("chat", epilog=EXIT_CODES)
@store_flags
@click.option("--user", metavar="NAME", help="Whose session and memory it is.  [default: your login name]")
@click.option(
    "--model", metavar="NAME", help=f"The model that answers: a name, NAME@URL, or local.  {DEFAULT}"
)
@click.option(
    "--agent", metavar="NAME", help=f"The agent that answers: one of `turnstate config agents`.  {DEFAULT}"
)
@click.option(
    "--resume",
    "resumed",
    metavar="[ID]",
    is_flag=False,
    flag_value="",
    help="Continue a session; without ID, pick one.",
)
@click.option(
    "--continue", "continued", is_flag=True, help="Continue the session that was used last in this folder."
)
@click.option(
    "--take-over", is_flag=True, help="With --resume or --continue: take over a session that is in use."
)
@click.option(
    "--allow", metavar="TOOL", multiple=True, help="Run tools of this name or pattern without asking."
)
@click.option("--lines", is_flag=True, help="In a pipe: every line is a message or a command.")
@click.option("--no-memory", is_flag=True, help="Remember nothing beyond this session.")
@click.option("--json", "as_json", is_flag=True, help="In a pipe: print events as JSON, one per line.")
def command(
    store: str | None,
    tenant: str,
    user: str | None,
    model: str | None,
    agent: str | None,
    resumed: str | None,
    continued: bool,
    take_over: bool,
    allow: tuple[str, ...],
    lines: bool,
    no_memory: bool,
    as_json: bool,
) -> int:
    """Talk to a model in this folder, in a session that survives a crash.

    The model can read files in this folder, and asks before it changes files or runs commands. Every
    message is saved before it is answered: --continue continues a chat that was killed. /help lists
    the commands: tangents, checkpoints, compaction, undo, search, memory and more.

    In a pipe, standard input is one message, or with --lines one message or command per line; the
    answer goes to standard output. Tools that would ask are refused there unless --allow names them.

    \b
    Example:
      turnstate chat
      turnstate chat --model local
      turnstate chat --resume "nightly export"
      echo "What is in README.md?" | turnstate chat --json
    """
    if resumed is not None and continued:
        raise click.UsageError("pass --resume or --continue, not both")
    interactive = screen.can_ask() and screen.on_terminal() and not as_json
    memory = "none" if no_memory else None
    flags = {"store": store, "model": model, "agent": agent, "memory": memory}
    settings, profile = _configuration(flags, ask=interactive)
    model = settings.chosen("model", profile.model) or _with_key(settings)
    is_new = resumed is None and not continued
    if model is None and is_new:  # a session that exists knows its own
        screen.flush()
        click.echo(f"turnstate: {WAYS_ON}", err=True)
        return 2
    asked = None if not (continued or resumed is not None) else resumed or ("last" if continued else "")
    return asyncio.run(
        _chat(
            settings.store,
            tenant,
            user or getpass.getuser(),
            model,
            asked,
            settings=settings,
            profile=profile,
            interactive=interactive,
            take_over=take_over,
            allow=allow,
            lines=lines,
            memory=not no_memory,
            as_json=as_json,
        )
    )


async def _chat(
    store: str,
    tenant: str,
    user: str,
    model: str | None,
    asked: str | None,
    *,
    settings: Settings,
    profile: AgentProfile,
    interactive: bool,
    take_over: bool,
    allow: tuple[str, ...],
    lines: bool,
    memory: bool,
    as_json: bool,
) -> int:
    from ...chat import Chat, ChosenModel  # deferred: help does not need it
    from ...chat.view import ChatView, JsonView, PlainView
    from ...memory.engines import endpoints

    home, workspace = Home.from_environment(), Path.cwd()
    if store == default_store():
        home.make()
    chosen = ChosenModel(model, settings) if model else None
    snapshots = Snapshots(home=home, workspace=workspace)
    view: ChatView = JsonView() if as_json else PlainView()
    if interactive:
        view = _terminal(workspace, home)
    engine = engine_name(store, settings.text("memory")) if memory else None
    async with SessionManager.open(
        store,
        tenant=tenant,
        model=chosen,
        snapshots=snapshots,
        memory=engine,
        policy=settings.policy,
        recall=settings.recall,
        home=home,
    ) as sessions:
        chat = Chat(
            sessions,
            view,
            chosen,
            user=user,
            workspace=workspace,
            allow=allow,
            settings=settings,
            snapshots=snapshots,
            home=home,
            memory_sends=endpoints(engine) if engine else {},
        )
        session = await _asked_session(sessions, asked, user, home)
        said = settings.flag("model") is not None
        start = partial(_start, chat, profile, session, take_over=take_over, said=said)
        try:
            if interactive:
                return await _on_terminal(chat, start())
            await start()
            return await _piped(chat, lines=lines)
        finally:
            await chat.close()


async def _on_terminal(chat: Chat, start: Coroutine[Any, Any, None]) -> int:
    from ...chat.terminal import TerminalView, converse  # deferred: a pipe does not need it

    assert isinstance(chat.view, TerminalView)  # noqa: S101
    await converse(chat, chat.view, start)
    if chat.is_open:  # otherwise the user declined the session, or left before it was open
        screen.say(f"saved as session {chat.session.id}; `turnstate chat --continue` goes on")
    return 0


async def _start(
    chat: Chat, profile: AgentProfile, session: Session | None, *, take_over: bool, said: bool
) -> None:
    """Start the agent in a session and finish its last turn; without a session, begin a new one."""
    await chat.use_agent(profile)
    if session is None:
        await chat.begin()
    elif await chat.enter(session, take_over=take_over, said=said):
        title = session.info.title
        await chat.view.notice(f"session {session.id}" + (f" “{title}”" if title else ""))
        await chat.resume_turn()
    else:
        chat.leaving = True


def _configuration(flags: Mapping[str, str | None], *, ask: bool) -> tuple[Settings, AgentProfile]:
    """Return the settings and the agent; if the workspace needs approval, ask for it first."""
    from ...config.assembly import chosen_agent

    folder, home = Path.cwd(), Home.from_environment()
    settings = Settings.load(folder, flags=flags)
    try:
        settings.check_trusted()
        return settings, chosen_agent(None, settings, folder, home)
    except NotTrusted:
        if not ask or approve(folder) != 0:
            raise
    return _configuration(flags, ask=False)


def _with_key(settings: Settings) -> str | None:
    """Return the default model of the first provider that has a key."""
    return next((name for key, name in DEFAULT_MODELS.items() if settings.has_key(key)), None)


async def _asked_session(
    sessions: SessionManager, asked: str | None, user: str, home: Home
) -> Session | None:
    """Return the session to continue, from the store or else from its snapshots; None for a new one."""
    if asked is None:
        return None
    if not asked:
        return await sessions.open((await lookup.chosen(sessions, None, user=user)).id, user=user)
    if asked == lookup.LAST:
        newest = await lookup.newest_in(sessions, Path.cwd(), home=home, user=user)
        return await sessions.open(newest.id, user=user)
    try:
        return await sessions.open((await lookup.session(sessions, asked, user=user)).id, user=user)
    except NotFound:
        missing = sys.exception()
        try:
            return await sessions.restore(asked, user=user)
        except NotFound:
            raise missing from None  # type: ignore[misc]


def _terminal(workspace: Path, home: Home) -> TerminalView:
    try:
        from ...chat.terminal import TerminalView
    except ImportError:
        raise InputError(
            "the chat on a terminal needs one more package: pip install 'turnstate[chat]'"
        ) from None
    history = home.make() / "chat_history"
    files.make_private(history)  # what the user types may be secret
    return TerminalView(workspace, history=history)


async def _piped(chat: Chat, *, lines: bool) -> int:
    """Answer standard input as one message or line by line; return 1 if something failed."""
    text = await asyncio.to_thread(sys.stdin.buffer.read) if not lines else b""
    try:
        if not lines:
            words = text.decode()
            if not words.strip():
                raise click.UsageError("standard input is empty; type a message into it, or use a terminal")
            await chat.handle(words)
            return int(chat.failed)
        while not chat.leaving and (line := await asyncio.to_thread(sys.stdin.buffer.readline)):
            await chat.handle(line.decode())
    except UnicodeDecodeError:
        raise InputError("standard input is not UTF-8") from None
    return int(chat.failed)
