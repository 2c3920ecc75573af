"""The slash commands: a table of all of them; the functions are in one module per group.

A command is an async function of the chat and the rest of the line. Its docstring is its help: ``/help``
lists the first sentence, ``/help NAME`` shows all of it. If it is used wrongly it raises `WrongUsage`, and
the correct usage is shown.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from ...errors import InputError
from . import checkpoints, conversation, equipment, sessions
from .usage import WrongUsage, nothing

if TYPE_CHECKING:
    from ..chat import Chat

__all__ = ["COMMANDS", "Command", "WrongUsage", "run"]


class Command(Struct, frozen=True):
    """A command: its name, what may follow it, and the function that runs it."""

    name: str
    arguments: str
    function: Callable[[Chat, str], Awaitable[None]]
    words: tuple[str, ...] = ()
    """First words that completion offers."""

    @property
    def help(self) -> str:
        """The full help text."""
        return inspect.cleandoc(self.function.__doc__ or "")

    @property
    def usage(self) -> str:
        """The syntax of the command."""
        return f"/{self.name} {self.arguments}".rstrip()


async def show_help(chat: Chat, rest: str) -> None:
    """List the commands, or explain one."""
    if rest:
        found = _named(rest.removeprefix("/"))
        await chat.view.output(f"{found.usage}\n\n{found.help}")
        return
    width = max(map(len, COMMANDS))
    lines = [f"/{one.name:{width}}  {one.help.split('. ')[0].splitlines()[0]}" for one in COMMANDS.values()]
    keys = (
        "Enter sends, Alt-Enter begins a new line, Ctrl-C stops the turn (twice leaves), Esc Esc goes back."
    )
    await chat.view.output(
        "\n".join(
            [
                *lines,
                "",
                "/help COMMAND shows what may follow it.",
                keys,
                "@PATH in a message attaches a file.",
            ]
        )
    )


async def leave(chat: Chat, rest: str) -> None:
    """Leave the chat; everything is saved, and `turnstate chat --continue` goes on."""
    nothing(rest)
    chat.leaving = True


_ALL = (
    Command("help", "[COMMAND]", show_help),
    Command("compact", "[FOCUS | preview | undo]", conversation.compact, ("preview", "undo")),
    Command("reset", "", conversation.reset),
    Command("clear", "", conversation.clear),
    Command(
        "tangent",
        "[enter | leave | tail | summary | list | reopen N]",
        conversation.tangent,
        ("enter", "leave", "tail", "summary", "list", "reopen"),
    ),
    Command(
        "checkpoint",
        "[list | save [TEXT] | diff LABEL [LABEL] | restore LABEL [--hard] | undo]",
        checkpoints.checkpoint,
        ("list", "save", "diff", "restore", "undo"),
    ),
    Command("context", "[add PATH | remove PATH | files]", equipment.context, ("add", "remove", "files")),
    Command("tools", "", equipment.tools),
    Command("mcp", "", equipment.mcp),
    Command("model", "[NAME]", equipment.model),
    Command("agent", "[NAME]", equipment.agent),
    Command("usage", "", equipment.usage),
    Command("save", "FILE [--amazon-q] [--force]", sessions.save),
    Command("load", "FILE", sessions.load),
    Command("sessions", "[WORDS]", sessions.list_sessions),
    Command("resume", "[ID]", sessions.resume),
    Command("new", "", sessions.new),
    Command("history", "[N]", conversation.history),
    Command("search", "WORDS", conversation.search),
    Command(
        "memory",
        "[list | search WORDS | add TEXT | forget NUMBER]",
        equipment.memory,
        ("list", "search", "add", "forget"),
    ),
    Command("snapshot", "", sessions.snapshot),
    Command("undo", "", conversation.undo),
    Command("back", "[N]", conversation.back),
    Command("fork", "[NAME]", conversation.fork),
    Command("tree", "", conversation.tree),
    Command("export", "FILE", sessions.export),
    Command("takeover", "", sessions.take_over),
    Command("quit", "", leave),
)
COMMANDS = {one.name: one for one in _ALL}
"""Every command, in the order of the help."""


async def run(chat: Chat, line: str) -> None:
    """Run a line that begins with a slash; raise `InputError` for an unknown command or wrong usage."""
    name, _, rest = line.removeprefix("/").partition(" ")
    command = _named(name)
    try:
        await command.function(chat, rest.strip())
    except WrongUsage as wrong:
        reason = f"{wrong}; " if str(wrong) else ""
        raise InputError(f"{reason}usage: {command.usage}") from None


def _named(name: str) -> Command:
    if name in COMMANDS:
        return COMMANDS[name]
    begun = [one for one in COMMANDS if one.startswith(name)] if name else []
    if len(begun) == 1:
        return COMMANDS[begun[0]]
    near = begun or difflib.get_close_matches(name, COMMANDS, n=3)
    hint = f"did you mean {' or '.join('/' + one for one in near)}?" if near else "/help lists them"
    raise InputError(f"there is no command /{name:.40}; {hint}")
