"""The checkpoint command: files and conversation, saved and restored together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...checkpoints import RestoreResult, shown
from ...checkpoints.labels import CheckpointTurn
from ...entry import Checkpoint
from ...ids import milliseconds
from ...plain_text import counted, harmless
from ...terminal.screen import styled, table
from ...terminal.times import ago
from ..view import Choice
from .usage import WrongUsage, words

if TYPE_CHECKING:
    from ..chat import Chat

MAX_DIFF_LINES = 200
DIFF_COLORS = {"+": "green", "-": "red", "@": "cyan"}


async def checkpoint(chat: Chat, rest: str) -> None:
    """Save, compare and restore the files of this folder together with the conversation.

    Tools that change files are saved by themselves: `1.2` is the second change of the first turn, `1` the
    end of that turn, `0` the start. `/checkpoint diff 1` compares with now; `/checkpoint restore 1` goes
    back, and `/checkpoint undo` returns. With `--hard` newer files are removed as well.
    """
    word, *more = words(rest) or ["list"]
    match word, more:
        case "list", []:
            await _list(chat)
        case "save", _:
            chat.check_writable()
            checkpoints = await chat.checkpoints(make=True)
            kept = await checkpoints.keep(" ".join(more) or "saved by hand")
            await chat.view.notice(f"checkpoint {kept.label} saved")
        case "diff", [label, *others] if len(others) <= 1:
            await _diff(chat, label, others[0] if others else None)
        case "restore", [label, *flags] if set(flags) <= {"--hard"}:
            await _restore(chat, label, hard=bool(flags))
        case "undo", []:
            chat.check_writable()
            result = await (await chat.checkpoints()).undo_restore()
            await chat.view.notice(_described(result, "back to before the restore of"))
        case _:
            raise WrongUsage


async def _list(chat: Chat) -> None:
    checkpoints = await chat.checkpoints()
    rows = list[tuple[str, str, str, str]]()
    for turn in await checkpoints.turns():
        saved: list[CheckpointTurn | Checkpoint] = [turn, *turn.tools]
        for one in saved:
            signs = ((one.added, "+"), (one.modified, "~"), (one.deleted, "-"))
            files = " ".join(f"{sign}{count:,}" for count, sign in signs if count) or "none"
            rows.append((one.label, ago(milliseconds(one.time)), files, one.description))
    await chat.view.output(table(("checkpoint", "saved", "files", "description"), rows))


async def _diff(chat: Chat, label: str, other: str | None) -> None:
    found = await (await chat.checkpoints()).diff(label, other)
    lines = found.text.removesuffix("\n").split("\n") if found.files else ["no differences"]
    text = [styled(harmless(line), fg=DIFF_COLORS.get(line[:1])) for line in lines[:MAX_DIFF_LINES]]
    if len(lines) > MAX_DIFF_LINES:
        text.append(f"… and {counted(len(lines) - MAX_DIFF_LINES, 'line')} more")
    await chat.view.output("\n".join(text))


async def _restore(chat: Chat, label: str, *, hard: bool) -> None:
    chat.check_writable()
    checkpoints = await chat.checkpoints()
    if chat.view.interactive:
        files = (await checkpoints.diff(label)).files
        names = ", ".join(shown(one.path) for one in files[:5]) + (", …" if len(files) > 5 else "")
        differ = "1 file differs" if len(files) == 1 else f"{len(files):,} files differ"
        changed = f"{differ}: {names}" if files else "no file differs"
        await chat.view.output(harmless(changed))
        choices = [Choice("y", "restore"), Choice("n", "leave it")]
        if await chat.view.choose(f"Restore checkpoint {label}?", choices) != "y":
            return
    result = await checkpoints.restore(label, hard=hard)
    await chat.view.notice(_described(result, "restored to"))
    await chat.view.notice("/checkpoint undo returns")


def _described(result: RestoreResult, how: str) -> str:
    if result.files is None:
        return f"the conversation is {how} {result.label}"
    done = result.files.changes
    counts = ((len(done.added), "+"), (len(done.modified), "~"), (len(done.deleted), "-"))
    files = " ".join(f"{sign}{count:,}" for count, sign in counts if count) or "no"
    kept = f"; {counted(len(result.files.kept), 'file')} could not be restored"
    return f"{how} {result.label}: {files} files" + (kept if result.files.kept else "")
