"""The branches of a session as a text tree: each at the point where it begins, with its events."""

from __future__ import annotations

from collections.abc import Iterator

from ..plain_text import counted
from ..report import Mark, Tree, TreeBranch
from . import screen
from .screen import styled
from .times import iso


def tree_lines(tree: Tree) -> Iterator[str]:
    """Yield the lines of a tree, safe to print."""
    title = f" “{tree.title}”" if tree.title else ""
    yield styled(screen.escaped(f"session {tree.session}{title}"), bold=True)
    branches = "1 branch" if len(tree.branches) == 1 else f"{len(tree.branches):,} branches"
    messages = counted(tree.messages, "message")
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
        counted(branch.messages, "message"),
        (branch.first_at or iso(branch.created))[:16].replace("T", " "),
        f"“{branch.first_words}”" if branch.first_words else "",
    ]
    mark = "●" if branch.id == tree.branch else "○"
    name = styled(f"branch {branch.id}", bold=branch.upto > 0 or branch.id == tree.branch)
    return f"{mark} {name} {screen.escaped(' · '.join(filter(None, details)))}"


def _mark_text(mark: Mark) -> str:
    when = f" · {mark.at[:16].replace('T', ' ')}" if mark.at else ""
    return f"{styled(mark.what, bold=True)}{screen.escaped(f'{when} · {mark.text}' if mark.text else when)}"
