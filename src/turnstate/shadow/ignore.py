"""The user's ignore rules, asked of git, without a look into the user's repository by git itself.

`check-ignore` is run on our own, empty repository, with the user's folder as its work tree: so the
`.gitignore` files in it count, also those above a start in a sub-folder, and outside of any repository.
`info/exclude` and `core.excludesFile` are read as plain text and handed over in one file, where the
later lines win, as they do in git. A nested repository's `info/exclude` counts below it, too. What the
user's repository tracks is not ignored, whatever the rules say; so git holds it, and so do we.

The rules of another moment can count as well, so that a restore, which may replace rules, keeps out of
snapshots what either moment ignores. Their files are written to a mirror: a folder of our own that holds
nothing but rules and empty folders, which git is asked about in place of the work tree.
"""

from __future__ import annotations

import os
import re
import stat
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ..errors import GitFailed, WorkTreeRefused
from .git import Git
from .objects import split
from .plan import Plan

__all__ = ["RULES", "Rules", "enclosing_repository", "is_readable_rules", "replaces_rules"]

RULES = b".gitignore"

_MOST = 4 << 20  # bytes of rules that are read from one file; nobody writes as many
_REFERENCE = 4096  # bytes of a `.git` file, which holds one path
_SPECIAL = {stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK}
_SECTION = re.compile(rb'\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"(?:[^"\\]|\\.)*")?\s*\]')
_INCLUDED = re.compile(rb'\s*path\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^#;]*))', re.IGNORECASE)


class _Scope(NamedTuple):
    """A folder that rules are relative to: where the work tree, or a part of it, stands in it."""

    root: Path
    within: bytes  # the path of the root in the work tree, with a slash at its end
    above: bytes  # the path of the work tree in the root, with a slash at its end
    excludes: Path
    mirrored: bool = False


