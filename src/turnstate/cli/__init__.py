"""The command line: ``turnstate COMMAND``, one module in `cli.commands` per command.

To add a command, write a module that defines `command` and add one line to `COMMANDS`. `run` turns every
failure into an exit code: a Turnstate error is one line on stderr, and a reader that closed the pipe is not
an error.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

import click

from .._version import __version__
from ..errors import TurnstateError, exit_code
from ..terminal import screen
from .lazy_group import LazyCommand, LazyGroup

__all__ = ["COMMANDS", "run"]

COMMANDS = {
    "count": LazyCommand("count", "Count the tokens of conversations."),
    "validate": LazyCommand("validate", "Report what a provider would reject."),
    "convert": LazyCommand("convert", "Rewrite conversations for another provider."),
    "fit": LazyCommand("fit", "Make conversations fit a token budget and stay valid."),
    "sessions": LazyCommand("sessions", "List, describe, end and delete sessions."),
    "show": LazyCommand("show", "Show a session, a message, or a complete tool output."),
    "context": LazyCommand("context", "Show what the window of a session contains, and why."),
    "tree": LazyCommand("tree", "Show the branches of a session and what happened on them."),
    "branch": LazyCommand("branching", "List the branches of a session.", "branch"),
    "fork": LazyCommand("branching", "Continue a conversation on a new branch.", "fork"),
    "rewind": LazyCommand("branching", "Return a conversation to an earlier message.", "rewind"),
    "compact": LazyCommand("compact", "Replace old exchanges of a conversation with a summary."),
    "undo": LazyCommand("branching", "Undo the newest compaction, fork, rewind, tangent or restore.", "undo"),
    "search": LazyCommand("search", "Search the messages of all sessions."),
    "checkpoint": LazyCommand("checkpoint", "Save, compare and restore files and conversation."),
    "export": LazyCommand("export", "Write sessions to a file."),
    "import": LazyCommand("import_", "Import sessions into a store."),
    "amazon-q": LazyCommand("amazon_q", "Import from and export to the Amazon Q command line."),
    "worker": LazyCommand("worker", "Deliver messages to long-term memory."),
    "memory": LazyCommand("memory", "Show, search, change and delete what is remembered about users."),
    "config": LazyCommand("config", "Show settings and agents, and approve those of a workspace."),
    "mcp": LazyCommand("mcp", "Log in at MCP servers that use OAuth, and log out."),
    "doctor": LazyCommand("doctor", "Check this installation."),
    "verify": LazyCommand("verify", "Check a whole store."),
    "completion": LazyCommand("completion", "Print the completion script for a shell."),
    "chat": LazyCommand("chat", "Talk to a model in this folder, in a session that is saved."),
    "demo": LazyCommand("demo", "Run a long conversation through everything that can happen."),
}
"""Every command, in the order of the help."""

COMPLETION = "_TURNSTATE_COMPLETE"
"""The variable with which a shell asks for the completion of a line."""

BAD_USAGE = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
PIPE_CLOSED = 141  # 128 + SIGPIPE, as shells report it


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success, 1 invalid or not found, 2 bad usage or input, 3 store unusable.",
)
@click.version_option(__version__, prog_name="turnstate", message="%(prog)s %(version)s")
@click.pass_context
def program(ctx: click.Context) -> int:
    """Count, validate, convert, fit and store the conversations of LLM agents.

    A conversation is the JSON that you send to a provider: OpenAI (Chat and Responses), Anthropic,
    Amazon Bedrock or Google Gemini. Commands read a file or standard input: one document, or
    JSONL with one conversation per line.

    \b
    Example:
      turnstate count messages.json
      turnstate convert --from openai-chat --to anthropic < messages.json
      turnstate show last
      turnstate demo
    """
    if ctx.invoked_subcommand is None:
        screen.display(ctx.get_help())
    return 0


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are reported on stderr."""
    screen.show_warnings()
    try:
        if COMPLETION in os.environ:
            from .completion import answer  # deferred: only a shell that completes needs it

            return answer(program)
        with program.make_context("turnstate", list(arguments)) as ctx:
            code: int = program.invoke(ctx)
        screen.flush()
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        screen.say(_usage(error))
        return BAD_USAGE
    except TurnstateError as error:
        screen.say(screen.located(error))
        return exit_code(error)
    except OSError as error:
        return _output_failed(error)
    except (KeyboardInterrupt, click.Abort):
        screen.abandon()
        return INTERRUPTED
    return code


def _usage(error: click.ClickException) -> str:
    ctx = getattr(error, "ctx", None)
    text = " ".join(error.format_message().split())  # click puts choices on separate lines
    return f"{text} (see {ctx.command_path if ctx else 'turnstate'} --help)"


def _output_failed(error: OSError) -> int:
    screen.abandon()
    if error.errno == errno.EPIPE:
        return PIPE_CLOSED
    screen.say(f"{error.filename or 'cannot write the output'}: {error.strerror or error}")
    return BAD_USAGE
