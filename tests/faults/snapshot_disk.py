"""A model of a disk that forgets: what would be left of one folder if the power went at any moment.

It listens to the calls that change the folder. Bytes are sure once their file was synced, names once
the folder was. What is not sure may have reached the disk or not, each piece independently; `lefts`
gives every combination.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

Names = dict[str, int]


class ForgetfulDisk:
    def __init__(self, folder: Path, *, deaf_to: str = "") -> None:
        self.folder = folder
        self.deaf_to = deaf_to
        self.identity = folder.stat().st_ino
        self.sure_names: Names = {path.name: path.stat().st_ino for path in folder.iterdir()}
        self.bytes = {path.stat().st_ino: path.read_bytes() for path in folder.iterdir()}
        self.sure_bytes = dict(self.bytes)
        self.pending: list[Callable[[Names], None]] = []
        self.moments: list[
            tuple[Names, list[Callable[[Names], None]], dict[int, bytes], dict[int, bytes]]
        ] = []
        self._remember()

    def listen(self, patch: pytest.MonkeyPatch) -> None:
        for call in ("open", "write", "fsync", "rename", "unlink"):
            patch.setattr(os, call, self._heard(getattr(os, call), getattr(self, f"_{call}")))

    def lefts(self) -> Iterator[dict[str, bytes]]:
        """Yield every folder that a power cut at any moment can leave behind."""
        for sure_names, pending, current, sure in self.moments:
            for choice in product([False, True], repeat=len(pending)):
                names = dict(sure_names)
                for happened, change in zip(choice, pending, strict=True):
                    if happened:
                        change(names)
                yield {name: sure.get(file, b"") for name, file in names.items()}
                yield {name: current[file] for name, file in names.items()}

    def _heard(self, really: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            result = really(*arguments, **options)
            note(result, *arguments, **options)
            self._remember()
            return result

        return call

    def _remember(self) -> None:
        self.moments.append(
            (dict(self.sure_names), list(self.pending), dict(self.bytes), dict(self.sure_bytes))
        )

    def _is_ours(self, folder: int | None) -> bool:
        return folder is not None and os.fstat(folder).st_ino == self.identity

    def _open(self, result: int, name: str, flags: int, *_: Any, dir_fd: int | None = None) -> None:
        if flags & os.O_CREAT and self._is_ours(dir_fd):
            file = os.fstat(result).st_ino
            self.bytes[file] = b""
            self.pending.append(lambda names: names.update({name: file}))

    def _write(self, result: int, descriptor: int, data: bytes) -> None:
        file = os.fstat(descriptor).st_ino
        if file in self.bytes:
            self.bytes[file] += bytes(data[:result])

    def _fsync(self, _: None, descriptor: int) -> None:
        file = os.fstat(descriptor).st_ino
        if file == self.identity and self.deaf_to != "folder":
            for change in self.pending:
                change(self.sure_names)
            self.pending.clear()
        elif file in self.bytes and self.deaf_to != "file":
            self.sure_bytes[file] = self.bytes[file]

    def _rename(self, _: None, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        if self._is_ours(dst_dir_fd):
            file = os.stat(new, dir_fd=dst_dir_fd).st_ino

            def change(names: Names) -> None:
                names.pop(old, None)
                names[new] = file

            self.pending.append(change)

    def _unlink(self, _: None, name: str, *, dir_fd: int) -> None:
        if self._is_ours(dir_fd):
            self.pending.append(lambda names: names.pop(name, None) and None)