class Rules:
    """What is ignored in a work tree, while it is looked at; `opened` gives one."""

    def __init__(self, git: Git, work_tree: Path, folder: Path, *, alone: bool = False) -> None:
        self._git = git
        self._work_tree = work_tree
        self._folder = folder
        root = work_tree if alone else enclosing_repository(work_tree) or work_tree
        self._users = _users_rules(git, root)
        self._general = _plain_file(self._users, _MOST)
        above = os.fsencode(work_tree.relative_to(root))
        self._scopes = [self._scope(root, b"", b"" if above == b"." else above + b"/")]
        self.elsewhere = set[bytes]()
        """What was found to be ignored by the rules of another moment alone."""
        self._refuse_unreadable(root)
        self._tracked = _tracked(git, root)

    @classmethod
    @contextmanager
    def opened(cls, git: Git, work_tree: Path, *, force: bool = False) -> Iterator[Rules]:
        """Read the rules as they are now; with ``force`` a work tree that is ignored has its own alone."""
        with TemporaryDirectory(dir=git.folder, prefix="rules-") as folder:
            rules = cls(git, work_tree, Path(folder))
            if rules.ignores_the_work_tree():
                if not force:
                    raise WorkTreeRefused(
                        f"{work_tree} is ignored by the rules of {rules._scopes[0].root}, so nothing in it "
                        "would be kept; force it, and only the rules inside of it count"
                    )
                rules = cls(git, work_tree, Path(folder), alone=True)
            yield rules

    def ignores_the_work_tree(self) -> bool:
        """Tell whether a repository around the work tree ignores all of it."""
        outer = self._scopes[0]
        return bool(outer.above) and bool(self._asked(outer, [b"./" + outer.above.rstrip(b"/")]))

    def is_rules(self, path: bytes) -> bool:
        """Tell whether a file of the work tree holds rules."""
        return split(path)[1] == RULES or self._work_tree / os.fsdecode(path) == self._users

    def also(self, files: Mapping[bytes, bytes], *, instead: bool = False) -> None:
        """Let rules count, too, that were written in these files of the work tree at another moment.

        With ``instead`` they count alone, and paths can be asked about that lead over links by now.
        """
        scope, mirror = self._scopes[0], self._folder / str(len(os.listdir(self._folder)))
        inside = os.path.join(os.fsencode(mirror), scope.above)
        os.makedirs(inside)
        folder = self._work_tree
        while folder != scope.root:
            folder = folder.parent
            rules = folder / os.fsdecode(RULES)
            if rules.is_file() and not rules.is_symlink():
                (mirror / rules.relative_to(scope.root)).write_bytes(_plain_file(rules, _MOST))
        for path, data in files.items():
            if split(path)[1] == RULES:
                os.makedirs(os.path.join(inside, split(path)[0]), exist_ok=True)
                with open(os.path.join(inside, path), "wb") as file:
                    file.write(data)
        users = next((files[one] for one in files if split(one)[1] != RULES), self._general)
        mirrored = self._scope(mirror, b"", scope.above, rules=users + b"\n" + _own_rules(scope.root))
        self._scopes = [mirrored] if instead else [*self._scopes, mirrored]

    def enter(self, path: bytes) -> None:
        """Let the rules of a nested repository count below it."""
        root = self._work_tree / os.fsdecode(path)
        if root == self._scopes[0].root or not (own := _own_rules(root).strip()):
            return
        for scope in [one for one in self._scopes if not one.within]:
            inside = scope.root / os.fsdecode(scope.above + path)
            if scope.mirrored:
                inside.mkdir(parents=True, exist_ok=True)
            rules = self._general + b"\n" + own
            self._scopes.append(self._scope(inside, path + b"/", b"", rules=rules))

    def ignored(self, paths: Sequence[bytes], folders: Collection[bytes] = ()) -> set[bytes]:
        """Return those of the paths that are ignored; none may lead over a link.

        A rule that is for folders alone counts for those that are there, and in a mirror for ``folders``.
        """
        found, elsewhere = set[bytes](), set[bytes]()
        for scope in self._scopes:
            # A path that begins with a colon would be taken for more than a path; one with a dot is not.
            before, cut = b"./" + scope.above, len(scope.within)
            asked = [before + path[cut:] for path in paths if path.startswith(scope.within)]
            if scope.mirrored:
                for path in folders:
                    if path.startswith(scope.within):
                        _make(os.path.join(os.fsencode(scope.root), before + path[cut:]))
            names = {scope.within + name[len(before) :] for name in self._asked(scope, asked)}
            (elsewhere if scope.mirrored else found).update(names)
        self.elsewhere |= {path for path in elsewhere - found if not self._is_tracked(path)}
        return {path for path in found | elsewhere if not self._is_tracked(path)}

    def _is_tracked(self, path: bytes) -> bool:
        """Tell whether the user's repository tracks a file, or anything in a folder."""
        name = self._scopes[0].above + path
        for wanted, below in ((name, False), (name + b"/", True)):
            place = bisect_left(self._tracked, wanted)
            found = self._tracked[place] if place < len(self._tracked) else b""
            if found.startswith(wanted) if below else found == wanted:
                return True
        return False

    def _asked(self, scope: _Scope, names: list[bytes]) -> list[bytes]:
        if not names:
            return []
        said = self._git.run(
            *("check-ignore", "--stdin", "-z", "--no-index"),
            input=b"".join(name + b"\0" for name in names),
            work_tree=scope.root,
            settings={"core.excludesFile": str(scope.excludes)},
            fine=(0, 1),
        )
        return said.split(b"\0")[:-1]

    def _scope(self, root: Path, within: bytes, above: bytes, *, rules: bytes | None = None) -> _Scope:
        excludes = self._folder / str(len(os.listdir(self._folder)))
        excludes.write_bytes(self._general + b"\n" + _own_rules(root) if rules is None else rules)
        return _Scope(root, within, above, excludes, mirrored=self._folder in root.parents)

    def _refuse_unreadable(self, root: Path) -> None:
        """Refuse a work tree where git would wait for ever to read the rules above it."""
        folder = self._work_tree
        while True:
            if not is_readable_rules(folder / os.fsdecode(RULES)):
                raise WorkTreeRefused(f"{folder / os.fsdecode(RULES)} is not a file; remove it")
            if folder == root:
                return
            folder = folder.parent


def replaces_rules(git: Git, work_tree: Path, plan: Plan) -> bool:
    """Tell whether a restore would put or remove a file that holds rules."""
    changed = [*(one.path for one in plan.puts), *(one.path for one in plan.removals)]
    if any(split(path)[1] == RULES for path in changed):
        return True
    users = _users_rules(git, enclosing_repository(work_tree) or work_tree)
    return any(work_tree / os.fsdecode(path) == users for path in changed)


