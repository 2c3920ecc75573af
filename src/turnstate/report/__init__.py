"""Reports on a session: its tree of branches, the contents of its window, and both as an HTML page.

`read_tree` and `read_context` return plain values, read from the log and its recorded decisions. The command
line prints them, and `report.html` writes them as one self-contained page.
"""

from .context import ContextReport, Decided, read_context
from .tree import Mark, Tree, TreeBranch, read_tree

__all__ = [
    "ContextReport",
    "Decided",
    "Mark",
    "Tree",
    "TreeBranch",
    "read_context",
    "read_tree",
]
