"""The chat in a terminal: a prompt that stays, with what is running above it and the status below.

Finished blocks are printed above the prompt and scroll away like any output, so the terminal's own scrolling,
selection and search work. Only the last lines are redrawn: the answer's unfinished block, running tools, a
question, the prompt. The user can type while the model answers; lines are queued.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app_or_none, run_in_terminal
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style
from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

from ..agent import (
    AgentEvent,
    CheckpointFailed,
    CheckpointSaved,
    Compacted,
    Ended,
    ReplySaved,
    RequestStarted,
    ToolFinished,
    ToolStarted,
)
from ..ids import CallId
from ..message import ToolCallRequest
from ..models import ReasoningDelta, Retried, TextDelta
from ..plain_text import counted, exact, harmless
from ..report.context import CATEGORIES
from ..terminal.session_text import SIGNS
from ..tools import Approval, ApprovalRequest, WorkspaceFiles
from .chat import Chat, Status
from .completion import ChatCompleter
from .markdown import Block, MarkdownStream
from .view import Choice, call_line, compaction_line, proposal_lines, result_line

LIVE_LINES = 8
"""Lines of an unfinished block that are shown above the prompt."""
FIRST_ROWS, MORE_ROWS, MOST_ROWS = 30, 200, 2_000
"""Rows of a command or a change that are shown at first, by the key for more, and printed at a time."""
MARGIN, CONTINUED, MIN_WIDTH = "  ", "↪ ", 20
"""What stands before a row of a proposal, and before one that continues the row above."""
BAR_CELLS = 20
LARGE_PASTE_LINES, LARGE_PASTE_CHARS = 20, 4_000
"""Pastes beyond this are shown as one line in the prompt, and sent whole."""
REDRAW_SECONDS = 0.01
TWICE_SECONDS = 1.5
"""Two Ctrl-C within this time leave the chat."""

STYLE = Style.from_dict(
    {
        "bottom-toolbar": "noreverse #888888",
        "prompt": "bold",
        "live": "#999999",
        "tool": "ansicyan",
        "question": "bold ansiyellow",
        "key": "bold",
        "used": "ansigreen",
    }
)
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class TerminalView:
    """Shows a chat on this terminal, and asks at its prompt."""

    interactive = True

    def __init__(self, folder: Path, *, history: Path | None = None, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stdout, highlight=False)
        self.status = Status(model="")
        self.running: asyncio.Task[None] | None = None
        self._stream, self._in_code = MarkdownStream(), False
        self._tools = dict[CallId, tuple[ToolCallRequest, float]]()
        self._question, self._choices = "", list[Choice]()
        self._answer: asyncio.Future[str] | None = None
        self._reason: asyncio.Future[str] | None = None
        self._waiting_since: float | None = None
        self._thinking, self._before = False, ""
        self._pastes = dict[str, str]()
        self._interrupted = -TWICE_SECONDS
        self._draft = ""
        self._files, self.completer = WorkspaceFiles(folder), ChatCompleter(folder)
        kept: History = FileHistory(str(history)) if history else InMemoryHistory()
        self.prompt = PromptSession[str](
            self._message,
            history=kept,
            completer=self.completer,
            complete_while_typing=True,
            multiline=True,
            key_bindings=self._keys(),
            bottom_toolbar=self._toolbar,
            style=STYLE,
            erase_when_done=True,
        )
        self.prompt.app.min_redraw_interval = REDRAW_SECONDS
        self.prompt.app.renderer.CPR_TIMEOUT = 30  # a terminal may answer late while everything starts up
        self.back: Callable[[], None] = lambda: None

    # Output.

    async def event(self, event: AgentEvent) -> None:
        """Show an event: text as it arrives, a line for each tool."""
        match event:
            case RequestStarted():
                self._waiting_since = time.monotonic()
            case TextDelta(text):
                self._thinking, self._waiting_since = False, None
                shown, self._before = harmless(text, before=self._before), text[-1:] or self._before
                await self._print(*self._rendered(self._stream.add(shown)))
            case ReasoningDelta():
                self._thinking = True
            case Retried(pause=pause, reason=reason):
                self._stream, self._waiting_since = MarkdownStream(), time.monotonic()
                await self._print(Text(f"{harmless(reason)}; asking again in {pause:.0f} s", "yellow"))
            case ReplySaved():
                self._thinking, self._waiting_since = False, None
                await self._print(*self._rendered(self._stream.end()))
            case ToolStarted(call):
                self._tools[call.id] = call, time.monotonic()
            case ToolFinished(call=call, result=result):
                self._tools.pop(call.id, None)
                sign, style = ("✗", "red") if result.is_error else ("✓", "green")
                title = Text(f"{sign} ", style).append(call_line(call), "default")
                await self._print(title, Text(f"  {result_line(result)}", "dim"))
            case CheckpointSaved(label=label, moving=moving):
                await self._print(Text(f"  checkpoint {label}", "dim"))
                if moving:
                    names = harmless(", ".join(moving))
                    await self._print(Text(f"  not in it, being written: {names}", "yellow"))
            case CheckpointFailed(text=text):
                await self._print(Text(f"  no checkpoint: {harmless(text)}", "yellow"))
            case Compacted():
                await self._print(Text(compaction_line(event), "dim"))
            case Ended(reason=reason, text=text) if reason != "done":
                await self._print(Text(f"the turn ended: {harmless(text)}", "yellow"))
        self.redraw()

    def _rendered(self, blocks: list[Block]) -> Iterator[RenderableType]:
        for block in blocks:
            if block.kind == "code" and not self._in_code:
                yield Text()
            self._in_code = block.kind == "code"
            yield _rendered(block)

    async def output(self, text: str) -> None:
        """Print the output of a command, with its styles."""
        await self._print(Text.from_ansi(text))

    async def notice(self, text: str) -> None:
        """Print one dim line."""
        await self._print(Text(harmless(text), "dim"))

    async def error(self, text: str) -> None:
        """Print one red line."""
        await self._print(Text(harmless(text), "red"))

    async def approve(self, question: ApprovalRequest) -> Approval:
        """Ask whether a tool may run: yes, always in this session or folder, no, or no and why.

        Yes can be said once everything that the call would do has been shown.
        """
        name, refusals = question.tool.name, {"n": "no", "w": "no, say why"}
        rows = await asyncio.to_thread(self._proposal, question.call)
        count, key = FIRST_ROWS, "m"
        while key in ("m", "e"):
            await self._print_rows(rows[:count])
            rows = rows[count:]
            if rows:
                left = counted(len(rows), "more line")
                count = min(MORE_ROWS, len(rows))
                answers = {"m": f"show {count:,} of them", "e": "show all of them", **refusals}
                key = await self._answered(f"{left} to read before you can say yes. Run {name}?", answers)
                count = len(rows) if key == "e" else count
            else:
                answers = {"y": "yes", "a": "always", "p": "always in this folder", **refusals}
                key = await self._answered(f"Run {name}?", answers)
        if key == "w":
            self._question, self._choices = "Why not? (Enter sends)", []
            self._reason = asyncio.get_running_loop().create_future()
            self.redraw()
            try:
                return Approval(allow=False, reason=await self._reason)
            finally:
                self._question, self._reason = "", None
        scope = {"a": "session", "p": "project"}.get(key, "once")
        return Approval(allow=key in "yap", scope=scope)  # type: ignore[arg-type]

    async def _answered(self, question: str, answers: dict[str, str]) -> str:
        return await self.choose(question, [Choice(key, text) for key, text in answers.items()])

    def _proposal(self, call: ToolCallRequest) -> list[Text]:
        """Return what a call would do as rows of this terminal, colored like a diff."""
        colors = {"+": "green", "-": "red", "@": "cyan", "$": "bold"}
        width = max(MIN_WIDTH, self.console.width - len(MARGIN))
        rows = list[Text]()
        for line in proposal_lines(call, self._files):
            color = colors.get(line[:1], "")
            first, *others = _folded(exact(line).expandtabs(), width)
            rows.append(Text(MARGIN + first, color))
            rows += [Text(CONTINUED + one, color) for one in others]
        return rows

    async def _print_rows(self, rows: list[Text]) -> None:
        for start in range(0, len(rows), MOST_ROWS):  # the prompt stays alive in between
            await self._print(Text("\n").join(rows[start : start + MOST_ROWS]))

    async def choose(self, question: str, choices: list[Choice]) -> str:
        """Show a question above the prompt until one of its keys is pressed."""
        self._question, self._choices = harmless(question), choices
        self._answer = asyncio.get_running_loop().create_future()
        self.redraw()
        try:
            return await self._answer
        finally:
            self._question, self._choices, self._answer = "", [], None
            self.redraw()

    def suggest(self, text: str) -> None:
        """Put a text into the prompt."""
        self.prompt.default_buffer.text = text
        self.prompt.default_buffer.cursor_position = len(text)

    @property
    def is_moving(self) -> bool:
        """True while something above the prompt changes by itself."""
        is_hinting = time.monotonic() - self._interrupted < 2 * TWICE_SECONDS
        return is_hinting or (self.running is not None and not self.running.done())

    def settle(self) -> None:
        """Clear what a turn left in the live area."""
        self._tools.clear()
        self._stream = MarkdownStream()
        self._thinking, self._waiting_since = False, None

    def redraw(self) -> None:
        """Schedule a redraw of the prompt."""
        self.prompt.app.invalidate()

    async def _print(self, *lines: RenderableType) -> None:
        if not lines:
            return

        def write() -> None:
            for line in lines:
                self.console.print(line)

        app = get_app_or_none()
        if app is not None and app.is_running:
            await run_in_terminal(write)
        else:
            write()

    # The prompt.

    @contextmanager
    def raw_mode(self) -> Iterator[None]:
        """Read every key as it is typed, even while something is printed and between two prompts.

        By default, the prompt switches to line mode at these moments. The terminal would then drop a Ctrl-D,
        and send a Ctrl-C as a signal that ends the program instead of the turn.
        """
        keys = self.prompt.app.input
        keys.cooked_mode = nullcontext  # type: ignore[method-assign]
        with keys.raw_mode():
            yield

    async def read(self) -> str:
        """Read what the user enters; raise `EOFError` when they leave."""
        draft, self._draft = self._draft, ""
        text = await self.prompt.prompt_async(default=draft)
        shown = Text("› ", "bold blue").append(harmless(text), "bold")
        await self._print(Text(), shown)
        for placeholder, pasted in self._pastes.items():
            text = text.replace(placeholder, pasted)
        self._pastes.clear()
        return text

    def answer_reason(self, text: str) -> bool:
        """Use a line as the reason that the user was asked for; return False if none was asked for."""
        if self._reason is None or self._reason.done():
            return False
        self._reason.set_result(text)
        return True

    def _message(self) -> StyleAndTextTuples:
        parts: StyleAndTextTuples = []
        lines = [line for line in self._stream.tail.splitlines() if line.strip()][-LIVE_LINES:]
        parts += [("class:live", f"{line}\n") for line in lines]
        now = time.monotonic()
        spinner = SPINNER[int(now * 10) % len(SPINNER)]
        for call, since in self._tools.values():
            parts.append(("class:tool", f"{spinner} {call_line(call)}"))
            parts.append(("class:live", f"  {now - since:.0f} s\n"))
        if self._thinking or (self._waiting_since and now - self._waiting_since > 0.3):
            doing = "thinking" if self._thinking else "waiting for the model"
            parts.append(("class:live", f"{spinner} {doing}\n"))
        if now - self._interrupted < TWICE_SECONDS and not self._question:
            parts.append(("class:live", "Ctrl-C again leaves\n"))
        if self._question:
            parts.append(("class:question", f"{self._question}\n"))
            for choice in self._choices:
                parts += [("class:key", f"  {choice.key}"), ("", f" {choice.text} ")]
            parts.append(("", "\n" if self._choices else ""))
        parts.append(("class:prompt", "› "))
        return parts

    def _toolbar(self) -> StyleAndTextTuples:
        status = self.status
        if not status.limit:  # while looking on, the model may be unknown
            return [("", f" {status.tokens:,} tokens · /help" if status.tokens else " starting …")]
        share = status.tokens / status.limit
        parts: StyleAndTextTuples = [("", f" {harmless(status.model)} · ")]
        used = {name: status.usage.get(name, 0) for name in CATEGORIES if name != "free"}
        filled = 0
        for name, tokens in used.items():
            cells = min(BAR_CELLS - filled, -(-tokens * BAR_CELLS // status.limit))
            filled += cells
            parts.append(("class:used", SIGNS[name] * cells))
        parts.append(("", f"{'·' * (BAR_CELLS - filled)} {share:.0%} of {status.limit:,}"))
        if status.cached is not None:
            parts.append(("", f" · {status.cached:.0%} cached"))
        if status.cost is not None:
            parts.append(("", f" · ${status.cost:.4f} spent"))
        parts.append(("", f" · {harmless(status.place)} · /help"))
        return parts

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        asked = Condition(lambda: self._answer is not None and not self._answer.done())
        empty = Condition(lambda: not self.prompt.default_buffer.text)

        @keys.add("enter")
        @keys.add("c-j")
        def _(event: KeyPressEvent) -> None:
            self._interrupted = -TWICE_SECONDS  # Ctrl-C leaves only if pressed twice in a row
            event.current_buffer.validate_and_handle()

        @keys.add("escape", "enter")
        @keys.add("escape", "c-j")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("escape", "escape", eager=True)
        def _(_event: KeyPressEvent) -> None:
            self.back()

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            self._interrupt(event)

        @keys.add("c-d", filter=empty)
        def _(event: KeyPressEvent) -> None:
            event.app.exit(exception=EOFError)

        @keys.add(Keys.BracketedPaste)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text(self._pasted(event.data))

        @keys.add(Keys.Any, filter=asked & empty, eager=True)
        def _(event: KeyPressEvent) -> None:
            key = event.data.lower()
            if self._answer is not None and any(choice.key == key for choice in self._choices):
                self._answer.set_result(key)

        return keys

    def _interrupt(self, event: KeyPressEvent) -> None:
        """Stop the turn; if none is running, clear the prompt; if it is empty, leave the second time."""
        now = time.monotonic()
        if self.running is not None and not self.running.done():
            self.running.cancel()
        elif event.current_buffer.text:
            event.current_buffer.reset()
            now = -TWICE_SECONDS
        elif now - self._interrupted < TWICE_SECONDS:
            event.app.exit(exception=EOFError)
        self._interrupted = now

    def _pasted(self, data: str) -> str:
        text = data.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if lines <= LARGE_PASTE_LINES and len(text) <= LARGE_PASTE_CHARS:
            return text
        placeholder = f"[pasted text {len(self._pastes) + 1}: {lines:,} lines]"
        self._pastes[placeholder] = text
        return placeholder


def _folded(line: str, width: int) -> list[str]:
    """Return a line in pieces of at most so many characters."""
    return [line[start : start + width] for start in range(0, len(line), width)] or [""]


def _rendered(block: Block) -> RenderableType:
    if block.kind == "code":
        code = Syntax(block.text, block.language or "text", theme="ansi_dark", background_color="default")
        return Padding(code, (0, 0, 0, 4))
    return Padding(Markdown(block.text), (1, 0, 0, 0))


async def converse(chat: Chat, view: TerminalView, start: Coroutine[Any, Any, None]) -> None:
    """Read lines and handle them one after another until the user leaves."""
    lines = asyncio.Queue[str]()
    view.back = lambda: lines.put_nowait("/back")

    async def work() -> None:
        try:
            await _interruptible(view, start)
            chat.leaving = chat.leaving or not chat.is_open
            while not chat.leaving:
                view.completer.sessions = chat.recent
                line = await lines.get()
                await _interruptible(view, chat.handle(line))
        finally:  # also after a failure: nothing would handle further input
            chat.leaving = True
            if (reading := view.prompt.app.future) and not reading.done():
                view.prompt.app.exit(exception=EOFError)

    async def tick() -> None:
        while True:
            await asyncio.sleep(0.1)
            if view.is_moving or view.status is not chat.status:
                view.status = chat.status
                view.redraw()

    working = asyncio.create_task(work())
    tasks = [working, asyncio.create_task(tick())]
    try:
        # A logged warning is printed above the prompt.
        with suppress(EOFError), view.raw_mode(), patch_stdout(raw=True):
            while not chat.leaving:
                text = await view.read()
                if not view.answer_reason(text) and text.strip():
                    lines.put_nowait(text)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if not working.cancelled():
        working.result()  # raises what ended the chat


async def _interruptible(view: TerminalView, work: Coroutine[Any, Any, None]) -> None:
    """Run one job that Ctrl-C may stop."""
    task = view.running = asyncio.create_task(work)
    try:
        await asyncio.wait([task])
        if task.cancelled():
            await view.notice("stopped; everything that was finished is saved")
        elif error := task.exception():
            raise error
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        view.settle()