def enclosing_repository(folder: Path) -> Path | None:
    """Find the top folder of the user's repository that a folder belongs to."""
    return next((one for one in (folder, *folder.parents) if _git_folder(one)), None)


def _tracked(git: Git, root: Path) -> list[bytes]:
    """List what the user's repository tracks, in order; nothing where its index cannot be read."""
    folder = _git_folder(root)
    if folder is None or not (folder / "index").is_file():
        return []
    try:
        said = git.run("ls-files", "--cached", "-z", work_tree=root, index=folder / "index")
    except GitFailed:
        return []
    return sorted(said.split(b"\0")[:-1])


def is_readable_rules(path: Path) -> bool:
    """Tell whether git can read rules at a path, or passes over what is there, and does not hang on it."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)


def _users_rules(git: Git, root: Path) -> Path:
    """Return the file that `core.excludesFile` names, or the one that counts where nothing is named."""
    repository = _git_folder(root)
    _refuse_endless_configuration(repository)
    named = git.users_path("core.excludesFile", at=root, repository=repository)
    return named or _users_folder() / "ignore"


def _users_folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")) / "git"


def _refuse_endless_configuration(repository: Path | None) -> None:
    """Refuse to ask git for a setting if it would wait for a FIFO or read a device to find it."""
    waiting = [Path("/etc/gitconfig"), _users_folder() / "config", Path(os.path.expanduser("~/.gitconfig"))]
    if repository is not None:
        waiting += [repository / "commondir", repository / "config.worktree"]
        waiting.append(_common_folder(repository) / "config")
    seen = set[str]()
    while waiting:
        path = waiting.pop()
        real = os.path.realpath(path)
        if real in seen:  # files may include each other
            continue
        seen.add(real)
        if _is_endless(path):
            raise WorkTreeRefused(
                f"git's configuration leads to {path}, which is not a file; "
                "remove it, or the line that includes it"
            )
        waiting += _included(path)


def _is_endless(path: Path) -> bool:
    try:
        status = path.stat()
        return stat.S_IFMT(status.st_mode) in _SPECIAL and not os.path.samestat(status, os.stat(os.devnull))
    except (OSError, ValueError):
        return False


def _included(path: Path) -> Iterator[Path]:
    """Name the files that a file of git's configuration includes, whatever the conditions are."""
    inside = False
    for line in _plain_file(path, _MOST).replace(b"\\\n", b"").splitlines():
        section = _SECTION.match(line)
        if section:
            inside = section[1].lower() in (b"include", b"includeif")
        if inside and (named := _INCLUDED.match(line, section.end() if section else 0)):
            value = re.sub(rb"\\(.)", rb"\1", named[1] if named[1] is not None else named[2].rstrip())
            yield path.parent / os.path.expanduser(os.fsdecode(value))


def _own_rules(root: Path) -> bytes:
    """Read the `info/exclude` of the repository whose top folder this is."""
    folder = _git_folder(root)
    if folder is None:
        return b""
    return _plain_file(_common_folder(folder) / "info" / "exclude", _MOST)


def _common_folder(folder: Path) -> Path:
    """Find the folder with what a worktree shares with the first one."""
    return folder / os.fsdecode(_plain_file(folder / "commondir", _REFERENCE).strip())


def _git_folder(top: Path) -> Path | None:
    """Find the folder of a repository from its top folder: `.git` itself, or the one that a file names."""
    path = top / ".git"
    reference = _plain_file(path, _REFERENCE)
    if reference.startswith(b"gitdir:"):
        path = top / os.fsdecode(reference.removeprefix(b"gitdir:").strip())
    return path if (path / "HEAD").is_file() else None


def _make(folder: bytes) -> None:
    with suppress(OSError):  # too long a path: a rule for folders alone does not count for it
        os.makedirs(folder, exist_ok=True)


def _plain_file(path: Path, most: int) -> bytes:
    """Read a file that may not be there, or be something that must not be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError):
        return b""
    try:
        return os.read(descriptor, most) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)
