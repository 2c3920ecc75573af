"""``turnstate completion``: print the script that completes command lines in a shell."""

from __future__ import annotations

import click

from ...terminal import screen
from .. import completion

EXIT_CODES = """\b
Exit codes:
  0  success
  2  bad usage
"""


@click.command("completion", epilog=EXIT_CODES)
@click.argument("shell", type=click.Choice(completion.SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    """Print the script that lets a shell complete commands, options and session ids.

    \b
    Example:
      eval "$(turnstate completion bash)"                          # in ~/.bashrc
      eval "$(turnstate completion zsh)"                           # in ~/.zshrc
      turnstate completion fish > ~/.config/fish/completions/turnstate.fish
    """
    screen.show(completion.script(ctx.find_root().command, shell).rstrip("\n"))
    return 0
