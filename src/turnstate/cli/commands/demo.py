"""``turnstate demo``: run a long conversation through everything that can happen to one."""

from __future__ import annotations

import click

from ..._version import __version__
from ...demo import commands, screen, story
from .. import run
from ..options import EXIT_CODES

__all__ = ["command"]

NEXT = """\
turnstate validate FILE           your own conversations: one document, or JSONL
turnstate fit --budget 8000 FILE  as much of them as fits a budget, still valid
turnstate convert --help          from any of the five providers to any other
turnstate count --json FILE       the same numbers, for your scripts"""


@click.command("demo", epilog=EXIT_CODES)
def command() -> int:
    """Run a long conversation through everything that can happen to one.

    A huge log, a full budget, a tangent, a compaction, an overwritten file, a kill -9; then the
    commands on a bundled conversation. It needs no input, no API key and no network, and removes
    its temporary files. The demo verifies each claim and exits 1 if one fails. Each command line
    that it shows can be typed as printed.

    \b
    Example:
      turnstate demo
    """
    screen.strong(f"Turnstate {__version__}: a long conversation, and nothing of it lost")
    story_holds = story.play()
    screen.heading("Without a session: the commands, on a coding agent's conversation")
    screen.line("")
    as_expected = commands.play(run)
    screen.strong("What to try next:")
    screen.line(NEXT)
    return 0 if story_holds and as_expected else 1
