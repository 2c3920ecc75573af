"""The command line: ``turnstate COMMAND``, one module a command.

A command is a module with a `command` and one line in `COMMANDS`; it is imported only when it is
asked for, so that ``turnstate --help`` stays instant. Whatever goes wrong ends here: an error of
Turnstate is one line on stderr and its exit code, a reader that closed the pipe is no error at all.
"""

from __future__ import annotations

import errno
import keyword
from collections.abc import Sequence
from importlib import import_module

import click

from .._version import __version__
from ..cli_kit import screen
from ..errors import TurnstateError, exit_code

__all__ = ["COMMANDS", "run"]

COMMANDS = {
    "count": "Count the tokens of conversations.",
    "validate": "Say what a provider would reject.",
    "convert": "Rewrite conversations for another provider.",
    "fit": "Make conversations fit a budget, and keep them valid.",
    "sessions": "List sessions, describe them, end them, delete them.",
    "show": "Show a session, a message, or a tool's whole output.",
    "search": "Find messages by their words.",
    "checkpoint": "Keep the files of a moment, compare, go back to it.",
    "export": "Write sessions to a file.",
    "import": "Bring sessions into a store.",
    "worker": "Deliver what sessions left for long-term memory.",
    "doctor": "Check this installation.",
    "verify": "Check a whole store.",
    "demo": "Watch a long conversation survive everything.",
}
"""Every command, in the order of the help, with its summary."""

BAD_USAGE = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
PIPE_CLOSED = 141  # 128 + SIGPIPE: what `yes | head` makes of `yes`


class _Program(click.Group):
    """A group that imports a command when it runs, not when it is listed."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        screen.hear()
        command: click.Command = import_module(_module(cmd_name), __name__).command
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_Program,
    invoke_without_command=True,
    epilog="Exit codes: 0 good, 1 invalid or not found, 2 bad usage or input, 3 the store cannot be used.",
)
@click.version_option(__version__, prog_name="turnstate", message="%(prog)s %(version)s")
@click.pass_context
def program(ctx: click.Context) -> int:
    """Keep the conversations of LLM agents countable, valid and portable.

    A conversation is the JSON that you send to a provider: OpenAI (Chat and Responses), Anthropic,
    Amazon Bedrock or Google Gemini. Commands read a file or standard input: one document, or
    JSONL with a conversation a line.

    \b
    Example:
      turnstate count messages.json
      turnstate convert --from openai-chat --to anthropic < messages.json
    """
    if ctx.invoked_subcommand is None:
        screen.display(ctx.get_help())
    return 0


def _module(name: str) -> str:
    if name == "demo":
        return "..demo"
    return f".commands.{name}_" if keyword.iskeyword(name) else f".commands.{name}"


def run(arguments: Sequence[str]) -> int:
    """Run one command line and give its exit code; what went wrong is told on stderr."""
    try:
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
    return f"{error.format_message()} (see {ctx.command_path if ctx else 'turnstate'} --help)"


def _output_failed(error: OSError) -> int:
    screen.abandon()
    if error.errno == errno.EPIPE:
        return PIPE_CLOSED
    screen.say(f"{error.filename or 'cannot write the output'}: {error.strerror or error}")
    return BAD_USAGE
