"""``turnstate completion``: print the script that completes command lines in a shell."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from ...terminal import screen
from .. import COMPLETION
from ..completion import PROGRAM

SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}

EXIT_CODES = """\b
Exit codes:
  0  success
  2  bad usage
"""


@click.command("completion", epilog=EXIT_CODES)
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    """Print the script that lets a shell complete commands, options and session ids.

    \b
    Example:
      eval "$(turnstate completion bash)"                          # in ~/.bashrc
      eval "$(turnstate completion zsh)"                           # in ~/.zshrc
      turnstate completion fish > ~/.config/fish/completions/turnstate.fish
    """
    completion = SHELLS[shell](ctx.find_root().command, {}, PROGRAM, COMPLETION)
    script = completion.source_template % completion.source_vars()
    screen.show(script.rstrip("\n"))
    return 0
