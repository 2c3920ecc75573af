"""``turnstate tree``: print the branches of a session, and what happened on them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import click

from ...cli_kit import screen
from ...cli_kit.screen import styled
from ...log.path import Damage, WatchedLog
from ...report import Mark, Tree, TreeBranch, read_tree
from .. import documents, picker
from ..completion import session_argument
from ..options import json_option
from ..store import EXIT_CODES, managed, tenant_option, user_option
from ..times import iso

__all__ = ["command", "tree_lines"]


@click.command("tree", epilog=EXIT_CODES)
@session_argument(required=False)
@tenant_option
@user_option
@json_option("Print one JSON object.")
def command(id: str | None, store: str, tenant: str, user: str | None, as_json: bool) -> int:
    """Show the branches of a session: forks, tangents and restores, with cuts and checkpoints.

    Each line begins with the number of its entry. Branches are shown where they begin, with the
    time and the first words of the user there; ● marks the branch with the head. `turnstate show
    ID --branch N` shows what was said on one of them.

    ID is an id, a title, a unique beginning of either, or `last`; without it, a terminal offers a
    list.

    \b
    Example:
      turnstate tree last
      turnstate tree 0197a1 --json

    \b
    With --json, one object:
      session, title, branch, seq  the session and its head
      branches  a list of {id, parent, after, operation, name, created, messages,
                last, first_words, first_at, last_at, upto, marks}
      marks     of a branch: a list of {seq, at, what, text}
    """
    return asyncio.run(_tree(id, store, tenant, user, as_json=as_json))


async def _tree(id: str | None, store: str, tenant: str, user: str | None, *, as_json: bool) -> int:
    async with managed(store, tenant) as sessions:
        row, damage = await picker.chosen(sessions, id, user=user), Damage()
        tree = await read_tree(WatchedLog(sessions.store, damage), row)
    if as_json:
        screen.show(documents.compact(tree.to_json()))
    else:
        with screen.paged():
            screen.display("\n".join(tree_lines(tree)))
    for notice in damage.notices():
        screen.say(notice)
    return 1 if damage.lost else 0


def tree_lines(tree: Tree) -> Iterator[str]:
    """Yield the lines of a tree, safe to print."""
    title = f" “{tree.title}”" if tree.title else ""
    yield styled(screen.escaped(f"session {tree.session}{title}"), bold=True)
    branches = "1 branch" if len(tree.branches) == 1 else f"{len(tree.branches):,} branches"
    messages = screen.counted(tree.messages, "message")
    yield f"{branches} · {messages} · head at {tree.seq:,} of branch {tree.branch}"
    width = len(f"{max((branch.last for branch in tree.branches), default=0):,}")
    for root in tree.children(None):
        yield ""
        yield _branch_line(tree, root)
        yield from _inside(tree, root, "", width)


def _inside(tree: Tree, branch: TreeBranch, indent: str, width: int) -> Iterator[str]:
    """Yield the lines below a branch: its marks and children in the order of the log."""
    items: list[tuple[int, int, Mark | TreeBranch]] = [(mark.seq, 0, mark) for mark in branch.marks]
    items += [(child.after, child.id, child) for child in tree.children(branch.id)]
    items.sort(key=lambda item: item[:2])
    for place, (number, _, item) in enumerate(items):
        last = place == len(items) - 1
        stem = styled(f"{indent}{'└─' if last else '├─'} {number:>{width},} ", dim=True)
        if isinstance(item, Mark):
            yield f"{stem} {_mark_text(item)}"
        else:
            yield f"{stem} {_branch_line(tree, item)}"
            yield from _inside(tree, item, f"{indent}{'  ' if last else '│ '} {' ' * width}  ", width)


def _branch_line(tree: Tree, branch: TreeBranch) -> str:
    how = {"create": "begin", "reset": "next epoch"}.get(branch.operation, branch.operation)
    own = branch.name if branch.name and branch.operation == "fork" else ""
    details = [
        f"{how} {own}".rstrip(),
        screen.counted(branch.messages, "message"),
        (branch.first_at or iso(branch.created))[:16].replace("T", " "),
        f"“{branch.first_words}”" if branch.first_words else "",
    ]
    mark = "●" if branch.id == tree.branch else "○"
    name = styled(f"branch {branch.id}", bold=branch.upto > 0 or branch.id == tree.branch)
    return f"{mark} {name} {screen.escaped(' · '.join(filter(None, details)))}"


def _mark_text(mark: Mark) -> str:
    when = f" · {mark.at[:16].replace('T', ' ')}" if mark.at else ""
    return f"{styled(mark.what, bold=True)}{screen.escaped(f'{when} · {mark.text}' if mark.text else when)}"
