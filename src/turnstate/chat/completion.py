"""Completion at the prompt: commands, their words, sessions to resume, and files after an @."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from .commands import COMMANDS

MAX_FILES = 50
FILE_COMMANDS = ("/load ", "/save ", "/context add ", "/context remove ")


class ChatCompleter(Completer):
    """Completes the word before the cursor."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.sessions: Sequence[tuple[str, str]] = ()
        """Ids and titles of the sessions that can be resumed."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield completions of the word before the cursor."""
        text = document.text_before_cursor
        line = text.rpartition("\n")[2]
        word = line.rpartition(" ")[2]
        if text.startswith("/") and "\n" not in text:
            yield from self._command(text, word)
        elif word.startswith("@"):
            yield from self._files(word[1:])

    def _command(self, text: str, word: str) -> Iterator[Completion]:
        name, space, rest = text[1:].partition(" ")
        if not space:
            for command in COMMANDS.values():
                if command.name.startswith(name):
                    summary = command.help.split(". ")[0].splitlines()[0]
                    yield Completion(command.name, start_position=-len(name), display_meta=summary)
        elif name in COMMANDS and " " not in rest:
            for one in COMMANDS[name].words:
                if one.startswith(rest):
                    yield Completion(one, start_position=-len(rest))
        if name == "resume" and space:
            for id, title in self.sessions:
                if id.startswith(rest) or rest.casefold() in title.casefold():
                    yield Completion(id, start_position=-len(rest), display=title or id, display_meta=id)
        if any(text.startswith(start) for start in FILE_COMMANDS):
            yield from self._files(word)

    def _files(self, begun: str) -> Iterator[Completion]:
        folder, _, start = begun.rpartition("/")
        try:
            with os.scandir(self._folder / folder) as entries:
                found = sorted(one.name + ("/" if one.is_dir() else "") for one in entries)
        except OSError:
            return
        wanted = [one for one in found if one.startswith(start) and (start or not one.startswith("."))]
        for name in wanted[:MAX_FILES]:
            if name.isprintable():
                yield Completion(name, start_position=-len(start))
