"""Views of a chat: the port, and its two implementations for pipes, plain text and JSON.

In a pipe the answers go to stdout and everything else (tools, notices, errors) to stderr, so that
``turnstate chat < question > answer`` writes only the answer. With ``--json`` each event is one line of JSON
on stdout. The terminal's view is in `terminal`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from ..agent import (
    AgentEvent,
    CheckpointFailed,
    CheckpointSaved,
    Compacted,
    Ended,
    ReplySaved,
    ToolFinished,
    ToolStarted,
)
from ..errors import TurnstateError
from ..message import ToolCallRequest, ToolCallResult
from ..models import Retried, TextDelta
from ..plain_text import counted, first_words, harmless
from ..terminal import screen
from ..tools import Approval, ApprovalRequest, WorkspaceFiles

MAX_ARGUMENT_CHARS = 60
MAX_COMPARED_LINES = 4_000
"""Lines of two texts that are compared; the time grows with their product, so longer ones are shown whole."""
NO_LINE_FEED = "(no line feed at the end of this line)"
"""No line of a file begins like this: they have a sign before them."""


class Choice(msgspec.Struct, frozen=True):
    """One answer to a question: the key to press, and what it means."""

    key: str
    text: str


class ChatView(Protocol):
    """Shows what happens, and asks the user."""

    interactive: bool
    """True if there is a user who can answer."""

    async def event(self, event: AgentEvent) -> None:
        """Show an event of a running turn."""

    async def output(self, text: str) -> None:
        """Show the output of a command; the text is safe to print."""

    async def notice(self, text: str) -> None:
        """Show one line about the chat itself."""

    async def error(self, text: str) -> None:
        """Show one line about something that failed."""

    async def approve(self, question: ApprovalRequest) -> Approval:
        """Ask whether a tool may run."""

    async def choose(self, question: str, choices: list[Choice]) -> str:
        """Ask the user to choose and return the key; without a user, return the last choice."""

    def suggest(self, text: str) -> None:
        """Offer a text as the user's next message."""


def call_line(call: ToolCallRequest) -> str:
    """Return a call as one line: its name, and the first words of each argument, or of what is not one."""
    written = call.unparsed
    given = call.args.items() if written is None else [("not an object", written)]
    shown = (f"{name}={_shown(value)}" for name, value in given)
    return screen.escaped(f"{call.name}({', '.join(shown)})", 240)


def proposal_lines(call: ToolCallRequest, files: WorkspaceFiles) -> list[str]:
    """Return everything that a call would do: a command, the diff of a file, and all other arguments.

    Nothing is shortened, and only a line feed begins a new line: what a user approves has to be what they
    have seen. Control characters are still in it; escape them before it is shown.
    """
    match call.name, call.args:
        case "run_command", {"command": str(command), **rest}:
            return [*(f"$ {line}" for line in command.split("\n")), *_arguments(rest)]
        case "write_file", {"path": str(path), "content": str(content), **rest}:
            return [*_rewritten(files, path, content), *_arguments(rest)]
        case "edit_file", {"path": str(path), "old": str(old), "new": str(new), **rest}:
            return [*_replaced(path, old, new), *_arguments(rest)]
    return [call.name, *_arguments(call.args)]


def _arguments(args: Mapping[str, Any]) -> Iterator[str]:
    """Yield arguments in full, a text as it is and anything else as JSON."""
    for name, value in args.items():
        if isinstance(value, str):
            text = value
        else:
            text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
        first, *others = text.split("\n")
        yield f"{_in_one_line(name)}: {first}"
        yield from (f"  {line}" for line in others)


def _rewritten(files: WorkspaceFiles, path: str, content: str) -> list[str]:
    """Return what changes if a file gets a content, and what is to be known about the file as it is."""
    name, known = _in_one_line(path), list[str]()
    try:
        data = files.read(path)
    except (
        TurnstateError
    ) as error:  # it does not exist, or cannot be read; the tool may write it nevertheless
        data, known = b"", [_in_one_line(str(error))]
    if data == content.encode("utf-8", "surrogatepass") and not known:
        return [f"{name} stays as it is"]
    old = data.decode("utf-8", "surrogateescape")
    if not known and not _is_utf8(data):
        known = [f"{name} is not UTF-8; its other bytes are shown as \\udc80 to \\udcff"]
    if len(_text_lines(old)) + len(_text_lines(content)) > MAX_COMPARED_LINES:
        return [*known, *_replaced(path, old, content)]
    changes = difflib.unified_diff(_text_lines(old), _text_lines(content), name, name, n=2)
    return [*known, *(list(_rows(changes)) or [f"{name} is empty"])]


