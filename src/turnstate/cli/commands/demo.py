"""``turnstate demo``: run a long conversation through everything that can happen to one."""

from __future__ import annotations

import time

import click

from ..._version import __version__
from ...demo import commands, screen, story
from ...terminal.screen import show
from .. import documents, run
from ..options import json_option

EXIT_CODES = """\b
Exit codes:
  0  success
  1  a claim does not hold
  2  bad usage
"""

NEXT = """\
make chat                         talk to a small model on this machine
turnstate chat                    talk to any model, with a key or an endpoint
turnstate validate FILE           your own conversations: one document, or JSONL
turnstate fit --budget 8000 FILE  as much of them as fits a budget, still valid
turnstate convert --help          from any of the five providers to any other
turnstate count --json FILE       the same numbers, for your scripts"""


@click.command("demo", epilog=EXIT_CODES)
@click.option("--fast", is_flag=True, help="A conversation half as long.")
@json_option("Print the claims of the story as one JSON object, and nothing else.")
def command(fast: bool, as_json: bool) -> int:
    """Run a long conversation through everything that can happen to one.

    A huge log, a full budget, a tangent, a compaction, an overwritten file, a kill -9; then the
    commands on a bundled conversation. It needs no input, no API key and no network, and removes
    its temporary files. The demo verifies each claim and exits 1 if one fails. Each command line
    that it shows can be typed as printed.

    \b
    Example:
      turnstate demo
      turnstate demo --fast --json

    \b
    With --json, one object:
      version, seconds  of the program, and of the story
      holds             true if all claims hold
      claims            a list of {claim, holds}
    """
    length = story.SHORT if fast else story.WHOLE
    if as_json:
        return _as_json(length)
    screen.strong(f"Turnstate {__version__}: a long conversation, and nothing of it lost")
    claims = story.play(length)
    screen.heading("Without a session: the commands, on a coding agent's conversation")
    screen.line("")
    as_expected = commands.play(run)
    screen.strong("What to try next:")
    screen.line(NEXT)
    return 0 if as_expected and not claims.false else 1


def _as_json(length: story.Length) -> int:
    begun = time.monotonic()
    with screen.silence():
        claims = story.play(length)
    seconds = round(time.monotonic() - begun, 1)
    facts = {"version": __version__, "seconds": seconds, "holds": not claims.false}
    show(documents.compact({**facts, "claims": claims.to_json()}))
    return 1 if claims.false else 0
