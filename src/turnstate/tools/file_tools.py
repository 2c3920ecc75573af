"""Built-in tools for files: read, write, edit, list and search in the workspace.

Before a write, the line tracker says whether the user has changed the file since the agent last saw it. If
so, the write is refused and the agent is told to read the file again. It never overwrites changes that it has
not seen.
"""

from __future__ import annotations

from typing import Any

from ..conversation.edits import EditConflict
from ..errors import InputError
from ..jobs.folder import MAX_HITS
from ..jobs.process import run
from .definition import BUILTIN, Tool, ToolContext, tool
from .workspace import WorkspaceFiles

SEARCH_SECONDS = 20.0
"""How long listing or searching may take; what was found until then is returned."""


def _files(context: ToolContext) -> WorkspaceFiles:
    if context.workspace is None:
        raise InputError("there is no workspace; start the agent with one to work on files")
    return context.workspace


def _text(files: WorkspaceFiles, path: str) -> str:
    data = files.read(path)
    if b"\0" in data[:8_000]:
        raise InputError(f"{path!r:.200} is a binary file of {len(data):,} bytes")
    return data.decode("utf-8", errors="replace")


@tool(origin=BUILTIN, idempotent=True, path_of=("path",))
def read_file(path: str, context: ToolContext, first_line: int = 1, lines: int = 2_000) -> str:
    """Read a text file of the workspace; the lines are numbered.

    Args:
        path: The path of the file, from the root of the workspace.
        first_line: The first line to return, counted from 1.
        lines: How many lines to return.
    """
    files = _files(context)
    text = _text(files, path)
    if context.tracking is not None:
        with files.changing:
            context.tracking.read(files.root / files.relative(path))
        text = _text(files, path)  # not older than what the tracker saw: no user's change is missed
    every = text.split("\n")
    if every[-1] == "":
        every.pop()
    start = max(1, first_line)
    shown = every[start - 1 : start - 1 + max(1, lines)]
    numbered = [f"{number:>6}\t{line}" for number, line in enumerate(shown, start)]
    left = len(every) - (start - 1) - len(shown)
    if left > 0:
        numbered.append(f"[{left:,} more lines; read on from line {start + len(shown)}]")
    return "\n".join(numbered) or f"[{path} is empty]"


@tool(origin=BUILTIN, changes_files=True, path_of=("path",))
def write_file(path: str, content: str, context: ToolContext) -> str:
    """Write a whole text file of the workspace; folders that are missing are created.

    Args:
        path: The path of the file, from the root of the workspace.
        content: The new content, all of it.
    """
    files = _files(context)
    place = files.root / files.writable(path)
    with files.changing:
        if context.tracking is not None:
            _check(path, context.tracking.before_write(place, creates=True))
        is_new = files.write(path, content.encode())
        if context.tracking is not None:
            context.tracking.created(place, content)
    return f"{'Created' if is_new else 'Wrote'} {path}: {len(content.splitlines()):,} lines."


@tool(origin=BUILTIN, changes_files=True, path_of=("path",))
def edit_file(path: str, old: str, new: str, context: ToolContext, every: bool = False) -> str:
    """Replace a text in a file of the workspace.

    Args:
        path: The path of the file, from the root of the workspace.
        old: The text to replace, exactly as it is in the file; it has to be unique unless `every` is true.
        new: The text to put in its place.
        every: Replace every occurrence.
    """
    files = _files(context)
    place = files.root / files.writable(path)
    if not old:
        raise InputError("old must not be empty; use write_file for a whole file")
    with files.changing:
        if context.tracking is not None:
            _check(path, context.tracking.before_write(place, creates=False))
        text = files.read(path).decode("utf-8", errors="surrogateescape")
        count = text.count(old)
        if count == 0:
            raise InputError(f"{path!r:.200} does not contain that text; read the file and copy it exactly")
        if count > 1 and not every:
            raise InputError(f"{path!r:.200} contains that text {count} times; give more of it, or set every")
        files.write(path, text.replace(old, new).encode("utf-8", errors="surrogateescape"))
        if context.tracking is not None:
            context.tracking.replaced(place, old, new)
    return f"Replaced {count} {'occurrence' if count == 1 else 'occurrences'} in {path}."


@tool(origin=BUILTIN, idempotent=True, path_of=("path",))
async def list_files(
    context: ToolContext, path: str = ".", pattern: str = "", recursive: bool = False
) -> str:
    """List the files and folders of the workspace.

    Args:
        path: The folder, from the root of the workspace.
        pattern: Only names that match, such as *.py.
        recursive: Include everything below the folder.
    """
    files = _files(context)
    place = files.relative(path)
    found = await run("list_files", str(files.root), place, pattern, recursive, seconds=SEARCH_SECONDS)
    lines = [_listed(one) if isinstance(one, list) else f"[{one:,} more]" for one in found.records]
    if found.stopped:
        lines.append(f"[{found.stopped}; list a smaller folder]")
    return "\n".join(lines) or "[nothing]"


def _listed(one: list[Any]) -> str:
    path, kind, size = one
    return f"{path}\t{size:,}" if kind == "file" else f"{path}/" if kind == "folder" else f"{path}\t({kind})"


@tool(origin=BUILTIN, idempotent=True, path_of=("path",))
async def search_files(pattern: str, context: ToolContext, path: str = ".", files: str = "") -> str:
    """Search the text files of the workspace with a regular expression, line by line.

    Args:
        pattern: A regular expression in Python's syntax.
        path: The folder to search, from the root of the workspace.
        files: Only files whose names match, such as *.py.
    """
    workspace = _files(context)
    place = workspace.relative(path)
    found = await run("search_files", str(workspace.root), place, files, pattern, seconds=SEARCH_SECONDS)
    lines = [f"{path}:{number}: {line}" for path, number, line in found.records]
    if found.stopped:
        lines.append(
            f"[{found.stopped}: not everything was searched; narrow the search or simplify the pattern]"
        )
    elif len(lines) == MAX_HITS:
        lines.append(f"[{MAX_HITS} hits; narrow the search for the others]")
    return "\n".join(lines) or "[no hit]"


def _check(path: str, conflict: EditConflict | None) -> None:
    if conflict is None:
        return
    what = "deleted" if conflict.gone else "changed"
    raise InputError(
        f"{path} was {what} since you last saw it, by the user or a command; read it before you write it"
    )


FILE_TOOLS: tuple[Tool, ...] = (read_file, write_file, edit_file, list_files, search_files)
"""The tools for files of a workspace."""
