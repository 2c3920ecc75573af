"""``turnstate demo``: a long conversation that nothing is lost of, and the commands at work on another.

Whatever is claimed is compared while it runs: where something is not so, the demo ends with 1.
"""

from __future__ import annotations

import click

from .._version import __version__
from ..cli import options
from . import screen

__all__ = ["command"]

NEXT = """\
turnstate validate FILE           your own conversations: one document, or JSONL
turnstate fit --budget 8000 FILE  as much of them as a budget takes, still valid
turnstate convert --help          from any of the five providers to any other
turnstate count --json FILE       the same numbers, for your scripts"""


@click.command("demo", epilog=options.EXIT_CODES)
def command() -> int:
    """Watch a long conversation go through all that may happen to one.

    A huge log, a budget that fills, a tangent, a compaction, a file that is overwritten, a kill;
    and then the commands at work on a bundled conversation. It needs no input, no key and no network,
    and leaves nothing behind. Each command line that it shows can be typed as it stands.

    \b
    Example:
      turnstate demo
    """
    from . import commands, story  # only now: help does not need them

    screen.strong(f"Turnstate {__version__}: a long conversation, and nothing of it lost")
    story_holds = story.tell()
    screen.heading("Without a session: the commands, on a coding agent's conversation")
    screen.line("")
    as_expected = commands.tell()
    screen.strong("What to try next:")
    screen.line(NEXT)
    return 0 if story_holds and as_expected else 1
