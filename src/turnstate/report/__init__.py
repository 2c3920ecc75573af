"""What a session looks like: its tree of branches, what its window contains, and both as a page.

Values first: `read_tree` and `read_context` return what is to be shown, from the log and its recorded
decisions; the command line prints them, and `report.html` writes them as one self-contained page.
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