def _replaced(path: str, old: str, new: str) -> list[str]:
    """Return two texts in full, since a difference between them may look like less than it is."""
    name = _in_one_line(path)
    removed, added = (f"-{line}" for line in _text_lines(old)), (f"+{line}" for line in _text_lines(new))
    return [f"--- {name}", f"+++ {name}", *_rows(removed), *_rows(added)]


def _rows(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines without their line feeds, and a row of our own after each that has none."""
    for line in lines:
        yield line.removesuffix("\n")
        if not line.endswith("\n"):
            yield NO_LINE_FEED


def _text_lines(text: str) -> list[str]:
    """Return the lines of a text with their line feeds."""
    *lines, last = text.split("\n")
    return [*(f"{line}\n" for line in lines), *([last] if last else [])]


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _in_one_line(text: str) -> str:
    return text.replace("\n", "\\n")


def result_line(result: ToolCallResult) -> str:
    """Return a result as one line: its first words, and how long it is."""
    text = result.result if isinstance(result.result, str) else msgspec.json.encode(result.result).decode()
    lines = text.count("\n") + 1
    size = f"  ({lines:,} lines)" if lines > 1 else ""
    return screen.escaped(f"{first_words(text, 100)}{size}")


def compaction_line(event: Compacted) -> str:
    """Return the outcome of a compaction as one line."""
    done = event.outcome
    replaced = counted(done.messages, "message")
    return f"{replaced} replaced by a summary: {done.tokens_before:,} → {done.tokens_after:,} tokens"


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return first_words(text, MAX_ARGUMENT_CHARS)


class PlainView:
    """Answers on stdout, everything else on stderr."""

    interactive = False

    def __init__(self) -> None:
        self._line_is_open, self._before = False, ""

    async def event(self, event: AgentEvent) -> None:
        """Print text as it arrives, and one line for each step."""
        match event:
            case TextDelta(text):
                self._print(text)
            case Retried(reason=reason):
                self._end_line()
                screen.say(f"{reason}; the answer begins again")
            case ReplySaved():
                self._end_line()
            case ToolStarted(call):
                screen.say(f"→ {call_line(call)}")
            case ToolFinished(result=result):
                screen.say(f"{'✗' if result.is_error else '✓'} {result_line(result)}")
            case CheckpointSaved(label=label, moving=moving) if moving:
                screen.say(f"not in checkpoint {label}, being written: {', '.join(moving)}")
            case CheckpointFailed(text=text):
                screen.say(f"no checkpoint: {text}")
            case Compacted():
                screen.say(compaction_line(event))
            case Ended(reason=reason, text=text) if reason != "done":
                screen.say(f"the turn ended: {text}")

    async def output(self, text: str) -> None:
        """Print the output of a command."""
        self._end_line()
        screen.display(text)
        screen.flush()

    async def notice(self, text: str) -> None:
        """Print one line on stderr."""
        screen.say(text)

    async def error(self, text: str) -> None:
        """Print one line on stderr."""
        self._end_line()
        screen.say(text)

    async def approve(self, question: ApprovalRequest) -> Approval:
        """Refuse: there is no one to ask."""
        return Approval(allow=False, reason="there is no one to ask; pass --allow to permit it")

    async def choose(self, question: str, choices: list[Choice]) -> str:
        """Return the last choice, which changes nothing."""
        return choices[-1].key

    def suggest(self, text: str) -> None:
        """Do nothing: there is no prompt."""

    def _print(self, text: str) -> None:
        import sys

        sys.stdout.buffer.write(harmless(text, before=self._before).encode())
        sys.stdout.flush()
        self._line_is_open, self._before = not text.endswith("\n"), text[-1:]

    def _end_line(self) -> None:
        if self._line_is_open:
            self._print("\n")


class JsonView:
    """Each event as one line of JSON on stdout."""

    interactive = False

    async def event(self, event: AgentEvent) -> None:
        """Print an event as it is."""
        self._print(msgspec.json.encode(event).decode())

    async def output(self, text: str) -> None:
        """Print the output of a command as an event."""
        self._line("output", text)

    async def notice(self, text: str) -> None:
        """Print a notice as an event."""
        self._line("notice", text)

    async def error(self, text: str) -> None:
        """Print an error as an event."""
        self._line("error", text)

    async def approve(self, question: ApprovalRequest) -> Approval:
        """Refuse: there is no one to ask."""
        return Approval(allow=False, reason="there is no one to ask; pass --allow to permit it")

    async def choose(self, question: str, choices: list[Choice]) -> str:
        """Return the last choice, which changes nothing."""
        return choices[-1].key

    def suggest(self, text: str) -> None:
        """Do nothing: there is no prompt."""

    def _line(self, kind: str, text: str) -> None:
        self._print(msgspec.json.encode({"event": kind, "text": text}).decode())

    def _print(self, line: str) -> None:
        screen.show(line)
        screen.flush()
