"""Log entries in words: a line for each kind that is not a message, and the reason for a cut."""

from __future__ import annotations

from ..entry import (
    Answer,
    Bootstrap,
    Checkpoint,
    Cut,
    Data,
    Entry,
    FileLines,
    Mask,
    ModelChange,
    Note,
    Prompt,
    Restore,
    Revert,
    SettingsChange,
    Started,
    Summary,
    Tangent,
    Usage,
)
from ..plain_text import counted


def cut_reason(cut: Cut) -> str:
    """Return why messages left the window."""
    operation = cut.asked.get("operation")
    if cut.imported:
        return "imported with its summary"
    if operation == "clear":
        return "cleared on request"
    if operation:
        keep = cut.asked.get("keep")
        return f"on request, keeping {counted(keep, 'exchange')}" if isinstance(keep, int) else "on request"
    return f"the window of {cut.limit:,} tokens was full"


def described(entry: Entry) -> str:
    """Describe an entry that is not a message in one line or paragraph."""
    match entry:
        case Prompt(text=text):
            return f"prompt: {text}"
        case Bootstrap(text=text):
            return f"facts about the user: {text}"
        case ModelChange(id=id, counter=counter):
            return f"model: {id or 'none'}, counted by {counter}"
        case Cut(asked=asked, kept_from=kept, summary=summary):
            start = f"starts at {kept}" if kept else "starts here"
            return f"{asked.get('operation', 'cut')}: the window {start}; {summary}".rstrip("; ")
        case Revert(at=at):
            return f"entry {at} is reverted"
        case Mask(ids=(), scale=scale):
            return f"outputs are shown by shares of {scale:,} tokens"
        case Mask(ids=ids, saved=saved, each=each) if each:
            return f"{counted(len(ids), 'output')} shortened to {each:,} tokens each, {saved:,} tokens saved"
        case Mask(ids=ids, saved=saved):
            return f"{counted(len(ids), 'output')} hidden, {saved:,} tokens saved"
        case Summary():
            return f"summary: {entry.shown}"
        case Answer(call=call, text=text):
            return f"{call} has no result: {text}"
        case Usage(input=0, output=0, model=model):
            return f"answered by {model or 'an unnamed model'}; no token usage reported"
        case Usage(input=input, output=output):
            purpose = "" if entry.is_of_reply else " of a request for a summary"
            return f"token usage{purpose}: {input:,} in, {output:,} out"
        case Started(calls=calls):
            return f"{counted(len(calls), 'call')} started"
        case Note(text=text):
            return text
        case SettingsChange(fields=fields):
            return f"settings: {', '.join(fields)}"
        case Data(namespace=namespace, key=key, deleted=deleted):
            name = f"{namespace}/{key}" if namespace else key
            return f"{name} deleted" if deleted else f"{name} set"
        case FileLines(path=path):
            return f"line counts of {path}"
        case Tangent(started=started):
            return "tangent started" if started else "tangent left"
        case Checkpoint(label=label, description=description):
            return f"checkpoint {label}: {description}"
        case Restore(label=label, undone=undone) if undone:
            return f"restore of checkpoint {label} undone"
        case Restore(label=label, conversation=conversation):
            whose = "checkpoint" if conversation else "files of checkpoint"
            return f"{whose} {label} restored"
        case _:
            return type(entry).__name__
