"""The process that tests interrupt while it restores files or takes snapshots.

It prints `ready` when everything is imported, waits for a line, runs the operation that its arguments
name, and prints the result. The arguments also name a planted bug.
"""

from __future__ import annotations

import sys
from pathlib import Path

from turnstate.checkpoints import ShadowRepository
from turnstate.shadow import contents, git, repository, restore


def no_journal() -> None:
    restore.write = lambda *_: None  # type: ignore[assignment]


def ends_the_journal_too_early() -> None:
    really = restore.perform

    def perform(*arguments, **options):  # type: ignore[no-untyped-def]
        restore.remove(Path(sys.argv[2]))
        return really(*arguments, **options)

    repository.perform = perform  # type: ignore[assignment]


def removes_before_it_is_undoable() -> None:
    repository.take = _forgetful(repository.take)  # type: ignore[assignment]


def _forgetful(really):  # type: ignore[no-untyped-def]
    def take(place, git, *, tag, **options):  # type: ignore[no-untyped-def]
        return really(place, git, tag="" if tag == "undo" else tag, **options)

    return take


def does_not_sync() -> None:
    git._SETTINGS["core.fsync"] = "none"
    contents.sync_folder = lambda _: None  # type: ignore[assignment]


PLANTED = {
    "no journal": no_journal,
    "ends the journal too early": ends_the_journal_too_early,
    "forgets the undo": removes_before_it_is_undoable,
    "does not sync": does_not_sync,
}


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    operation, folder, tree, plant = sys.argv[1:]
    if plant:
        PLANTED[plant]()
    git.find_git(git._safe_path())
    say("ready")
    sys.stdin.readline()
    kept = ShadowRepository.open(folder, tree)
    if operation == "restore":
        kept.restore("0", hard=True)
    if operation == "snapshot":
        kept.snapshot("2")
    if operation in ("open", "restore", "snapshot"):
        say("done")
        return
    number = len(kept.snapshots())
    while True:
        for name in ("a", "b/c"):
            (Path(tree) / name).write_text(f"{number}\n" * 500)
        kept.snapshot(f"s{number}")
        say(f"{number}")
        number += 1


if __name__ == "__main__":
    main()
